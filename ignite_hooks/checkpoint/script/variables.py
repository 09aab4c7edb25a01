"""Where a script keeps values itself: closures, globals, attributes of objects, of its modules and of its engines."""

from __future__ import annotations

import enum
import types
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from ignite_hooks.checkpoint.script.inline_attributes import may_have_others
from ignite_hooks.checkpoint.script.kinds import CHANGED_IN_PLACE, SCALARS, is_record
from ignite_hooks.checkpoint.script.places import name_of
from ignite_hooks.checkpoint.script.plain_values import CANNOT, refill
from ignite_hooks.checkpoint.script.reachable import (
    GLOBALS,
    class_attributes,
    global_names,
    is_installed,
    is_of_library,
    is_of_script,
    members_named,
    package_of,
    reach,
    slots_of,
    worth_entering_in_script,
)
from ignite_hooks.model.wrapping import unwrapped

MOST_ITEMS = 64
"""The most entries of a mapping that are variables each; a longer one is one value."""


class Variable(NamedTuple):
    """A place where a script keeps a value."""

    place: str
    get: Callable[[], Any]
    set: Callable[[Any], None]
    entries_of: dict[str, Any] | None = None
    """The mapping of which it is an entry that a script may move, or take out by setting `CANNOT`."""


def variables(
    roots: Mapping[str, Any],
    modules: Mapping[str, Any],
    states: Mapping[str, Any],
    seen: set[int],
    not_theirs: Collection[str] = (),
) -> Iterator[Variable]:
    """Yield the variables of a script, each once.

    Args:
        roots: The functions and objects that the script has attached, by place.
        modules: The modules of its models, by name.
        states: The engines and their states, by place.
        seen: The ids of objects that are saved in another way.
        not_theirs: The attributes of engines and states that are not the script's.
    """
    from ignite.engine import Engine

    passed: set[tuple[int, str | None]] = set()
    engines: dict[str, Any] = {}
    packages = {package_of(thing) for root in roots.values() for thing in (root, getattr(root, "__self__", root))}

    def each_once(found: _Found) -> Iterator[Variable]:
        for variable, owner in found:
            if owner not in passed:
                passed.add(owner)
                yield variable

    for place, root in roots.items():
        for found in reach({place: root}, _enter, seen):
            # The attributes of an installed library are not the script's, unless the step is in that library.
            package = package_of(found.thing)
            if isinstance(found.thing, Engine):
                engines[f"{found.place}.state"] = found.thing.state
            elif package in packages or not is_installed(package):
                yield from each_once(_variables_of(found.place, found.thing))
    for name, module in modules.items():
        yield from each_once(_of_module(f"model.{name}", module))
    # An engine that nobody has passed comes last: the others are known by name.
    for place, state in [*states.items(), *engines.items()]:
        yield from each_once(_attributes(place, state, skip=not_theirs))


def code_of(roots: Mapping[str, Any]) -> Iterator[types.CodeType]:
    """Yield the code of the functions that a script has attached, or that these use.

    Args:
        roots: The functions and objects, by place.
    """
    kinds = set[type]()
    for found in reach(roots, _enter):
        if isinstance(found.thing, types.FunctionType):
            yield found.thing.__code__
        elif not isinstance(found.thing, types.MethodType):
            kinds.update(found.thing.__mro__ if isinstance(found.thing, type) else type(found.thing).__mro__)
    for kind in kinds:
        if is_of_script(kind.__module__):
            methods = (getattr(method, "__func__", method) for method in list(vars(kind).values()))
            yield from (method.__code__ for method in methods if isinstance(method, types.FunctionType))


def _enter(thing: object) -> bool:
    import torch
    from ignite.metrics import Metric

    if isinstance(thing, (torch.utils.data.Dataset, torch.utils.data.Sampler, torch.utils.data.DataLoader, Metric)):
        return False
    if isinstance(thing, enum.Enum) or is_record(thing):  # a value
        return False
    if isinstance(thing, (list, tuple, deque)):
        # What a list holds has no name of its own: only a list with objects is a part of the script, any other a value.
        return not all(
            isinstance(item, (*SCALARS, list, tuple, dict, torch.Tensor)) or is_record(item) for item in thing
        )
    return worth_entering_in_script(thing)


_Found = Iterator[tuple[Variable, tuple[int, str | None]]]
"""Variables, each with what tells it from others: what holds it, and its name there; None for all of a collection."""


def _variables_of(place: str, thing: Any) -> _Found:
    """Yield the variables of one object."""
    if isinstance(thing, types.FunctionType):
        for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=False):
            yield _of_cell(f"{place}.{name}", cell), (id(cell), "")
            yield from _members(f"{place}.{name}", _content_of(cell), thing.__code__)
        yield from _globals(place, thing.__code__, thing.__globals__)
        for name in [name for name in vars(thing) if not name.startswith("_")]:
            yield _of_mapping(f"{place}.{name}", vars(thing), name), (id(vars(thing)), name)
    elif isinstance(thing, type):
        yield from _of_class(place, thing)
        yield from _globals_of_methods(place, thing)
    elif isinstance(thing, CHANGED_IN_PLACE):
        yield _in_place(place, thing), (id(thing), None)
        if _has_entries(thing):
            yield from _entries(place, thing, may_lose_some=True)
    elif not isinstance(thing, (types.MethodType, tuple)) and _enter(thing):
        is_ours_to_read = not is_of_library(thing) or type(thing).__name__ in ("SimpleNamespace", "Namespace")
        if is_ours_to_read:
            yield from _attributes(place, thing)
            yield from ((_of_slot(place, thing, name), (id(thing), name)) for name in slots_of(thing))
            for kind in type(thing).__mro__:
                yield from _of_class(place, kind)
                yield from _globals_of_methods(place, kind)


