"""Which weights a run delivers: put into the model at its end, saved in a file of their own, swapped in for a test."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ignite_hooks.checkpoint.capture import ask, weights_of
from ignite_hooks.checkpoint.find import checkpoint_folders, find_checkpoint
from ignite_hooks.checkpoint.formats import FORMAT
from ignite_hooks.checkpoint.restore import load_weights, read_checkpoint
from ignite_hooks.checkpoint.retention import Replace
from ignite_hooks.checkpoint.save import SaveRequest
from ignite_hooks.distributed.collectives import fail_on_all_ranks
from ignite_hooks.errors import CheckpointError, ConfigError, Problem
from ignite_hooks.model.parts import is_several
from ignite_hooks.model.wrapping import plain_state
from ignite_hooks.run.state import Delivered
from ignite_hooks.text import nearest

if TYPE_CHECKING:
    from ignite_hooks.checkpoint.save import OnEnd
    from ignite_hooks.run.runner import Runner

Averaging = str
"""``raw``, ``ema``, or the name of a further average."""
RAW, AVERAGES, MORE = "raw", "ema", "ema_state_dicts"


class ChosenWeights(NamedTuple):
    """The weights that are in the model for an evaluation."""

    what: str
    weights: Averaging
    file: Path | None = None
    """The file that holds them, as far as it is known."""

    @property
    def kind(self) -> str:
        """Whether they are raw weights or averages, and which."""
        return kind_of(self.weights)

    def __str__(self) -> str:
        return self.what if self.weights == RAW else f"{self.what}, {self.kind}"


WORDS = ("delivered", "best", "last")
"""The weights that have a name."""


# -- at the end of a run ------------------------------------------------------------------------------------------


def deliver(runner: Runner, delivered: Delivered, weights: Mapping[str, Any] | None = None) -> None:
    """Make a run deliver other weights than those of its last iteration.

    Args:
        runner: The run, at its end.
        delivered: What they are.
        weights: What `weights_of` returned; None if they are in the model already.
    """
    if weights is not None:
        load_weights(runner, weights)
    runner.state.delivered = delivered
    tested = [name for name in runner.metrics if name.startswith("test_")]
    if any(runner.metrics.step(name) == runner.global_step for name in tested):
        runner.logger.warning(
            "the test before this was of the last weights, and the run delivers %s: test with runner.test(), or with "
            "an EvalHook named 'test', which comes after them",
            delivered,
        )


def save_delivered(runner: Runner, folder: Path, word: str, on_end: OnEnd) -> None:
    """Save the delivered weights in a file of their own, unless a checkpoint of the run holds them; name it.

    Args:
        runner: The run, at its end.
        folder: Where the file goes.
        word: What it is called, before the epoch.
        on_end: Called with the error or None.
    """
    found, checkpoints = runner.state.delivered, runner.checkpoints
    if found is None:
        return
    if found.file is None:
        rankings = [getattr(getattr(hook, "state", None), "best", None) for hook in runner.hooks.values()]
        ranked = [files for ranking in rankings if isinstance(ranking, Mapping) for files in ranking.values()]
        taken = {file["name"] for files in ranked for file in files}
        name = f"{word}_epoch_{found.epoch}.pth"
        if checkpoints.name_for(name) in taken:
            # It holds another evaluation of this epoch.
            name = f"{word}_iter_{found.step}.pth"

        def saved(error: CheckpointError | None) -> None:
            if error is None:
                file = (folder / checkpoints.name_for(name)).relative_to(runner.work_dir)
                runner.state.delivered = replace(found, file=str(file))
                record = None if found.metric is None else runner.best.get(found.metric)
                if record is not None and record.step == found.step and found.metric is not None:
                    runner.best.name_file(found.metric, str(file))
            on_end(error)

        state = {
            "meta": {
                "format": FORMAT,
                "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "epoch": found.epoch,
                "iter": found.step,
                "delivered": str(found),
                "run": runner.state.run_id,
            },
            "metrics": {} if found.metric is None else {found.metric: {"value": found.score, "step": found.step}},
            **weights_of(runner),
        }
        request = SaveRequest(
            name, "delivered", folder=folder, state=state, rules=(Replace("delivered"),), on_end=saved
        )
        checkpoints.save(request)
    runner.logger.info("delivered: %s", runner.state.delivered and runner.state.delivered.in_words)


# -- for an evaluation --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def weights_in_model(
    runner: Runner, checkpoint: str | Path | None = None, weights: Averaging | None = None
) -> Iterator[ChosenWeights]:
    """Put weights of a run into its model, and afterwards what was in it; yield which they are.

    Args:
        runner: The run.
        checkpoint: ``"delivered"`` or None for those in the model, which are the last ones before the end of the run;
            ``"best"``, ``"last"`` or the name of a file.
        weights: The raw weights, the averages of them, or further averages by name; by default what evaluations use.
    """
    options = runner.evaluation_options
    before = options.weights, options.of_others
    found, words, file = _wanted(runner, checkpoint)
    if weights == AVERAGES and found is None and not keeps_averages(runner.hooks.values()):
        raise CheckpointError("there are no averages in this run: add an EMAHook, or test the raw weights")
    if found is None and weights not in (None, RAW, AVERAGES):
        # Hooks put no further averages into the model before an evaluation.
        found = weights_of(runner)
    if found is None:
        options.weights, options.of_others = weights, before[1] or runner.state.delivered is not None
        try:
            yield ChosenWeights(words, weights or _usual(runner), file)
        finally:
            options.weights, options.of_others = before
        return
    chosen, kind = _chosen(runner, found, weights, words)
    options.weights, options.of_others = "raw", True
    try:
        with _for_a_time(runner, independent_copy(chosen), words):
            yield ChosenWeights(words, kind, file)
    finally:
        options.weights, options.of_others = before


@contextlib.contextmanager
def weights_to_hand_on(
    runner: Runner, checkpoint: str | Path | None = None, weights: Averaging | None = None
) -> Iterator[ChosenWeights]:
    """Put weights of a run into its model outside of any evaluation, and afterwards what was in it.

    Averages are put into it too, which hooks otherwise do at the beginning of an evaluation. The arguments are those
    of `weights_in_model`.
    """
    found, words, file = _wanted(runner, checkpoint)
    chosen, kind = _chosen(runner, weights_of(runner) if found is None else found, weights, words)
    if found is None and kind == RAW:
        yield ChosenWeights(words, kind, file)
        return
    with _for_a_time(runner, independent_copy(chosen), words):
        yield ChosenWeights(words, kind, file)


@contextlib.contextmanager
def _for_a_time(runner: Runner, chosen: Any, words: str) -> Iterator[None]:
    """Have other weights in the model, for as long as the context lasts."""
    kept = independent_copy(plain_state(runner.model))
    try:
        _put_into_model(runner, chosen, words)
        yield
    finally:
        _put_into_model(runner, kept, "the weights before this")


def _wanted(runner: Runner, checkpoint: str | Path | None) -> tuple[Mapping[str, Any] | None, str, Path | None]:
    """Return the weights that are wanted, what they are and their file; no weights where the model has them."""
    delivered = runner.state.delivered
    if checkpoint in (None, "delivered") or (checkpoint == "last" and delivered is None):
        if delivered is not None:
            return None, str(delivered), None if delivered.file is None else runner.work_dir / delivered.file
        path = _last_file(runner)
        return None, "the last weights", path if path.exists() else None
    if checkpoint == "last":
        path = fail_on_all_ranks(lambda: _last_file(runner))
        return _from_file(runner, path), "the last weights", path
    if checkpoint == "best":
        if delivered is not None and delivered.metric is not None:
            return None, str(delivered), None if delivered.file is None else runner.work_dir / delivered.file
        return _best(runner)
    path = fail_on_all_ranks(lambda: find_checkpoint(runner, str(checkpoint)))
    return _from_file(runner, path), f"the weights of {path.name}", path


def _best(runner: Runner) -> tuple[Mapping[str, Any], str, Path | None]:
    """Return the best weights of the run, from a file or from the hook that keeps them."""
    ranked = [name for hook in runner.hooks.values() for name in getattr(hook, "ranked_metrics", ())]
    files = {name: record for name, record in runner.best.items() if record.file is not None}
    for name in sorted(files, key=lambda name: name not in ranked):
        path = runner.work_dir / str(files[name].file)
        return _from_file(runner, path), str(Delivered.best(name, files[name])), path
    for hook in runner.hooks.registered.values():
        if (kept := ask(hook, "best_weights")) is not None:
            weights, words = kept
            return weights, words, None
    raise CheckpointError("this run has no best weights (yet): CheckpointHook(save_best=...) keeps those of a metric")


def _last_file(runner: Runner) -> Path:
    name = runner.checkpoints.name_for("last.pth")
    paths = [folder / name for folder in reversed(checkpoint_folders(runner))]
    return next((path for path in paths if path.exists()), paths[-1])


def _from_file(runner: Runner, path: Path) -> Mapping[str, Any]:
    runner.checkpoints.wait_until_finished()
    state = read_checkpoint(runner, path)
    if "state_dict" not in state:
        raise CheckpointError(f"{path} holds no weights")
    return state


def _chosen(runner: Runner, found: Mapping[str, Any], weights: Averaging | None, words: str) -> tuple[Any, Averaging]:
    """Return the raw weights or averages of a checkpoint, and which of them they are."""
    averages = {AVERAGES: found.get("ema_state_dict"), **found.get(MORE, {})}
    known = [RAW, *(name for name, one in averages.items() if one is not None)]
    wanted = weights or _usual(runner)
    if weights is not None and weights not in known:
        if weights == AVERAGES:
            raise CheckpointError(f"{words}: there are no averages of them (ema_state_dict)")
        raise CheckpointError(f"{words}: {_no_averages(weights, known)}")
    if wanted == RAW or wanted not in known:
        return found["state_dict"], RAW
    # Of several models, some may have no average.
    return {**found["state_dict"], **averages[wanted]} if is_several(runner.model) else averages[wanted], wanted


def _no_averages(name: str, known: Sequence[str]) -> str:
    meant = f", did you mean {near!r}?" if (near := nearest(name, known)) else f": there are {', '.join(known)}"
    return f"there are no weights {name!r}{meant}"


def kind_of(weights: Averaging) -> str:
    """Return what weights are, in words.

    Example:
        >>> kind_of("raw"), kind_of("ema"), kind_of("slow")
        ('raw weights', 'averages', "averages 'slow'")
    """
    return {RAW: "raw weights", AVERAGES: "averages"}.get(weights, f"averages {weights!r}")


def _usual(runner: Runner) -> Averaging:
    """Return which weights evaluations use where nothing is said."""
    averaged = any(getattr(hook, "evaluate", "raw") != "raw" for hook in _averaging(runner.hooks.values()))
    return AVERAGES if averaged else RAW


def _put_into_model(runner: Runner, weights: Mapping[str, Any], words: str) -> None:
    """Give the model weights by name; what hooks hold besides stays."""
    try:
        load_weights(runner, {"state_dict": weights})
    except (RuntimeError, KeyError) as error:
        raise CheckpointError(f"{words} do not fit the model: {error}") from error


def problem_of_choice(
    checkpoint: str | Path | None, weights: str | None, hooks: Mapping[str, object]
) -> tuple[str, str] | None:
    """Return the setting that names weights which no hook of a run keeps, and why; or None."""
    if weights == AVERAGES and not keeps_averages(hooks.values()) and not is_file(checkpoint):
        return "weights", "there are no averages in this run: add an EMAHook, or say raw"
    known = [
        RAW,
        AVERAGES,
        *(name for hook in _averaging(hooks.values()) for name in getattr(hook, "also", None) or ()),
    ]
    if weights is not None and weights not in known and not is_file(checkpoint):
        return "weights", f"{_no_averages(weights, known)}: further averages are named by EMAHook(also=...)"
    restoring = [hook for hook in hooks.values() if getattr(type(hook), "delivers", False)]
    saving = [hook for hook in hooks.values() if getattr(type(hook), "saves_checkpoints", False)]
    if checkpoint == "best":
        ranks = any(getattr(hook, "ranked_metrics", None) for hook in saving)
        keeps = any(getattr(hook, "restore_best_weights", False) for hook in restoring)
        if not ranks and not keeps:
            return "checkpoint", "no hook keeps the best weights: add CheckpointHook(save_best=...), or say last"
    if checkpoint == "last" and restoring and not any(getattr(hook, "save_last", False) for hook in saving):
        return "checkpoint", "no hook saves the last weights: add CheckpointHook(save_last=True), or say delivered"
    return None


def is_file(checkpoint: str | Path | None) -> bool:
    """Return whether a choice of weights is the name of a file."""
    return checkpoint is not None and checkpoint not in WORDS


def check_file(runner: Runner, name: str, weights: str | None, place: str) -> None:
    """Raise `ConfigError` if a checkpoint that is named is not there, or has no such weights."""
    try:
        state = read_checkpoint(runner, fail_on_all_ranks(lambda: find_checkpoint(runner, name)))
    except CheckpointError as error:
        meant = f", did you mean {near!r}?" if (near := nearest(name, WORDS, cutoff=0.7)) else ""
        raise ConfigError([Problem(place, f"{error}{meant}")]) from error
    further = weights not in (None, RAW, AVERAGES)
    key = MORE if further else "ema_state_dict" if weights == AVERAGES else "state_dict"
    if key not in state or (further and weights not in state[key]):
        words = f"no {key} of {weights!r}" if further else f"no {key}"
        raise ConfigError([Problem(place, f"{name} has {words}: it holds {', '.join(map(str, list(state)[:10]))}")])


def has_best(runner: Runner) -> bool:
    """Return whether the best weights of the run can be had now."""
    if any(record.file is not None for record in runner.best.values()):
        return True
    return any(ask(hook, "best_weights") is not None for hook in runner.hooks.registered.values())


def keeps_averages(hooks: Any) -> bool:
    """Return whether one of the hooks keeps averages of the weights."""
    return any(True for _ in _averaging(hooks))


def _averaging(hooks: Any) -> Iterator[object]:
    return (hook for hook in hooks if getattr(type(hook), "keeps_averages", False))


def independent_copy(weights: Any) -> Any:
    """Return an independent copy of nested mappings of tensors."""
    if isinstance(weights, Mapping):
        return {name: independent_copy(value) for name, value in weights.items()}
    # The extra state of a module may be any object.
    return weights.detach().clone() if hasattr(weights, "detach") else copy.deepcopy(weights)
