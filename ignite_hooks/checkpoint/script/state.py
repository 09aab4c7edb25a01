"""The state of what a script has attached itself: saved with the run, and put back when it is resumed."""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_hooks.checkpoint.left_out import copied_state, missing_parts, with_todays, without_methods
from ignite_hooks.checkpoint.rng_state import loader_state, restore_loader
from ignite_hooks.checkpoint.script.metric_state import load_metric_state, metric_state
from ignite_hooks.checkpoint.script.objects import (
    LOCAL,
    STEP,
    VARIABLES,
    ScriptObject,
    hand_iterated,
    has_unknown_scheduler,
    in_words,
    is_reset_each_epoch,
    names_taken_from,
    script_objects,
    script_variables,
)
from ignite_hooks.checkpoint.script.own_generators import generator_state, set_generator_state
from ignite_hooks.checkpoint.script.own_state import OwnState
from ignite_hooks.checkpoint.script.progress import Progress, named
from ignite_hooks.checkpoint.script.search import Search
from ignite_hooks.model.optimizers import param_groups
from ignite_hooks.model.parts import each
from ignite_hooks.model.trained import is_optimizer

if TYPE_CHECKING:
    from ignite_hooks.checkpoint.left_out import LeftOut
    from ignite_hooks.model.trained import Mark
    from ignite_hooks.run.runner import Runner

PLACE = "script"

UNCHANGED = "unchanged"
"""In place of the kind of a module that is as it was at the start of the run: what it is recognised by is saved."""


