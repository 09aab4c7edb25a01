"""What the command line answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

from ignite_hooks import __version__
from ignite_hooks.cli.app import main
from ignite_hooks.config.build import build_all
from ignite_hooks.config.read import default_set, read_config
from ignite_hooks.hooks.base_hook import BaseHook, OnError, Situation, settings
from ignite_hooks.plan.plan import Plan
from ignite_hooks.plan.schedule import scheduled
from ignite_hooks.registry import HOOKS, WRITERS

GOOD = """\
hooks:
  - {type: LoggerHook, interval: 2}
  - {type: EvalHook, name: val, interval: 2}
  - {type: CheckpointHook, name: saver, best_metric: accuracy}
  - {type: EarlyStoppingHook, monitor: accuracy, patience: 3}
"""


@settings
class Probe(BaseHook):
    """Look at everything.

    Args:
        depth: How far it looks.

    Reads: model.
    Saves: a picture.
    """

    depth: int = 1
    on_error: OnError = "warn"
    point_priority: ClassVar[Mapping[str, int]] = {"after_train": 3}

    @scheduled
    def after_train_iter(self) -> None: ...

    @scheduled
    def after_train_epoch(self) -> None: ...

    def after_train(self) -> None: ...


class NeedsThings(BaseHook):
    """Ask for services."""

    def after_epoch(self, run, epoch, model, tracker, metrics, lr=0.1, **others) -> None: ...

    def after_save_checkpoint(self, checkpoint, path, logger=None) -> None: ...


@pytest.fixture
def _own_hooks() -> Iterator[None]:
    """Hooks that stay as they are when those of the package change."""
    for cls in (Probe, NeedsThings):
        HOOKS.register(cls)
    yield
    for cls in (Probe, NeedsThings):
        del HOOKS._classes[cls.__name__]


PROBE = """\
Probe
  Look at everything.

setting  default  what it is
depth    1        a whole number
                  How far it looks.

common    name, priority, on_error, interval, frequency, by_epoch, start, begin, every
priority  50 (NORMAL)
on error  warn
reads     model
saves     a picture
points    after_train_iter   by its interval
          after_train_epoch  by its interval
          after_train        priority 3

example
  hooks:
    - type: Probe
      depth: 1
"""
PLAN_COLUMNS = ("point", "order", "hook", "priority", "how often", "next", "reads", "writes", "saves")


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Ask = Callable[..., Answer]
Write = Callable[..., str]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(*argv: str) -> Answer:
        code = main(argv)
        return Answer(code, *capsys.readouterr())

    return ask


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a configuration into the current folder and return its name."""
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "x.yaml") -> str:
        (tmp_path / name).write_text(text)
        return name

    return write


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stdout be a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("ignite_hooks.cli.app._on_terminal", lambda: True)


def process(*argv: str, code: str | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(("-c", code) if code else ("-m", "ignite_hooks")), *argv]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, timeout=240)


# -- validate -----------------------------------------------------------------------------------------------------


def test_a_good_file_is_said_to_be_good(ask: Ask, write: Write) -> None:
    code, out, err = ask("validate", write(GOOD))
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "x.yaml: 4 hooks, no problems"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "hooks:\n  - type: LoggerHook\n  - {type: EarlyStoppingHook, monitr: loss}\n",
            "x.yaml: hooks[1].monitr: not a setting of EarlyStoppingHook, did you mean 'monitor'?",
            id="misspelt setting",
        ),
        pytest.param(
            "hooks: [{type: EarlyStoppingHook, patience: many}]",
            "x.yaml: hooks[0].patience: a whole number of at least 1 is needed, not 'many'",
            id="wrong type",
        ),
        pytest.param(
            "hooks: [{type: EarlyStopingHook}]",
            "x.yaml: hooks[0].type: no hook is called 'EarlyStopingHook', did you mean 'EarlyStoppingHook'?",
            id="misspelt hook",
        ),
        pytest.param(
            "default_hooks: {logger: {intervall: 3}}",
            "x.yaml: default_hooks.logger.intervall: not a setting of LoggerHook, did you mean 'interval'?",
            id="default hook",
        ),
        pytest.param(
            "writers: [{type: JsonlWriter, path: a, clck: b}]",
            "x.yaml: writers[0].clck: not a setting of JsonlWriter, did you mean 'clock'?",
            id="writer",
        ),
        pytest.param(
            "writers: [{type: JsonlWriter, path: a, priority: HIGH}]",
            "x.yaml: writers[0].priority: not a setting of JsonlWriter; it has path, clock",
            id="a writer has no priority",
        ),
        pytest.param(
            "writers: [JsonWriter]",
            "x.yaml: writers[0].type: no writer is called 'JsonWriter', did you mean 'JsonlWriter'?",
            id="misspelt writer",
        ),
        pytest.param(
            "hooks: [{type: LoggerHook, priority: HIHG}]",
            "x.yaml: hooks[0].priority: 'HIHG' is not a priority, did you mean HIGH?",
            id="priority",
        ),
        pytest.param("hoks: []", "x.yaml: hoks: did you mean 'hooks'?", id="misspelt key"),
        pytest.param("hooks: [{type: LoggerHook", "x.yaml:1:26: not valid YAML", id="broken file"),
        pytest.param("{}\n---\n{}", "x.yaml:2:1: not valid YAML", id="two documents"),
    ],
)
def test_a_problem_is_one_line_with_its_place(ask: Ask, write: Write, text: str, message: str) -> None:
    code, out, err = ask("validate", write(text))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith(message)


