"""A run that is tested after its end: where its configuration and its weights are, and what is kept of the test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ignite_hooks.config.build import build_hook
from ignite_hooks.config.build_writers import build_writers
from ignite_hooks.config.files import PARSERS, load_config, parse_yaml
from ignite_hooks.config.read import HookEntry, default_set, read_config
from ignite_hooks.errors import ConfigError, Problem, ResultError
from ignite_hooks.hooks.trackers.tracker_hook import TrackerHook
from ignite_hooks.registry import HOOKS
from ignite_hooks.report.late_tests import add_to_page
from ignite_hooks.results.folders import not_a_run
from ignite_hooks.results.recorded_run import REPORT, RecordedRun, read_run
from ignite_hooks.results.result import FILE_NAME
from ignite_hooks.run.late_test import LateTest, late_test
from ignite_hooks.store.claim import NewFolder
from ignite_hooks.store.manifest import resuming_order
from ignite_hooks.text import nearest
from ignite_hooks.writers.many import ManyWriters
from ignite_hooks.writers.trackers.tracker_writer import TrackerWriter

if TYPE_CHECKING:
    from ignite_hooks.checkpoint.delivered import ChosenWeights
    from ignite_hooks.secrets import Masks
    from ignite_hooks.trainer.base_trainer import BaseTrainer
    from ignite_hooks.writers.interface import Writer

CONFIG_FILE = "config.yaml"
WORDS = ("delivered", "best", "last")
NAMED = "the file that was named"


class FoundRun(NamedTuple):
    """What a test is of."""

    folder: Path
    """The work directory of the run."""
    config: Path
    checkpoint: Path
    what: str
    """Which weights of the run the checkpoint holds."""


def find_run(path: Path, word: str | None) -> FoundRun:
    """Return the run that a user has named by its folder, its configuration or one of its checkpoints.

    Args:
        path: What was named.
        word: The weights to test: ``delivered``, ``best``, ``last`` or the path of a checkpoint; None for the
            checkpoint that was named, and for the delivered weights of a run.

    Raises:
        ConfigError: If there is no such run, or no such checkpoint in it.
    """
    if not path.exists():
        raise _wrong(path, not_a_run(path))
    if path.is_file() and path.suffix.lower() not in PARSERS:
        folder = next((one for one in (path.parent, path.parent.parent) if (one / CONFIG_FILE).is_file()), path.parent)
        if not_a_run(folder):
            raise _wrong(path, f"{path.name} is no checkpoint of a run: name one, or the work directory of a run")
        _must_have_config(folder)
        if word is not None:
            raise _wrong("--checkpoint", f"{path} is a checkpoint already: name its folder, or leave this out")
        return FoundRun(folder, folder / CONFIG_FILE, path, NAMED)
    if path.is_dir():
        folder, config = path, path / CONFIG_FILE
        _must_have_config(folder)
    else:
        folder, config = _folder_of(path), path
    try:
        run = read_run(folder)
    except FileNotFoundError as error:
        raise _wrong(path, str(error)) from error
    return FoundRun(folder, config, *_checkpoint(run, word or "delivered"))


def _must_have_config(folder: Path) -> None:
    if not (folder / CONFIG_FILE).is_file():
        message = (
            not_a_run(folder)
            or f"there is no {CONFIG_FILE}, so no command can build its model: a script tests with runner.test()"
        )
        raise _wrong(folder, message)


def _folder_of(config: Path) -> Path:
    """Return the work directory of the newest run of a configuration."""
    if config.name == CONFIG_FILE:
        return config.parent
    content = load_config(config)
    named = content.get("work_dir") or content.get("experiment_dir")
    if isinstance(named, str | Path):
        return Path(named).expanduser()
    existing = NewFolder(str(config)).existing()
    if not existing:
        raise _wrong(config, "no run of it is here: name the work directory, or train it first")
    return existing[0]


def _checkpoint(run: RecordedRun, word: str) -> tuple[Path, str]:
    """Return a checkpoint of a run and what it is; only a file of the folder itself, or one that the user names."""
    # What the result names is looked up among these: no text of a file becomes a path.
    files = {str(path.relative_to(run.path)): path for path in run.checkpoint_files}
    if word == "delivered":
        name = run.result.delivered if run.result is not None else ""
        if not name:
            return _last(run, ", which the run delivers" if run.state == "finished" else f"; the run is {run.state}")
        if name not in files:
            raise _wrong("--checkpoint", f"{name} held what the run delivers, and is not in {run.path} any longer")
        return files[name], "which the run delivers"
    if word == "best":
        best = {metric: one.file for metric, one in run.best.items() if one.file in files}
        if len({*best.values()}) > 1:
            listed = ", ".join(f"{file} ({metric})" for metric, file in best.items())
            raise _wrong("--checkpoint", f"several are the best: name one of {listed}")
        for metric, file in best.items():
            return files[str(file)], f"the best {metric}"
        raise _wrong("--checkpoint", f"{run.path} has no best weights{_there(files)}")
    if word == "last":
        return _last(run, "")
    for place in (Path(word), run.path / word, *(path for path in files.values() if path.name == word)):
        if place.exists():
            return place, NAMED
    meant = f", did you mean {near!r}?" if (near := nearest(word, [*WORDS, *files], cutoff=0.7)) else ""
    raise _wrong("--checkpoint", f"there is no {word}{meant or _there(files)}")


def _last(run: RecordedRun, why: str) -> tuple[Path, str]:
    if not run.checkpoint_files:
        raise _wrong("--checkpoint", f"{run.path} has no checkpoints")
    path = min(run.checkpoint_files, key=lambda path: resuming_order(run.checkpoint_files[path]))
    return path, f"the last weights saved{why}"


def _there(files: Mapping[str, Path]) -> str:
    return f": it has {', '.join(files) or 'no checkpoints'}"


def _wrong(place: object, message: str) -> ConfigError:
    return ConfigError([Problem(str(place), message)])


def config_of_test(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without what only observes a training: no tracker hears of a test.

    Example:
        >>> config_of_test({"hooks": [{"type": "LoggerHook"}, {"type": "EMAHook"}], "resume": True})
        {'hooks': [{'type': 'EMAHook'}]}
    """
    left_out = ("work_dir", "experiment_dir", "resume", "load_from", "writers", "writer")
    changed = {name: value for name, value in content.items() if name not in left_out}
    if isinstance(training := changed.get("training"), Mapping):
        changed["training"] = {name: value for name, value in training.items() if name != "load_from"}
    problems: list[Problem] = []
    entries = read_config(content, defaults=default_set(evaluates=True), problems=problems).entries
    if problems:
        # The trainer reports what is wrong with it.
        return changed
    for section in ("hooks", "custom_hooks"):
        if section in changed:
            listed = [one for one in entries if one.default_name is None and one.place.startswith(section)]
            changed[section] = [one.wanted for one in listed if not _observes(one)]
    if "hooks" not in changed:
        without = {one.default_name: None for one in entries if one.default_name and _observes(one)}
        changed["default_hooks"] = {**(changed.get("default_hooks") or {}), **without}
    return changed