class ScriptState:
    """Schedulers, handlers, metrics, generators and loaders of a script, in one run.

    Handlers of the script run between the resume and the first batch, and some begin anew: at the start of the run, and
    in mid-epoch at the start of an epoch that had started before. So what was saved is put back after those as well.

    Args:
        runner: The run.
        left_out: Takes what cannot be saved.
        former: That of the former run, whose modules may have changed already.
    """

    def __init__(self, runner: Runner, left_out: LeftOut, former: ScriptState | None = None) -> None:
        self._runner_ref, self._left_out = weakref.ref(runner), left_out
        self._marks: dict[str, Mark] = {} if former is None else former._marks
        self._changed: set[str] = set() if former is None else former._changed
        self._values: Progress = Progress() if former is None else former._values
        self._own: dict[str, OwnState] = {}
        self._saved: Mapping[str, Any] = {}
        self._missing: list[str] = []
        self._path: Path | None = None
        self._in_mid_epoch = self._is_starting = False
        self._unfit: set[str] = set()
        self._rates: list[dict[str, Any]] = []
        self._schedulers: list[dict[str, Any]] = []
        self._user: dict[str, Any] = {}
        self._variables: Mapping[str, Any] = {}
        self._told: set[str] = set()
        self._search: Search | None = None
        self.optimizers: list[Any] = []
        """The optimizers among what was last captured, which the script has not passed."""

    @property
    def _runner(self) -> Runner:
        runner = self._runner_ref()
        assert runner is not None
        return runner

    @contextlib.contextmanager
    def one_search(self) -> Iterator[None]:
        """Search once for all that is asked in here, where no code of the script runs."""
        self._search = Search(self._runner)
        try:
            yield
        finally:
            self._search = None

    def _found_now(self) -> Search:
        return self._search or Search(self._runner)

    # -- saving -----------------------------------------------------------------------------------------------

    def capture(self, *, in_mid_epoch: bool) -> tuple[dict[str, Any], list[str]]:
        """Return the state by the place of each object, as plain types and tensors, and the places it does without.

        Args:
            in_mid_epoch: Whether the epoch goes on: else metrics that begin anew with the next one are left out.
        """
        runner, found, missing = self._runner, dict[str, Any](), list[str]()
        search = self._found_now()
        self.optimizers = [one.thing for one in search.objects if is_optimizer(one.thing)]
        if values := self._values.state(search.variables, search.memory):
            found[VARIABLES] = {"kind": "variables", "state": values}
        for each_object in search.objects:
            key, thing, kind = each_object
            if kind == "metric" and not in_mid_epoch and is_reset_each_epoch(thing, runner.trainer):
                continue
            if kind == "module" and not self._is_to_save(each_object):
                if mark := self._marks.get(key):
                    found[key] = {"kind": UNCHANGED, "state": list(mark.values)}
                continue
            plain, parts = self._left_out.part(partial(self._state_of, each_object), f"{PLACE}.{key}")
            missing += parts
            if plain is not None:
                found[key] = {"kind": kind, "state": plain}
        iterated = hand_iterated(runner, search.held)
        for name in iterated:
            self._tell(
                f"checkpoints do not hold how far the script is in {name}, which it draws from itself: resuming will "
                "be approximate; make the iterator anew in each epoch, and save between epochs"
            )
        state: dict[str, Any] = {"objects": found, "iterated": iterated}
        return (state if found or iterated else {}), missing

    def _state_of(self, found: ScriptObject) -> Any:
        if found.kind == "metric":
            return metric_state(found.thing)
        if found.kind == "generator":
            return generator_state(found.thing)
        if found.kind == "loader":
            return loader_state(found.thing, self._own_of(found))
        return without_methods(found.thing.state_dict())

    def _is_to_save(self, found: ScriptObject) -> bool:
        """Return whether a module is trained, or has changed since the start: one that is frozen need not be saved."""
        if found.thing.is_sharded:
            if self._is_changed(found):
                self._tell(
                    f"checkpoints do not hold {found.words} of the script, which is sharded: "
                    "pass it as one of several models, model={...: ...}, to attach_hooks()"
                )
            return False
        return self._is_changed(found)

    def _is_changed(self, found: ScriptObject) -> bool:
        if found.thing.is_trained or found.key in self._changed:
            return True
        if found.thing.is_sharded:
            return False
        now = found.thing.mark()
        if self._marks.setdefault(found.key, now) != now:
            self._changed.add(found.key)
        return found.key in self._changed

    def _own_of(self, found: ScriptObject) -> OwnState:
        if found.key not in self._own:
            self._own[found.key] = OwnState(found.thing)
        return self._own[found.key]

    # -- resuming ---------------------------------------------------------------------------------------------

    def begin(self, objects: Iterable[ScriptObject]) -> None:
        """Note at the start of a run what changes from here on.

        Args:
            objects: What `script_objects` returns now.
        """
        self._saved, self._path, self._in_mid_epoch, self._is_starting = {}, None, False, True
        self._variables = {}
        self._unfit.clear()
        for found in objects:
            if found.kind == "loader":
                self._own_of(found)
            elif found.kind == "module":
                self._is_changed(found)

    def load(self, state: Mapping[str, Any], path: Path) -> None:
        """Put back what a checkpoint holds, as far as its objects are there already."""
        objects, self._missing = _objects_in(state), missing_parts(state)
        self._put_back(objects, path)

    def resume(self, state: Mapping[str, Any], path: Path) -> None:
        """Note to put back what was loaded once more when the run has started, and at its first batch."""
        data, saved = state.get("data"), dict(_objects_in(state))
        self._variables = saved.pop(VARIABLES, {}).get("state", {})
        # As it is now: hooks, and settings that have changed, may have had their say since it was loaded.
        now = {
            found.key: {"kind": found.kind, "state": copy.deepcopy(self._state_of(found))}
            for found in script_objects(self._runner)
            if found.key in saved and found.key not in self._unfit and found.kind != "module"
        }
        self._saved, self._path = {**saved, **now}, path
        keys = [key for key in state.get("trainer", {}).get("user", {}) if hasattr(self._runner.trainer.state, key)]
        self._user = {key: copy.deepcopy(getattr(self._runner.trainer.state, key)) for key in keys}
        self._in_mid_epoch = isinstance(data, Mapping) and data.get("at") == "iteration"

    def started(self) -> bool:
        """Put it back once, after the script's handlers of the start of a run, and name what fits nothing.

        Return False if that is done already.
        """
        if not self._is_starting:
            return False
        runner, search, self._is_starting = self._runner, self._found_now(), False
        # What handlers have set at the start of the run is no progress.
        self._values.begin(search.variables, partial(_names_taken_from, weakref.ref(runner)))
        if has_unknown_scheduler(runner, search.objects):
            self._tell("checkpoints do not hold the scheduler of this optimizer: pass scheduler=... to attach_hooks()")
        if self._path is not None:
            self._resume_started(search.objects, self._path)
            if self._search is not None:
                # What was put back may hold other objects.
                self._search = Search(runner)
        return True

    def _resume_started(self, found: list[ScriptObject], path: Path) -> None:
        runner = self._runner
        self._put_back(self._not_weights(), path)
        self._put_back_variables(is_first=True)
        self._put_back_user_keys()
        here = {each_object.key for each_object in found}
        for key in self._of_kind(without=UNCHANGED) - here:
            self._tell(
                f"{path.name} holds the state of {in_words(key)} of the script, which is not there now: {_remedy(key)}"
            )
        for missing in found:
            trained = missing.kind == "module" and missing.thing.is_trained
            if missing.key not in self._of_kind(without=UNCHANGED) and (missing.kind == "stateful" or trained):
                self._tell(
                    f"{path.name} holds no state of {missing.words} of the script, which begins anew: "
                    f"{_remedy(missing.key)}"
                )
        for other in found:
            if other.key in self._of_kind(UNCHANGED) and not other.thing.is_trained:
                self._compare(other)
        if self._in_mid_epoch:
            self._rates = [
                {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
                for group in param_groups(runner.optimizer)
            ]
            self._schedulers = [copied_state(one) for one in _with_state(runner.scheduler)]

    def first_batch(self) -> None:
        """Put it back after the handlers of an epoch that had started before it was resumed; do nothing otherwise."""
        if self._path is not None and self._in_mid_epoch:
            runner = self._runner
            self._put_back(self._not_weights(), self._path)
            self._put_back_variables()
            for group, rates in zip(param_groups(runner.optimizer), self._rates, strict=False):
                _set_values(group, rates)
            for one, state in zip(_with_state(runner.scheduler), self._schedulers, strict=False):
                one.load_state_dict(state)
            self._put_back_user_keys()
        self._saved, self._path, self._rates, self._schedulers, self._user = {}, None, [], [], {}
        self._variables = {}

    def _compare(self, other: ScriptObject) -> None:
        """Name a module that is not saved, as it had not changed, and has other weights in this process."""
        if self._path is not None and list(other.thing.mark().values) != self._saved[other.key]["state"]:
            self._tell(
                f"{self._path.name} does not hold {other.words} of the script, which had not changed and is another "
                "now: resuming is approximate; give it the same weights at every start, or pass it as one of several "
                "models, model={...: ...}, to attach_hooks()"
            )

    def _of_kind(self, kind: str = "", *, without: str = "") -> set[str]:
        """Return the keys of what the checkpoint holds, of one kind or of all but one."""
        kinds = {key: one.get("kind") for key, one in self._saved.items() if isinstance(one, Mapping)}
        return {key for key, one in kinds.items() if (one == kind if kind else one != without)}

    def _put_back_user_keys(self) -> None:
        for key, value in self._user.items():
            setattr(self._runner.trainer.state, key, copy.deepcopy(value))

    def _put_back_variables(self, *, is_first: bool = False) -> None:
        """Put back what the script keeps in variables; say once what that was, and what could not be."""
        saved = self._variables
        if not saved:
            return
        runner = self._runner
        gone = self._values.put_back(script_variables(runner, script_objects(runner)), saved)
        if not is_first or self._path is None:
            return
        unkept, logs = saved.get("unkept", []), saved.get("logs", [])
        name = self._path.name
        kept = [place for place in (*saved.get("values", {}), *saved.get("order", {})) if place not in gone]
        if kept:
            runner.logger.info("variables of the script are as in %s: %s", name, named(kept))
        if logs:
            runner.logger.info("logs of the script, which only become longer, begin anew: %s", named(logs))
        if gone:
            self._tell(f"{name} holds variables of the script that are not there now: {named(gone)}")
        if unkept:
            self._tell(
                f"{name} does not hold {named(unkept)} of the script, which had changed: resuming is approximate; "
                "give what keeps it state_dict() and load_state_dict(), and pass it to attach_hooks()"
            )

    def _not_weights(self) -> dict[str, Any]:
        """Return what handlers of the script may have begun anew at the start: the weights are what they are."""
        return {key: saved for key, saved in self._saved.items() if not _is_weights(key, saved)}

    def _put_back(self, objects: Mapping[str, Any], path: Path) -> None:
        for found in script_objects(self._runner) if objects else ():
            saved = objects.get(found.key)
            if not isinstance(saved, Mapping) or saved.get("kind") != found.kind or found.key in self._unfit:
                continue
            try:
                self._load(found, copy.deepcopy(saved["state"]))
            except Exception as error:
                self._unfit.add(found.key)
                self._runner.logger.warning(
                    "the state of %s in %s does not fit the script, where it begins anew: %s: %s",
                    found.words,
                    path.name,
                    type(error).__name__,
                    error,
                )

    def _load(self, found: ScriptObject, state: Any) -> None:
        if found.kind == "metric":
            load_metric_state(found.thing, state)
        elif found.kind == "generator":
            set_generator_state(found.thing, state)
        elif found.kind == "loader":
            restore_loader(found.thing, state)
        else:
            place = f"{PLACE}.{found.key}"
            found.thing.load_state_dict(with_todays(state, place, self._missing, found.thing.state_dict))
            forget_deleted_files(found.thing)
            if found.kind == "module":
                self._changed.add(found.key)

    def _tell(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._runner.logger.warning("%s", words)


def _names_taken_from(runner: weakref.ref[Runner]) -> set[str]:
    there = runner()
    return set() if there is None else names_taken_from(there)


def _objects_in(state: Mapping[str, Any]) -> Mapping[str, Any]:
    script = state.get(PLACE)
    objects = script.get("objects") if isinstance(script, Mapping) else None
    return objects if isinstance(objects, Mapping) else {}


def local_objects(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the objects whose state differs between ranks."""
    return {key: saved for key, saved in state.get("objects", {}).items() if saved["kind"] in LOCAL}


def of_this_rank(state: dict[str, Any], mine: object) -> dict[str, Any]:
    """Return a checkpoint with the script's objects of this rank; None where another number of ranks saved it."""
    script, objects = state.get(PLACE), _objects_in(state)
    if not isinstance(script, Mapping) or not objects:
        return state
    alike = {
        key: saved for key, saved in objects.items() if isinstance(saved, Mapping) and saved.get("kind") not in LOCAL
    }
    local = mine if isinstance(mine, Mapping) else {}
    return {**state, PLACE: {**script, "objects": {**alike, **local}}}


def _is_weights(key: str, saved: Any) -> bool:
    return key.startswith(f"{STEP}.weights:") or (isinstance(saved, Mapping) and saved.get("kind") == "module")


def holds_weights(state: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint holds weights, of the model of a run or of others that the script trains."""
    return "state_dict" in state or any(_is_weights(key, saved) for key, saved in _objects_in(state).items())


def _remedy(key: str) -> str:
    if key.startswith(f"{STEP}."):
        return "name it in the trainer's step as before"
    return "pass scheduler=... to attach_hooks()" if "cheduler" in key or "LR" in key else "attach it as before"


def _with_state(scheduler: Any) -> list[Any]:
    return [one for one in each(scheduler) if hasattr(one, "state_dict") and hasattr(one, "load_state_dict")]


def _set_values(group: dict[str, Any], values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if hasattr(group.get(name), "fill_") and hasattr(value, "item"):
            # A tensor stays in place, as a compiled optimizer reads it.
            group[name].copy_(value)
        else:
            group[name] = value


def forget_deleted_files(handler: Any) -> None:
    """Make Ignite's `Checkpoint` forget files that are gone: it would fail when it comes to delete them."""
    from ignite.handlers import Checkpoint
    from ignite.handlers.checkpoint import DiskSaver

    if isinstance(handler, Checkpoint) and isinstance(handler.save_handler, DiskSaver):
        folder = Path(handler.save_handler.dirname)
        handler._saved = [item for item in handler._saved if (folder / item.filename).exists()]