def test_all_problems_come_in_one_pass(ask: Ask, write: Write) -> None:
    text = (
        "seed: -1\nhooks:\n  - {type: LoggerHook, intervall: 1}\n  - {type: EvalHok}\nwriters: [{type: JsonlWriter}]\n"
    )
    code, _, err = ask("validate", write(text))
    assert code == 2
    assert [line.split(": ")[1] for line in err.splitlines()] == [
        "seed",
        "hooks[0].intervall",
        "hooks[1].type",
        "writers[0].path",
    ]


def test_every_file_is_validated_and_one_bad_file_is_enough(ask: Ask, write: Write) -> None:
    code, out, err = ask(
        "validate", write(GOOD, "a.yaml"), "nope.yaml", write("seed: x", "b.yaml"), write("[]", "c.json")
    )
    assert code == 2
    assert [line.split(":")[0] for line in out.splitlines() if "note:" not in line] == ["a.yaml", "c.json"]
    assert [line.split(":")[0] for line in err.splitlines()] == ["nope.yaml", "b.yaml"]
    assert "did you mean 'a.yaml'" not in out


@pytest.mark.parametrize(
    ("text", "note"),
    [
        pytest.param(
            "hooks: [{type: EvalHook, dataloader: '@my_loader'}]",
            "needs my_loader from the script",
            id="a service by its name",
        ),
        pytest.param(
            "hooks: [{type: EvalHook, metrics: '@measured'}]",
            "needs measured from the script",
            id="a service in place of a mapping",
        ),
        pytest.param(
            "hooks: [CheckpointHook]",
            "reads model, optimizer, scheduler where the script has them",
            id="what a hook reads",
        ),
        pytest.param(
            "hooks: [{type: EarlyStoppingHook, monitor: val_loss}]",
            "EarlyStoppingHook.monitor: nothing evaluates",
            id="something that evaluates",
        ),
        pytest.param(
            "custom_hooks: [{type: Greeter, loud: true}]",
            "custom_hooks[0].type: no hook of ours is called 'Greeter': the script has to register it",
            id="a hook of the script",
        ),
        pytest.param("seed: 1", "eval (EvalHook) is added where the script has val_loader", id="a default hook"),
        pytest.param(
            "hooks: [{type: ignite.handlers.ModelCheckpoint, dirname: '@folder'}]",
            "hooks[0]: ignite.handlers.ModelCheckpoint cannot be looked at without folder",
            id="a handler made of services",
        ),
    ],
)
def test_what_a_script_could_supply_is_a_note(ask: Ask, write: Write, text: str, note: str) -> None:
    code, out, err = ask("validate", write(text))
    assert (code, err) == (0, "")
    assert any(line.startswith(f"  note: {note}") for line in out.splitlines())


@pytest.mark.usefixtures("_own_hooks")
def test_a_parameter_of_a_method_is_a_service_that_is_needed(ask: Ask, write: Write) -> None:
    _, out, _ = ask("validate", write("hooks: [NeedsThings]"))
    assert "note: needs model, tracker from the script" in out


def test_a_handler_of_ignite_is_validated(ask: Ask, write: Write) -> None:
    code, _, err = ask("validate", write("hooks: [{type: ignite.handlers.TimeLimit, limit_sek: 3}]"))
    assert code == 2
    assert "hooks[0].limit_sek: not a setting of TimeLimit, did you mean 'limit_sec'?" in err