def _of_module(place: str, module: Any) -> _Found:
    """Yield the variables of one module of a model, and its buffers that its state does not hold."""
    for name in module._non_persistent_buffers_set:
        yield _of_mapping(f"{place}.{name}", module._buffers, name), (id(module._buffers), name)
    if not is_of_library(module):
        yield from _attributes(place, module, skip=_of_every_module())
        yield from _of_class(place, type(module))
    else:
        # Its rates, such as that of a dropout.
        for name, value in list(vars(module).items()):
            if type(value) is float:
                yield _of_mapping(f"{place}.{name}", vars(module), name), (id(vars(module)), name)


def _of_cell(place: str, cell: types.CellType) -> Variable:
    return Variable(place, lambda: _single(_content_of(cell)), lambda value: setattr(cell, "cell_contents", value))


def _content_of(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return CANNOT


def _globals_of_methods(place: str, kind: type) -> _Found:
    for method in list(vars(kind).values()):
        method = getattr(method, "__func__", method)
        if isinstance(method, types.FunctionType):
            yield from _globals(place, method.__code__, method.__globals__)


def _globals(place: str, code: types.CodeType, names: dict[str, Any]) -> _Found:
    for name in global_names(code, names):
        yield _of_mapping(f"{place}.{GLOBALS}.{name}", names, name), (id(names), name)
        yield from _members(f"{place}.{GLOBALS}.{name}", names[name], code)


def _members(place: str, module: Any, code: types.CodeType) -> _Found:
    """Yield the variables of a module of the script that code names."""
    for member, _ in members_named("", module, code):
        name = member.removeprefix(".")
        yield _of_mapping(f"{place}.{name}", vars(module), name), (id(vars(module)), name)


def _of_class(place: str, kind: type) -> _Found:
    for name, _ in class_attributes(kind):
        get = partial(_of_vars, kind, name)
        yield Variable(f"{place}.{name}", get, partial(setattr, kind, name)), (id(kind), name)


def _of_vars(kind: type, name: str) -> Any:
    return _single(vars(kind).get(name, CANNOT))


def _of_slot(place: str, thing: Any, name: str) -> Variable:
    put = partial(object.__setattr__, thing, name)  # also of a frozen dataclass
    return Variable(f"{place}.{name}", lambda: _single(getattr(thing, name, CANNOT)), put)


def _set_entry(thing: Any, entry: tuple[str, Any]) -> None:
    thing[entry[0]] = entry[1]


def _set_attribute(thing: Any, attribute: tuple[str, Any]) -> None:
    setattr(thing, *attribute)


def _entries(place: str, thing: Any, skip: Collection[str] = (), *, may_lose_some: bool = False) -> _Found:
    """Yield the entries of a mapping, and a place for those that come later."""
    entries_of = thing if may_lose_some else None
    put = partial(_set_entry, thing)
    yield Variable(f"{place}.", lambda: CANNOT, put, entries_of), (-id(thing), None)
    for name in list(thing):
        if isinstance(name, str) and name not in skip:
            yield _of_mapping(f"{place}.{name_of(name)}", thing, name, entries_of), (id(thing), name)


def _attributes(place: str, thing: Any, skip: Collection[str] = ()) -> _Found:
    if skip and not may_have_others(thing, skip):
        yield Variable(f"{place}.", lambda: CANNOT, partial(_set_attribute, thing)), (-id(thing), None)
        return
    attributes = getattr(thing, "__dict__", None)
    if type(attributes) is dict:
        yield from _entries(place, attributes, skip)


def _of_mapping(place: str, mapping: Any, name: str, entries_of: dict[str, Any] | None = None) -> Variable:
    def put(value: Any) -> None:
        if value is CANNOT:
            del mapping[name]
        else:
            mapping[name] = value

    return Variable(place, lambda: _single(mapping.get(name, CANNOT)), put, entries_of)


def _single(value: Any) -> Any:
    """Return a value; `CANNOT` for a collection that changes in place, which is a variable of its own."""
    return CANNOT if isinstance(value, CHANGED_IN_PLACE) else value


def _has_entries(thing: Any) -> bool:
    """Return whether the entries of a collection are variables each: only they may be objects with variables."""
    return type(thing) is dict and len(thing) <= MOST_ITEMS and all(isinstance(name, str) for name in thing)


def _in_place(place: str, thing: Any) -> Variable:
    def put(value: Any) -> None:
        if value is not thing:
            refill(thing, value.items() if isinstance(value, dict) else value)

    return Variable(place, lambda: CANNOT if _has_entries(thing) else thing, put)


def _of_every_module() -> Collection[str]:
    import torch

    return {*vars(torch.nn.Module()), "training"}


def modules_of(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the modules of a model, by name."""
    import torch

    if isinstance(model, torch.nn.Module):
        for name, module in unwrapped(model).named_modules():
            yield name or type(module).__name__, module


def frozen_weights(name: str, model: Any) -> Variable:
    """Return which weights of a model are frozen, as a script may change that during a run.

    Args:
        name: The place of the model.
        model: The model.
    """
    weights = dict(unwrapped(model).named_parameters())

    def put(frozen: Any) -> None:
        for key, weight in weights.items():
            weight.requires_grad_(key not in frozen)

    return Variable(
        f"{name}.requires_grad", lambda: tuple(key for key, one in weights.items() if not one.requires_grad), put
    )