PLACES = ("root", "path")
"""The settings of a data set that say where its data is."""


def with_data(content: Mapping[str, Any], wanted: str | None) -> dict[str, Any]:
    """Return a configuration with other data: of the same kind at another place, or another data set.

    Example:
        >>> with_data({"dataset": {"type": "csv", "path": "a.csv", "target": "y"}}, "b.csv")["dataset"]
        {'type': 'csv', 'path': 'b.csv', 'target': 'y'}
        >>> with_data({"dataset": "digits"}, "{type: csv, path: b.csv}")["dataset"]
        {'type': 'csv', 'path': 'b.csv'}

    Raises:
        ConfigError: If the data of the run is at no place that another could take.
    """
    if wanted is None:
        return dict(content)
    given = parse_yaml(wanted, "--data") if wanted.lstrip().startswith("{") else wanted
    dataset = content.get("dataset")
    if isinstance(given, Mapping):
        return {**content, "dataset": dict(given)}
    place = next((name for name in PLACES if isinstance(dataset, Mapping) and name in dataset), None)
    if place is None:
        hint = "give the whole data set, as in --data '{type: csv, path: x.csv}'"
        raise _wrong("--data", f"the data of this run is at no place that {given!r} could be: {hint}")
    return {**content, "dataset": {**dataset, place: given}}  # type: ignore[dict-item]