# -- explain ------------------------------------------------------------------------------------------------------


def plan_of(path: str) -> Plan:
    hooks, problems = build_all(read_config(path, defaults=default_set()).entries, {}, Situation(complete=False))
    assert not problems
    return Plan(hooks)


def test_explain_prints_the_plan_in_its_order(ask: Ask, write: Write) -> None:
    path = write(GOOD)
    code, out, err = ask("explain", path)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "x.yaml: 4 hooks"
    rows = lines[lines.index("") + 1 :]
    assert re.split("  +", rows[0]) == [*PLAN_COLUMNS[:6], "calls", *PLAN_COLUMNS[6:]]
    for row, line in zip(plan_of(path).rows(), rows[1:], strict=False):
        assert line.split()[: len(row["point"].split()) + 2] == [*row["point"].split(), row["order"], row["hook"]]


@pytest.mark.usefixtures("_own_hooks")
@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ("interval: 1", {"after_train_iter": 10, "after_train": 1}),
        ("interval: 3", {"after_train_iter": 3, "after_train": 1}),
        ("every: 2 epoch", {"after_train_epoch": 1, "after_train": 1}),
        ("interval: 4, start: 2", {"after_train_iter": 3, "after_train": 1}),
        ("every: 10 min", {"after_train_iter": "?", "after_train": 1}),
    ],
)
def test_how_often_each_is_called_in_a_short_run(
    ask: Ask, write: Write, settings: str, calls: dict[str, object]
) -> None:
    _, out, _ = ask("explain", write(f"hooks: [{{type: Probe, {settings}}}]"), "--epochs", "2", "--iters", "5")
    head, *rows = out.split("\n\n")[1].splitlines()
    at = head.index("calls")
    assert {row.split()[0]: row[at:].split()[0] for row in rows} == {point: str(n) for point, n in calls.items()}


def test_the_calls_are_those_of_the_timeline(ask: Ask, write: Write) -> None:
    path = write(GOOD)
    _, table, _ = ask("explain", path, "--epochs", "3", "--iters", "5")
    _, timeline, _ = ask("explain", path, "--timeline", "--epochs", "3", "--iters", "5")
    head, *rows = table.split("\n\n")[1].splitlines()
    at = head.index("calls")
    assert sum(int(row[at:].split()[0]) for row in rows) == len(timeline.splitlines()) - 1


def test_a_method_by_each_of_two_names_of_a_point_is_counted_alone(ask: Ask, write: Write) -> None:
    _, out, _ = ask("explain", write("hooks: [{type: LoggerHook, interval: 2}]"), "--epochs", "1", "--iters", "6")
    head, *rows = out.split("\n\n")[1].splitlines()
    at, often = head.index("calls"), head.index("how often")
    counts = {row[often:at].split("  ")[0]: row[at:].split()[0] for row in rows if "iter" in row}
    assert counts["every 2 iters"] == "3"
    assert counts["always"] == "6"


def test_the_timeline_is_the_one_of_the_plan(ask: Ask, write: Write) -> None:
    path = write(GOOD)
    code, out, _ = ask("explain", path, "--timeline", "--epochs", "2", "--iters", "2", "--val-iters", "2")
    head, *lines = out.splitlines()
    assert code == 0
    assert head.split() == ["epoch", "iteration", "point", "hook"]
    steps = [(point, hook, int(epoch), int(n)) for epoch, n, point, hook in (line.split() for line in lines)]
    assert steps == [tuple(step) for step in plan_of(path).timeline(2, 2, 2)]


def test_a_narrow_terminal_gets_points_as_headings_and_effects_below(ask: Ask, write: Write, terminal: None) -> None:
    _, out, _ = ask("explain", write(GOOD))
    assert max(map(len, out.splitlines())) <= 80
    assert "\nafter_train_epoch\n" in out
    assert "\nsaver\n  reads   model" in out
    assert "reads" not in out.split("\nbefore_run\n")[0]


def test_a_configuration_with_problems_is_not_explained(ask: Ask, write: Write) -> None:
    code, out, err = ask("explain", write("hooks: [{type: LoggerHook, intervall: 1}]"))
    assert (code, out) == (2, "")
    assert "did you mean 'interval'?" in err


def test_no_hooks_are_explained_too(ask: Ask, write: Write) -> None:
    code, out, _ = ask("explain", write("hooks: []"))
    assert code == 0
    assert "no hooks" in out


