"""Settings of optimizers and schedulers that changed since the run first started: applied or refused, always told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ignite_hooks.checkpoint.left_out import without_methods
from ignite_hooks.checkpoint.script.objects import ScriptObject, driven_by, script_objects, script_schedulers
from ignite_hooks.errors import CheckpointError
from ignite_hooks.model.parts import by_part, each, is_several, parts_of, with_saved

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

ResumeSettings = Literal["config", "checkpoint", "refuse"]
RATES = ("lr", "initial_lr", "max_lr", "min_lr")
"""The values of a group that a changed rate scales."""
_TELLING = {"betas", "momentum", "rho", "alpha", "etas", "lambd", "lr_decay", "max_iter"}
"""The names by which kinds of optimizers can be told apart in files that do not name the kind."""


class Change(NamedTuple):
    """A value of a parameter group that is another one than when the run first started."""

    group: int
    name: str
    before: Any
    now: Any
    part: str = ""
    """The name of the optimizer among several."""

    def __str__(self) -> str:
        optimizer = f"optimizer.{self.part}" if self.part else "optimizer"
        return f"{optimizer}.param_groups[{self.group}].{self.name} {self.before} -> {self.now}"


class ScheduleChange(NamedTuple):
    """A setting of a scheduler that is another one than when the run first started."""

    owner: str
    """Its name among the schedulers of the run."""
    name: str
    """The place of the setting in its state."""
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.owner}.{self.name} {self.before} -> {self.now}"


PROGRESS = {"base_lrs", "last_epoch", "event_index", "lr", "best"}
"""What the state of a scheduler holds besides settings and what begins with an underscore."""


def scheduler_settings(runner: Runner, objects: Iterable[ScriptObject] | None = None) -> dict[str, dict[str, Any]]:
    """Return the kinds of the schedulers of a run and the numbers and text in their states, by name and place.

    At the first start of a run, this is what they were made with.

    Args:
        runner: The run.
        objects: What `script_objects` has just returned, if anything.
    """
    found = {}
    for name, scheduler in _schedulers(runner, objects).items():
        state, _ = runner.checkpoints.left_out.part(partial(_state_of, scheduler), name)
        found[name] = {"kind": type(scheduler).__name__, "values": dict(_leaves(state))}
    return found


def _state_of(scheduler: Any) -> Any:
    return without_methods(scheduler.state_dict())


def _schedulers(runner: Runner, objects: Iterable[ScriptObject] | None = None) -> dict[str, Any]:
    given = {f"scheduler.{name}" if name else "scheduler": one for name, one in parts_of(runner.scheduler).items()}
    found = {name: one for name, one in given.items() if has_state(one)}
    objects = script_objects(runner) if objects is None else objects
    return found | {one.key: one.thing for one in objects if driven_by(one.thing)}


def has_state(thing: Any) -> bool:
    """Return whether a thing saves and restores a state."""
    return all(callable(getattr(type(thing), name, None)) for name in ("state_dict", "load_state_dict"))


def _inner(value: Any) -> Iterator[tuple[str, Any]] | None:
    """Return the entries of a state that holds others, by name; None for a value."""
    if isinstance(value, Mapping):
        counted = bool(value) and all(type(item) is int for pair in value.items() for item in pair)
        return None if counted else ((str(key), item) for key, item in value.items())
    if isinstance(value, (list, tuple)) and any(isinstance(item, (Mapping, list, tuple)) for item in value):
        return ((str(index), item) for index, item in enumerate(value))
    return None


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    inner = _inner(value)
    if inner is None:
        # The milestones of MultiStepLR are counted.
        plain = sorted(Counter(value).elements()) if isinstance(value, Mapping) else _plain(value)
        if plain is not _NOT_PLAIN:
            yield place, plain
        return
    for name, item in inner:
        if name not in PROGRESS and (not name.startswith("_") or name in ("_schedulers", "_milestones")):
            yield from _leaves(item, f"{place}.{name}" if place else name)


def _schedule_changes(state: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[ScheduleChange]:
    meta = state.get("meta")
    before = meta.get("schedulers") if isinstance(meta, Mapping) else None
    for owner, today in now.items() if isinstance(before, Mapping) else ():
        then = before.get(owner) if isinstance(before, Mapping) else None
        if not isinstance(then, Mapping) or not isinstance(then.get("values"), Mapping):
            continue
        if then.get("kind") != today["kind"]:
            yield ScheduleChange(owner, "kind", then.get("kind"), today["kind"])
            continue
        both = [name for name in today["values"] if name in then["values"]]
        for name in both:
            if _value(then["values"][name]) != _value(today["values"][name]):
                yield ScheduleChange(owner, name, then["values"][name], today["values"][name])


def _is_applied(runner: Runner, change: Change | ScheduleChange, loaded: Mapping[str, Any]) -> bool:
    """Return whether a scheduler got its new setting after it was loaded, by somebody who has told of it."""
    if isinstance(change, Change) or change.owner != "scheduler" or change.name == "kind":
        return False
    both = (loaded.get("scheduler"), _schedulers(runner)[change.owner].state_dict())
    saved, now = (dict(_leaves(state)).get(change.name) for state in both)
    return bool(saved != now == change.now)


def _reschedule(runner: Runner, changes: Iterable[ScheduleChange]) -> list[ScheduleChange]:
    """Give schedulers the settings of today; return the changes that cannot be applied."""
    kept, owners = list[ScheduleChange](), _schedulers(runner)
    for change in changes:
        scheduler = owners[change.owner]
        state = scheduler.state_dict()
        if dict(_leaves(state)).get(change.name, _NOT_PLAIN) == change.before:
            scheduler.load_state_dict(_replaced(state, change.name.split("."), change.now))
        else:
            # It has moved on since, as the size of a cycle that grows.
            kept.append(change)
    return kept


def _replaced(state: Any, place: list[str], value: Any) -> Any:
    if not place:
        return Counter(value) if isinstance(state, Mapping) else value
    first, *rest = place
    if isinstance(state, Mapping):
        return {**state, first: _replaced(state[first], rest, value)}
    items = [_replaced(item, rest, value) if str(number) == first else item for number, item in enumerate(state)]
    return tuple(items) if isinstance(state, tuple) else items


def optimizer_settings(optimizer: Any) -> dict[str, Any] | None:
    """Return the kind of an optimizer and the values of its groups, as plain types; None for anything else.

    Of several optimizers, the settings of each by name.
    """
    if is_several(optimizer):
        return by_part(_settings_of, optimizer) or None
    return _settings_of(optimizer)


def _settings_of(optimizer: Any) -> dict[str, Any] | None:
    groups = getattr(optimizer, "param_groups", None)
    if not isinstance(groups, list):
        return None
    names = list(getattr(optimizer, "defaults", None) or {})
    return {
        "kind": type(optimizer).__name__,
        "groups": [
            {"params": len(group["params"])}
            | {name: value for name in names if name in group and (value := _plain(group[name])) is not _NOT_PLAIN}
            for group in groups
        ],
    }


def check_optimizer(state: Mapping[str, Any], optimizer: Any, path: Path) -> None:
    """Raise `CheckpointError` if a checkpoint holds the state of an optimizer of another kind or with other groups."""
    if "optimizer" in state:
        known = _recorded(state, is_several(optimizer))
        for name, one, saved in with_saved(optimizer, state["optimizer"]):
            _check_one(saved, known.get(name), one, path)


def _recorded(state: Mapping[str, Any], several: bool) -> Mapping[str, Any]:
    """Return the `optimizer_settings` in a checkpoint, by the name of each optimizer."""
    meta = state.get("meta")
    found = (meta.get("optimizer") if isinstance(meta, Mapping) else None) or {}
    return found if several else {"": found}


def _check_one(saved: Any, known: Any, optimizer: Any, path: Path) -> None:
    now = _settings_of(optimizer)
    if not isinstance(saved, Mapping) or not isinstance(saved.get("param_groups"), list) or now is None:
        return
    kind = (known or {}).get("kind")
    remedy = "give this run the optimizer it was saved with, or begin a new run"
    added = "; call add_param_group() before trainer.run() for groups that the script had added during the run"
    if kind is not None and kind != now["kind"]:
        raise CheckpointError(f"{path} holds the state of {kind}, and this run has {now['kind']}: {remedy}")
    groups = saved["param_groups"]
    sizes = [[len(group["params"]) for group in each] for each in (groups, optimizer.param_groups)]
    if sizes[0] != sizes[1]:
        raise CheckpointError(
            f"{path} does not fit the optimizer of this run: it holds {now['kind']} with {_groups(sizes[0])}, "
            f"and this run has {_groups(sizes[1])}: {remedy}{added if len(sizes[0]) > len(sizes[1]) else ''}"
        )
    names = [set().union(*each) & _TELLING for each in (groups, optimizer.param_groups)]
    if kind is None and names[0] != names[1]:
        raise CheckpointError(
            f"{path} holds the state of an optimizer with {_listed(names[0])}, and {now['kind']} of this run has "
            f"{_listed(names[1])}: {remedy}"
        )


def changes_since(
    state: Mapping[str, Any], now: Mapping[str, Any] | None, schedulers: Mapping[str, Any] | None = None
) -> list[Change | ScheduleChange]:
    """Return the values that are others than when the run of a checkpoint first started.

    Args:
        state: The checkpoint.
        now: The `optimizer_settings` of this run at its start.
        schedulers: The `scheduler_settings` of this run at its start.
    """
    return [*_optimizer_changes(state, now), *_schedule_changes(state, schedulers or {})]


def _optimizer_changes(state: Mapping[str, Any], now: Mapping[str, Any] | None) -> list[Change]:
    if now is None or "optimizer" not in state:
        return []
    several = not isinstance(now.get("groups"), list)
    before, found = _recorded(state, several), list[Change]()
    for part, settings in (now if several else {"": now}).items():
        groups = (before.get(part) or {}).get("groups", ())
        for number, (then, today) in enumerate(zip(groups, (settings or {}).get("groups", ()), strict=False)):
            # How many weights a group has is no setting: `check_optimizer` compares it.
            names = [name for name in today if name in then and name != "params"]
            both = {name: (_value(then[name]), _value(today[name])) for name in names}
            found += [Change(number, name, old, new, part) for name, (old, new) in both.items() if old != new]
    return found


def refuse(changes: list[Change | ScheduleChange], mode: ResumeSettings, path: Path) -> None:
    """Raise `CheckpointError` if there are changes and the configuration refuses them."""
    if changes and mode == "refuse":
        raise CheckpointError(
            f"resume_settings is 'refuse', and settings have changed since the run of {path} first started: "
            f"{_joined(changes)}: restore them, or set resume_settings to 'config' or 'checkpoint'"
        )


def apply(
    runner: Runner,
    changes: list[Change | ScheduleChange],
    mode: ResumeSettings,
    path: Path,
    loaded: Mapping[str, Any],
) -> None:
    """Apply the changes to the optimizer and scheduler that have just been restored, and tell them in one line."""
    changes = [change for change in changes if not _is_applied(runner, change, loaded)]
    if not changes:
        return
    if mode == "checkpoint":
        runner.logger.warning(
            "settings have changed since the run of %s first started, and resume_settings 'checkpoint' keeps the "
            "former ones: %s",
            path.name,
            _joined(changes),
        )
        return
    kept = _reschedule(runner, [change for change in changes if isinstance(change, ScheduleChange)])
    for group, name, before, now, part in [change for change in changes if isinstance(change, Change)]:
        optimizer = parts_of(runner.optimizer)[part]
        if name == "lr" and before and isinstance(before, (int, float)) and isinstance(now, (int, float)):
            _scale(optimizer, [*each(runner.scheduler), *script_schedulers(runner)], group, now / before)
        else:
            _set(optimizer.param_groups[group], name, now)
    if kept:
        runner.logger.warning(
            "settings of schedulers have changed since the run of %s first started, and cannot be applied in its "
            "middle: it goes on with the former ones: %s",
            path.name,
            _joined(kept),
        )
    if len(kept) == len(changes):
        return
    runner.logger.warning(
        "settings have changed since the run of %s first started, and are applied from here on: %s",
        path.name,
        _joined(change for change in changes if change not in kept),
    )


def _scale(optimizer: Any, schedulers: list[Any], number: int, factor: float) -> None:
    group = optimizer.param_groups[number]
    for name in RATES:
        if name in group:
            _set(group, name, group[name] * factor)
    rest = [one for one in schedulers if getattr(one, "optimizer", optimizer) is optimizer]
    seen = list[Any]()
    while rest:
        scheduler = rest.pop()
        if scheduler is None or any(scheduler is other for other in seen):
            continue
        seen.append(scheduler)
        for name in ("base_lrs", "_last_lr"):
            rates = getattr(scheduler, name, None)
            if isinstance(rates, list) and number < len(rates):
                setattr(scheduler, name, [*rates[:number], rates[number] * factor, *rates[number + 1 :]])
        rest += list(getattr(scheduler, "_schedulers", None) or [])


def _set(group: dict[str, Any], name: str, value: Any) -> None:
    import torch

    old = group.get(name)
    if isinstance(old, torch.Tensor):
        # A captured graph reads this tensor.
        old.fill_(float(value))
    else:
        group[name] = value


_NOT_PLAIN = object()


def _plain(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, (tuple, list)):
        items = [_plain(item) for item in value]
        return _NOT_PLAIN if any(item is _NOT_PLAIN for item in items) else items
    return value if value is None or isinstance(value, (bool, int, float, str)) else _NOT_PLAIN


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _joined(changes: Iterable[Change | ScheduleChange]) -> str:
    return ", ".join(map(str, changes))


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none of its settings"


def _groups(sizes: list[int]) -> str:
    return f"{len(sizes)} parameter group{'s' * (len(sizes) != 1)} of {', '.join(map(str, sizes))} tensors"