def named_split(split: str, data: str | None) -> str:
    """Return the name under which a test is recorded, so that other data does not replace the run's own.

    Example:
        >>> named_split("test", None), named_split("test", "/data/photos"), named_split("val", "{type: digits}")
        ('test', 'test@photos', 'val@{type: digits}')
    """
    if data is None:
        return split
    return f"{split}@{data.replace('/', '_') if data.startswith('{') else Path(data).name}"


def _observes(entry: HookEntry) -> bool:
    """Return whether a hook only observes, as its class says by what its failures mean."""
    type_ = entry.wanted.get("type") if isinstance(entry.wanted, Mapping) else type(entry.wanted)
    if isinstance(type_, str):
        type_ = HOOKS.get(type_) if type_ in HOOKS else None
    return getattr(type_, "on_error", "raise") == "warn"


def late_test_of(
    trainer: BaseTrainer,
    found: FoundRun,
    split: str,
    measured: Mapping[str, Any],
    weights: ChosenWeights,
    *,
    chosen: bool,
) -> LateTest:
    """Return a test as the result of its run is to have it.

    Args:
        trainer: The trainer that has made it.
        found: The run, and which of its checkpoints.
        split: The name of the evaluation.
        measured: What its evaluator has found.
        weights: Which of its weights were tested.
        chosen: Whether other weights were asked for than those that the run delivers.
    """
    inside = found.checkpoint.absolute().is_relative_to(found.folder.absolute())
    path = found.checkpoint.absolute().relative_to(found.folder.absolute()) if inside else found.checkpoint.absolute()
    about = {"checkpoint": str(path), "weights": weights.weights, "kind": weights.kind, "chosen": chosen, "step": 0}
    return late_test(trainer.runner, split, measured, **about)


def record(found: FoundRun, tested: LateTest, masks: Masks) -> Iterator[str]:
    """Add a test to result, report and trackers of its run, and say so; a run that goes on writes its result itself."""
    folder = found.folder
    try:
        run = read_run(folder)
        if run.state in ("running", "killed") or run.result is None:
            yield f"not recorded: the run is {run.state}, so it has no result yet"
            return
        tested = replace(tested, step=run.result.iterations)
        tested.record(folder)
        yield f"recorded in {folder / FILE_NAME}"
        results = {f"{tested.name}/{name}": masks.tree(one.to_json()) for name, one in tested.results.items()}
        if add_to_page(folder / REPORT, folder, results):
            yield f"recorded in {folder / REPORT}"
    except (ResultError, OSError) as error:
        yield f"not recorded: {error}"
        return
    for name, writer in trackers_of(load_config(found.config), folder):
        ended: Any = run.result.state
        if isinstance(writer, TrackerWriter) and not writer.go_on(ended, run.result.ended):
            if writer.mode != "disabled":
                yield f"not sent by {name}: this folder does not say which run it is there"
            continue
        place = ManyWriters([writer], masks)
        tested.write(place)
        place.close()
        problems = place.problem_lines()
        if problems:
            yield f"not sent by {name}: {problems[0]}"
        elif getattr(writer, "follows_later", False):
            yield f"kept for {name}, as the run itself has not been sent: `ignite-hooks send {folder}` sends both"
        else:
            yield f"handed to {name}"


def trackers_of(content: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, Writer]]:
    """Yield the trackers of a configuration, as hooks and as writers, with their names."""
    problems: list[Problem] = []
    settings = read_config(content, defaults=default_set(evaluates=True), problems=problems)
    for entry in settings.entries:
        wanted = dict(entry.wanted) if isinstance(entry.wanted, Mapping) else {}
        type_ = wanted.get("type")
        cls = HOOKS.get(type_) if isinstance(type_, str) and type_ in HOOKS else type_
        if isinstance(cls, type) and issubclass(cls, TrackerHook):
            hook: Any = build_hook(wanted)
            yield cls.__name__, hook.make_writer(folder)
    for writer in build_writers(settings, folder, problems):
        if isinstance(writer, TrackerWriter) or type(writer).__name__ == "TensorboardWriter":
            yield type(writer).__name__, writer
