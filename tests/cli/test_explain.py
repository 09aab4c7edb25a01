"""``ignite-hooks explain`` shows the plan of a file."""

from __future__ import annotations

import re

import pytest

from ignite_hooks.config.build import build_all
from ignite_hooks.config.read import default_set, read_config
from ignite_hooks.hooks.base_hook import Situation
from ignite_hooks.plan.plan import Plan
from tests.cli.tools import GOOD, Ask, Write

PLAN_COLUMNS = ("point", "order", "hook", "priority", "how often", "next", "reads", "writes", "saves")


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


def test_two_methods_of_one_point_are_counted_separately(ask: Ask, write: Write) -> None:
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


@pytest.mark.parametrize("columns", [60, 80, 110, 160])
def test_the_plan_fits_the_terminal_and_wide_gives_all(
    ask: Ask, write: Write, terminal: None, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    path = write("hooks: [{type: LoggerHook}, {type: TensorBoardHook}, {type: CheckpointHook}, {type: EMAHook}]")
    _, out, _ = ask("explain", path)
    assert max(map(len, out.splitlines())) <= columns
    assert "\nTensorBoardHook\n  reads   outputs" in out
    _, wide, _ = ask("explain", path, "--wide")
    head = next(line for line in wide.splitlines() if line.startswith("point"))
    assert re.split("  +", head) == [*PLAN_COLUMNS[:6], "calls", *PLAN_COLUMNS[6:]]


def test_a_configuration_with_problems_is_not_explained(ask: Ask, write: Write) -> None:
    code, out, err = ask("explain", write("hooks: [{type: LoggerHook, intervall: 1}]"))
    assert (code, out) == (2, "")
    assert "did you mean 'interval'?" in err


def test_no_hooks_are_explained_too(ask: Ask, write: Write) -> None:
    code, out, _ = ask("explain", write("hooks: []"))
    assert code == 0
    assert "no hooks" in out
