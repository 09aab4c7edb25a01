"""The result of a run that has ended, collected from it and written into its folder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.errors import ResultError
from ignite_hooks.measure.environment import environment_facts
from ignite_hooks.model.parts import parts_of
from ignite_hooks.model.wrapping import is_sharded, plain_state
from ignite_hooks.results.history import History
from ignite_hooks.results.outcome import Outcome, is_pruning, is_stop, outcome_of
from ignite_hooks.results.recorded_run import LOCKS
from ignite_hooks.results.result import Reached, RunResult, read_result
from ignite_hooks.run.late_test import POINT, has_result, late_test
from ignite_hooks.run.progress import finished_epochs
from ignite_hooks.store.checksums import FAST, marked, new_hash
from ignite_hooks.store.files import explain
from ignite_hooks.text import one_line

if TYPE_CHECKING:
    from ignite_hooks.checkpoint.delivered import ChosenWeights
    from ignite_hooks.run.runner import Runner

OF_TRAINING: Final = (
    *("began", "ended", "seconds", "iterations_per_second", "samples_per_second", "bits", "resumed_from", "tests"),
)
"""What a result says of the life that has trained last, and of tests after it."""


def how_it_ended(runner: Runner, error: BaseException | None, failed: bool) -> Outcome:
    """Return how the run ended; what stops it on purpose, such as Ctrl-C or the exit of the script, is no failure."""
    leaves = is_stop(error)
    failure = one_line(error) if error is not None else "an exception of another handler" if failed else None
    return outcome_of(
        failure=None if leaves else failure,
        stop_reason=runner.stop_reason or (one_line(error) if leaves and error is not None else None),
        kind=runner.state.stop_kind or ("pruned" if is_pruning(error) else ""),
        completed=runner.state.completed,
        epochs=finished_epochs(runner),
        max_epochs=runner.max_epochs,
        iterations=int(runner.trainer_state.iteration),
        max_iters=runner.max_iters,
    )


def record_result(runner: Runner, outcome: Outcome, seconds: float, bits: Mapping[str, Any]) -> None:
    """Write ``result.json``, if the run has written anything; what goes wrong is said and ends nothing."""
    if not is_main_process() or not _has_written(runner.work_dir):
        return
    try:
        _as_before(runner, collect(runner, outcome, seconds, bits)).write(runner.work_dir)
    except OSError as error:
        runner.logger.warning("the result of the run is not written: %s", explain(error, runner.work_dir))
    except Exception as error:
        runner.logger.warning("the result of the run is not written: %s", one_line(error), exc_info=True)


def record_late_test(runner: Runner, metrics: Mapping[str, Any], chosen: ChosenWeights, *, asked: bool) -> None:
    """Add a test after the end of the run to its result, and tell trackers and report; what goes wrong is said.

    Args:
        runner: The run.
        metrics: What the test has found.
        chosen: The weights that were tested.
        asked: Whether weights were asked for, so that they may be others than those that the run delivers.
    """
    if not is_main_process():
        return
    try:
        if not has_result(runner):
            return
        file, folder = chosen.file, runner.work_dir
        inside = file is not None and file.is_relative_to(folder)
        where = chosen.what if file is None else str(file.relative_to(folder) if inside else file)
        step = int(runner.trainer_state.iteration)
        about = {"checkpoint": where, "weights": chosen.weights, "kind": chosen.kind, "chosen": asked, "step": step}
        tested = late_test(runner, "test", metrics, **about)
        tested.record(folder)
    except (ResultError, OSError) as error:
        runner.logger.warning("the test is not a part of the result: %s", one_line(error))
        return
    try:
        runner.call_hook(POINT, tested=tested)
    finally:
        runner.writer.close()


def collect(runner: Runner, outcome: Outcome, seconds: float, bits: Mapping[str, Any]) -> RunResult:
    """Return the result of a run, with what its bits depended on while it was running."""
    state, mask = runner.trainer_state, runner.masks.text
    config = runner.get_service("config")
    configuration = runner.masks.tree(config) if isinstance(config, Mapping) else {}
    iterations = int(state.iteration)
    rate = (iterations - runner.state.first_iteration) / seconds if seconds else None
    batch_size = getattr(state.dataloader, "batch_size", None)
    seed = config.get("seed") if isinstance(config, Mapping) else None
    facts = environment_facts(runner.model, runner.get_service("device"))
    return RunResult(
        state=outcome.state,
        reason=mask(outcome.reason),
        kind=outcome.kind,
        run=runner.state.run_id,
        began=runner.state.began,
        ended=time.time(),
        seconds=seconds,
        epochs=finished_epochs(runner),
        iterations=iterations,
        max_epochs=runner.max_epochs,
        resumed_from="" if runner.state.resumed_from is None else runner.state.resumed_from.name,
        metrics=dict(_last_metrics(runner)),
        delivered=getattr(runner.state.delivered, "file", None) or "",
        best={name: Reached(one.score, one.step, one.epoch, one.file) for name, one in runner.best.items()},
        iterations_per_second=rate,
        samples_per_second=rate * batch_size if rate is not None and isinstance(batch_size, int) else None,
        seed=seed if isinstance(seed, int) else None,
        bits=bits,
        digests=dict(_digests(runner, configuration)),
        environment={name: mask(text) for name, text in facts.items()},
        configuration=configuration,
        plan=[{name: mask(cell) for name, cell in row.items()} for row in runner.plan.rows()],
    )


def _as_before(runner: Runner, result: RunResult) -> RunResult:
    """Return the result with the times and tests of the former one, if this life of the run had nothing to train."""
    if runner.state.resumed_from is None or result.iterations != runner.state.first_iteration:
        return result
    try:
        former = read_result(runner.work_dir)
    except ResultError:
        return result
    if former is None or (former.run, former.iterations) != (result.run, result.iterations):
        return result
    return replace(result, **{name: getattr(former, name) for name in OF_TRAINING})


def _has_written(folder: Path) -> bool:
    try:
        return any(path.name not in LOCKS for path in folder.iterdir())
    except OSError:
        return False


def _last_metrics(runner: Runner) -> Iterator[tuple[str, Reached]]:
    """Yield the last value of every metric; the training loss is the mean that log and trackers show."""
    shown = History.read_end(runner.work_dir)
    for name, value in runner.metrics.numbers().items():
        points = shown.values(name) if name == "loss" else []
        step, last = points[-1] if points else (runner.metrics.step(name), value)
        if isinstance(last, int | float):
            yield name, Reached(float(last), step)


def _digests(runner: Runner, configuration: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    text = json.dumps(configuration, sort_keys=True, default=str, ensure_ascii=False)
    checksum = new_hash(FAST)
    checksum.update(memoryview(text.encode("utf-8", "backslashreplace")))
    yield "configuration", marked(FAST, checksum.hexdigest())
    parts = parts_of(runner.model) if runner.model is not None else {}
    if parts and not any(is_sharded(one) for one in parts.values()):
        yield "weights", weights_digest(parts)


def weights_digest(models: Mapping[str, Any]) -> str:
    """Return a checksum of all weights and buffers, with their names, types and shapes.

    Example:
        >>> import torch
        >>> one, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        >>> other.load_state_dict(one.state_dict())
        <All keys matched successfully>
        >>> weights_digest({"": one}) == weights_digest({"": other})
        True
    """
    import torch

    checksum = new_hash(FAST)
    for part, model in models.items():
        for name, tensor in plain_state(model).items() if hasattr(model, "state_dict") else ():
            if not isinstance(tensor, torch.Tensor):
                continue
            whole = tensor.detach().cpu().contiguous()
            checksum.update(memoryview(f"{part}.{name} {whole.dtype} {tuple(whole.shape)}\n".encode()))
            checksum.update(whole.reshape(-1).view(torch.uint8).numpy().data)
    return marked(FAST, checksum.hexdigest())
