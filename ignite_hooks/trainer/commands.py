"""``ignite-hooks train``, ``resume``, ``test``, ``export`` and ``demo``: runs from the command line, and exit codes."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import signal
import sys
import tempfile
import traceback
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.config.files import load_config
from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.errors import CheckpointError, ConfigError, ExportError, Problem
from ignite_hooks.measure.losses import is_number
from ignite_hooks.results.outcome import is_stop
from ignite_hooks.secrets import is_masked, masked
from ignite_hooks.system.host import SYSTEM, WINDOWS
from ignite_hooks.terminal import coloured
from ignite_hooks.text import below, one_line, table
from ignite_hooks.writers.trackers.clearml_task import under_agent

if TYPE_CHECKING:
    from ignite_hooks.trainer.base_trainer import BaseTrainer
    from ignite_hooks.trainer.tested_run import FoundRun

FAILED, WRONG, INTERRUPTED, TERMINATED = 1, 2, 130, 143
DEMO = Path(__file__).with_name("demo.yaml")
REPORT = "report.html"


def train(
    config: str,
    *,
    resume: str | None,
    overrides: Sequence[str],
    work_dir: str | None,
    dry_run: bool,
    queue: str | None = None,
) -> int:
    """Train what a configuration file describes, here or where an agent of ClearML takes it from a queue."""
    if queue is not None and not under_agent():
        from ignite_hooks.trainer.queued import enqueue

        return exit_code_of(lambda: _say(enqueue(config, overrides, queue)))
    if dry_run:
        return exit_code_of(lambda: _dry_run(config, overrides))
    return exit_code_of(lambda: _train(config, work_dir, resume, overrides))


def resume(folder: str, *, overrides: Sequence[str]) -> int:
    """Continue the run of a work directory."""
    return exit_code_of(lambda: _resume(Path(folder), overrides))


def test(
    run: str,
    *,
    checkpoint: str | None,
    weights: str | None,
    split: str,
    overrides: Sequence[str],
    data: str | None,
) -> int:
    """Test weights of a run that has ended, on its own or other data, and add the figures to its result."""
    return exit_code_of(lambda: _test(run, checkpoint, weights, split, overrides, data))


def export(
    run: str,
    *,
    checkpoint: str | None,
    weights: str | None,
    folder: str | None,
    overrides: Sequence[str],
    **wanted: Any,
) -> int:
    """Export weights of a run that has ended; ``wanted`` says in which formats, as `Wanted` has them."""
    return exit_code_of(lambda: _export(run, checkpoint, weights, folder, overrides, **wanted))


def demo(*, work_dir: str, overrides: Sequence[str], show: bool) -> int:
    """Train a small model on real digits with every kind of hook, and say where to look."""
    return exit_code_of(lambda: _demo(work_dir, overrides, show))


def exit_code_of(run: Callable[[], None]) -> int:
    """Run, and return the exit code of the process; what an agent of ClearML runs and was stopped dies by SIGINT.

    The agent shows a task as stopped if its process dies so, and as failed after any other exit code but 0.
    """
    code = _exit_code_of(run)
    if code in (INTERRUPTED, TERMINATED) and under_agent() and "WORLD_SIZE" not in os.environ and not WINDOWS:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code


def _exit_code_of(run: Callable[[], None]) -> int:
    """Run, and return the exit code of the process: 0, 1 failed, 2 configuration, 130 Ctrl-C, 143 SIGTERM."""
    # As `python -m` does, find the user's modules in the current folder; last, so that no file there
    # replaces an installed module.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        with _process_group():
            try:
                run()
            except ConfigError as error:
                if is_main_process():
                    print_config_error(error)
                return WRONG
    except KeyboardInterrupt:
        print("ignite-hooks: interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else FAILED
    except Exception as error:  # a training may fail in any way
        if is_stop(error):
            print(f"ignite-hooks: {masked(one_line(error))}", file=sys.stderr)
            return 0
        print(masked("".join(traceback.format_exception(error))), end="", file=sys.stderr)
        return FAILED
    return 0


def print_config_error(error: ConfigError) -> None:
    """Print every problem on a separate line that begins with the file, for people and for grep."""
    sys.stdout.flush()
    source = f"{error.source}: " if error.source else ""
    for problem in error.problems:
        print(coloured(masked(f"{source}{problem}"), "red", sys.stderr), file=sys.stderr)


@contextlib.contextmanager
def _process_group() -> Iterator[None]:
    """Join the process group if torchrun started this process, for as long as the context lasts."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield
        return
    import ignite.distributed as idist
    import torch

    idist.initialize("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    finally:
        idist.finalize()


def _make_trainer(config: Any, **given: Any) -> BaseTrainer:
    from ignite_hooks.trainer.base_trainer import CommandTrainer

    trainer = CommandTrainer(config, **given)
    for note in trainer.sections.notes:
        trainer.runner.logger.warning("%s", note)
    return trainer


def _train(config: str, work_dir: str | None, wanted: str | None, overrides: Sequence[str]) -> None:
    _ask_for_secrets(config, overrides)
    trainer = _make_trainer(config, work_dir=work_dir, resume=wanted, overrides=overrides)
    trainer.train()
    _say_result(trainer)
    if under_agent() and trainer.runner.stop_reason and trainer.runner.state.stop_kind != "planned":
        raise SystemExit(INTERRUPTED)


def _resume(folder: Path, overrides: Sequence[str]) -> None:
    from ignite_hooks.results.folders import not_a_run
    from ignite_hooks.trainer.base_trainer import CONFIG_FILE

    path = folder / CONFIG_FILE
    if not path.is_file():
        by_script = f"there is no {CONFIG_FILE}, so a script began it: run that script again, with resume='auto'"
        raise ConfigError([Problem(str(folder), not_a_run(folder) or by_script)])
    _ask_for_secrets(str(path), overrides)
    trainer = _make_trainer(path, work_dir=folder, resume="auto", overrides=overrides)
    trainer.train()
    _say_result(trainer)


def _test(
    run: str,
    word: str | None,
    weights: str | None,
    split: str,
    overrides: Sequence[str],
    data: str | None,
) -> None:
    from ignite_hooks.trainer.tested_run import NAMED, find_run, late_test_of, named_split, record

    found = find_run(Path(run), word)
    with _built_again(found, overrides, data) as trainer:
        metrics, chosen = trainer.evaluate_weights(split, found.checkpoint, weights)
        asked = word not in (None, "delivered") or weights is not None or found.what == NAMED
        tested = late_test_of(trainer, found, split, metrics, chosen, chosen=asked)
        masks = trainer.runner.masks
    tested = dataclasses.replace(tested, split=named_split(split, data))
    # Those of single classes are in the result.
    short = ", ".join(f"{name} {value:.4f}" for name, value in tested.metrics.items() if "/" not in name)
    what = f"{chosen.kind}, {found.what}"
    _say(f"{tested.split}: {short or 'no metric that is a number'}\nof {found.checkpoint}: {what}")
    if is_main_process():
        for line in record(found, tested, masks):
            _say(line)


def _export(
    run: str,
    word: str | None,
    weights: str | None,
    folder: str | None,
    overrides: Sequence[str],
    **wanted: Any,
) -> None:
    from ignite_hooks.export.write import Wanted
    from ignite_hooks.trainer.exported_run import export_run
    from ignite_hooks.trainer.tested_run import find_run

    found = find_run(Path(run), word)
    to = None if folder is None else Path(folder).expanduser()
    try:
        with _built_again(found, overrides) as trainer:
            exported = export_run(trainer, found, weights, to, Wanted(**wanted))
    except ExportError as error:
        raise ConfigError([Problem(str(found.checkpoint), str(error))]) from error
    if exported is not None:
        _say("\n".join([table(exported.rows()), *exported.lines(), f"of {found.checkpoint}, {found.what}"]))
        _say(f"in {exported.folder}")


@contextlib.contextmanager
def _built_again(found: FoundRun, overrides: Sequence[str], data: str | None = None) -> Iterator[BaseTrainer]:
    """Build the trainer of a run without what observes a training; what is wrong is said with the file it is in."""
    from ignite_hooks.config.overrides import with_overrides
    from ignite_hooks.trainer.tested_run import config_of_test, with_data

    problems: list[Problem] = []
    content = with_overrides(load_config(found.config), overrides, problems)
    if problems:
        raise ConfigError(problems, str(found.config))
    content = with_data(config_of_test(content), data)
    _refuse_masks(content, str(found.config))
    with tempfile.TemporaryDirectory(prefix="ignite-hooks-", ignore_cleanup_errors=True) as folder:
        try:
            yield _make_trainer(content, work_dir=folder)
        except ConfigError as error:
            raise ConfigError(error.problems, error.source or str(found.config)) from None
        except CheckpointError as error:
            raise ConfigError([Problem(str(found.checkpoint), str(error))]) from error


def _ask_for_secrets(path: str, overrides: Sequence[str]) -> None:
    from ignite_hooks.config.overrides import with_overrides

    if under_agent():
        return  # a task has masks, and its file may not be here
    # The trainer reports overrides that are wrong.
    _refuse_masks(with_overrides(load_config(path), overrides, []), path)


def _refuse_masks(content: Any, path: str) -> None:
    places = list(_masked_places(content))
    if places:
        message = "is a secret, which no file holds: give it with --set {}=..."
        raise ConfigError([Problem(place, message.format(place)) for place in places], path)


def _masked_places(value: Any, place: str = "") -> Iterator[str]:
    """Yield the places where a saved configuration has a mask in place of a secret, as ``--set`` spells them."""
    if isinstance(value, str) and is_masked(value):
        yield place
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _masked_places(item, below(place, name))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _masked_places(item, f"{place}.{i}")


def _dry_run(config: str, overrides: Sequence[str]) -> None:
    from ignite_hooks.config.overrides import with_overrides
    from ignite_hooks.trainer.dry_run import ITERATIONS, dry_run_config

    problems: list[Problem] = []
    content = with_overrides(load_config(config), overrides, problems)
    if problems:
        raise ConfigError(problems, config)
    with tempfile.TemporaryDirectory(prefix="ignite-hooks-", ignore_cleanup_errors=True) as folder:
        try:
            trainer = _make_trainer(dry_run_config(content, evaluates=True), work_dir=folder)
        except ConfigError as error:
            raise ConfigError(error.problems, config) from None
        trainer.train()
        report = trainer.runner.report()
        if report.failures:
            names = ", ".join(report.failures)
            raise RuntimeError(f"the dry run has met failures of {names}: they are in the lines above")
        evaluations = [name for name in ("val", "test") if name in trainer.runner.evaluators]
        words = f"{len(trainer.runner.hooks)} hooks, {ITERATIONS} iterations"
        words += f", an evaluation of {' and '.join(evaluations)}" if evaluations else ""
        _say(f"{config}: the dry run went well ({words}); nothing of it was kept")


def _say_result(trainer: BaseTrainer) -> None:
    runner = trainer.runner
    lines = []
    for name, record in runner.best.items():
        file = f": {runner.work_dir / record.file}" if record.file else ""
        lines.append(coloured(f"best {name} {record.score:.4f} in epoch {record.epoch}{file}", "green"))
    delivered = runner.state.delivered
    lines += (
        []
        if delivered is None
        else [f"delivered: {delivered}" + (f": {runner.work_dir / delivered.file}" if delivered.file else "")]
    )
    tested = {name: value for name, value in runner.metrics.items() if name.startswith("test_")}
    lines += [
        ", ".join(
            f"{name.replace('_', ' ', 1)} {float(value):.4f}" for name, value in tested.items() if is_number(value)
        )
    ]
    for hook in runner.hooks.values():
        lines += [f"exported: {folder}"] if (folder := getattr(hook, "exported_to", None)) is not None else []
    report = runner.work_dir / REPORT
    lines += [f"report: {report}" if report.exists() else f"files: {runner.work_dir}"]
    _say("\n".join(line for line in lines if line))


def _demo(work_dir: str, overrides: Sequence[str], show: bool) -> None:
    import torch

    # One thread: images this small gain nothing from more, and sums have the same order everywhere.
    torch.set_num_threads(1)
    trainer = _make_trainer(str(DEMO), work_dir=work_dir, overrides=overrides)
    trainer.train()
    _say_result(trainer)
    report = trainer.runner.work_dir / REPORT
    if show and is_main_process() and report.exists() and can_open_browser(os.environ):
        webbrowser.open(report.absolute().as_uri())


def can_open_browser(environment: Mapping[str, str], platform: str = SYSTEM) -> bool:
    """Return whether a browser can be opened for somebody at a screen.

    Example:
        >>> can_open_browser({"DISPLAY": ":0"}, "linux"), can_open_browser({"DISPLAY": ":0", "CI": "true"}, "linux")
        (True, False)
        >>> can_open_browser({}, "linux"), can_open_browser({"SSH_CONNECTION": "..."}, "darwin")
        (False, False)
    """
    if environment.get("CI") or environment.get("SSH_CONNECTION"):
        return False
    return platform in ("darwin", "win32") or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def _say(text: str) -> None:
    if text and is_main_process():
        # The log goes to stderr: flush it first, to keep the order.
        sys.stderr.flush()
        print(masked(text), flush=True)