# -- list ---------------------------------------------------------------------------------------------------------


def test_list_shows_every_hook_and_writer_with_its_purpose(ask: Ask) -> None:
    code, out, _ = ask("list")
    assert code == 0
    shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines() if line.startswith("  ")}
    assert set(shown) == {*HOOKS, *WRITERS}
    assert shown["EarlyStoppingHook"].startswith("Stop the run when a metric has not improved")
    assert shown["LogHook"] == "Another name of LoggerHook."


def test_list_is_wrapped_to_the_terminal(ask: Ask, terminal: None) -> None:
    _, out, _ = ask("list")
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", [*HOOKS, *WRITERS])
def test_one_hook_is_shown_with_everything_it_says_of_itself(ask: Ask, terminal: None, name: str) -> None:
    from ignite_hooks.config.describe import describe

    code, out, err = ask("list", name)
    assert (code, err) == (0, "")
    assert out.split()[0].rstrip(",") == name
    known = describe((HOOKS if name in HOOKS else WRITERS).get(name))
    words = out.split()
    for setting in known.settings:
        assert setting.name in words or setting.name + "," in words
    for point in known.points:
        assert point in words
    assert "`` " not in out
    assert "@" not in out.split("example")[0]


@pytest.mark.usefixtures("_own_hooks")
def test_one_hook_is_shown_as_this(ask: Ask) -> None:
    assert ask("list", "Probe").out == PROBE


@pytest.mark.parametrize("name", [*HOOKS, *WRITERS])
def test_the_example_of_a_hook_is_a_good_configuration(ask: Ask, write: Write, name: str) -> None:
    _, out, _ = ask("list", name)
    example = out.split("\nexample\n")[1]
    code, _, err = ask("validate", write(example))
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("EarlyStopping", "no hook or writer is called 'EarlyStopping', did you mean 'EarlyStoppingHook'?"),
        ("jsonlwriter", "no hook or writer is called 'jsonlwriter', did you mean 'JsonlWriter'?"),
        ("qqq", "no hook or writer is called 'qqq': ignite-hooks list shows all"),
    ],
)
def test_an_unknown_hook_is_refused_with_the_nearest(ask: Ask, name: str, message: str) -> None:
    assert ask("list", name) == (2, "", message + "\n")


# -- the process --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [(), ("explain",), ("validate",), ("lst",), ("explain", "x.yaml", "--epochs", "-1")])
def test_wrong_usage_ends_with_2(argv: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2
    assert "usage: ignite-hooks" in capsys.readouterr().err


def test_commands_that_do_not_exist_yet_are_not_offered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    assert "{" not in capsys.readouterr().out


def test_the_module_can_be_run() -> None:
    answer = process("--version")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"ignite-hooks {__version__}\n", "")


@pytest.mark.parametrize(
    "argv",
    [
        ("list",),
        ("list", "CheckpointHook"),
        ("schema",),
        ("validate", "x.yaml"),
        ("explain", "x.yaml"),
        ("explain", "x.yaml", "--timeline"),
    ],
)
def test_nothing_heavy_is_loaded(tmp_path: Path, argv: Sequence[str]) -> None:
    (tmp_path / "x.yaml").write_text(GOOD)
    code = (
        "import sys; from ignite_hooks.cli.app import main; code = main(sys.argv[1:]);"
        "print([m for m in ('torch', 'ignite', 'numpy', 'matplotlib') if m in sys.modules], file=sys.stderr);"
        "sys.exit(code)"
    )
    answer = process(*argv, code=code, cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "[]\n")


def test_the_exit_code_of_the_process_is_2_for_a_bad_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("hooks: [{type: LoggerHook, intervall: 1}]")
    answer = process("validate", "x.yaml", cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_who_leaves_early_is_no_error(tmp_path: Path, unbuffered: str) -> None:
    (tmp_path / "x.yaml").write_text(GOOD)
    command = [
        sys.executable,
        "-m",
        "ignite_hooks",
        "explain",
        "x.yaml",
        "--timeline",
        "--epochs",
        "200",
        "--iters",
        "50",
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    )
    assert running.stdout is not None
    assert running.stderr is not None
    assert running.stdout.readline().split()[0] == "epoch"
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait(timeout=240) == 1
    running.stderr.close()


def test_the_schema_is_printed_as_json(ask: Ask) -> None:
    code, out, _ = ask("schema")
    assert code == 0
    assert json.loads(out)["title"] == "ignite_hooks configuration"
