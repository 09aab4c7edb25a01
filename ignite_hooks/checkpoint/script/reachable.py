"""The objects that a script's objects and functions hold: attributes, closures, globals that they name."""

from __future__ import annotations

import dis
import enum
import functools
import sys
import types
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ignite_hooks.checkpoint.script.places import name_of, name_of_any

MOST_OBJECTS, DEEPEST, LONGEST = 1000, 8, 64
"""Where a search ends: a data set may hold millions of samples, which are data and no state."""

GLOBALS = "globals"
"""What the place of a global begins with, after that of the function that names it."""

_NEVER_ENTERED = (types.ModuleType, type, str, bytes, bytearray, memoryview, int, float, complex, range, type(None))
_PLAIN = frozenset((type(None), bool, int, float, str, bytes, types.ModuleType))
"""The most frequent of these types."""
_OF_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
_MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
_ALWAYS_ENTERED = frozenset((*_FUNCTIONS, dict, list, tuple))
"""The most frequent types of what is saved nowhere else."""


class Reached(NamedTuple):
    """An object, and its place: the names that lead to it."""

    place: str
    thing: Any


def reach(roots: Mapping[str, Any], enter: Any = None, seen: set[int] | None = None) -> Iterator[Reached]:
    """Yield the roots and all that they hold, each object once, nearest first.

    Args:
        roots: Where to begin, by place.
        enter: Takes an object and returns whether to search what it holds; all by default.
        seen: The ids of objects that earlier searches have found, which are left out.
    """
    seen = set() if seen is None else seen
    most = len(seen) + MOST_OBJECTS
    rest = deque(("", place, thing, 0) for place, thing in roots.items())
    while rest and len(seen) < most:
        before, name, thing, depth = rest.popleft()
        if id(thing) in seen or (isinstance(thing, _NEVER_ENTERED) and not is_class_of_script(thing)):
            continue
        seen.add(id(thing))
        place = before + name
        yield Reached(place, thing)
        if depth < DEEPEST and (enter is None or enter(thing)):
            inner = f"{place}."
            rest.extend((inner, name, held, depth + 1) for name, held in holds(thing) if type(held) not in _PLAIN)


def holds(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds, by name: its attributes, the items of a short collection, what a function names."""
    if isinstance(thing, _FUNCTIONS):
        yield from _named_by(thing)
    elif isinstance(thing, type):
        yield from class_attributes(thing)
        yield from _named_by_methods(thing)
    elif isinstance(thing, Mapping) and not _has_attributes(thing):
        if len(thing) <= LONGEST and type(thing) in _MAPPINGS:
            keys = list(thing)
            yield from ((name_of_any(key, at, keys), thing[key]) for at, key in enumerate(keys))
    elif isinstance(thing, (list, tuple, deque)):
        if len(thing) <= LONGEST:
            yield from ((str(index), item) for index, item in enumerate(thing))
    else:
        attributes = getattr(thing, "__dict__", None)
        if type(attributes) is dict:
            yield from ((name_of(name), held) for name, held in list(attributes.items()))
        # Most objects are of a library, whose classes hold nothing of the script.
        if kinds := [kind for kind in type(thing).__mro__ if not _is_library(kind.__module__)]:
            yield from ((name, getattr(thing, name)) for name in slots_of(thing))
            for kind in kinds:
                yield from class_attributes(kind)
                yield from _named_by_methods(kind)


def _has_attributes(thing: Mapping[Any, Any]) -> bool:
    """Return whether a mapping keeps what it holds in attributes."""
    kind = type(thing)
    return kind in (UserDict, ChainMap) or (not isinstance(thing, dict) and is_of_script(kind.__module__))


def _named_by_methods(kind: type) -> Iterator[tuple[str, Any]]:
    if not _is_library(kind.__module__):
        for method in list(vars(kind).values()):
            method = getattr(method, "__func__", method)  # of a method of the class, or a static one
            if isinstance(method, types.FunctionType):
                yield from _globals_named_by(method.__code__, method.__globals__)


def slots_of(thing: object) -> list[str]:
    """Return the names of the slots of an object that hold something, of the classes of a script."""
    kinds = [kind for kind in type(thing).__mro__ if "__slots__" in vars(kind) and is_of_script(kind.__module__)]
    names = [name for kind in kinds for name in _as_names(vars(kind)["__slots__"])]
    return [name for name in names if name not in ("__dict__", "__weakref__") and hasattr(thing, name)]


def _as_names(slots: Any) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def class_attributes(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a class of a script that are values and no part of its definition."""
    if is_class_of_script(kind):
        for name, value in list(vars(kind).items()):
            if not name.startswith("__") and not hasattr(type(value), "__get__"):
                yield name, value


def is_class_of_script(thing: object) -> bool:
    """Return whether a thing is a class that a script defines; the members of an enumeration never change."""
    return isinstance(thing, type) and is_of_script(thing.__module__) and not issubclass(thing, enum.Enum)


def _named_by(function: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(function, types.MethodType):
        yield "__self__", function.__self__
        yield "__func__", function.__func__
    elif isinstance(function, functools.partial):
        yield "func", function.func
        yield from ((str(index), item) for index, item in enumerate(function.args))
        yield from function.keywords.items()
    else:
        if (wrapped := getattr(function, "__wrapped__", None)) is not None:
            yield "__wrapped__", wrapped
        yield from ((name, value) for name, value in vars(function).items() if not name.startswith("_"))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                value = cell.cell_contents
            except ValueError:
                # A variable that is not assigned yet.
                continue
            yield name, value
            yield from members_named(name, value, function.__code__)
        yield from ((str(index), item) for index, item in enumerate(function.__defaults__ or ()))
        yield from _globals_named_by(function.__code__, function.__globals__)


def _globals_named_by(code: types.CodeType, variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the globals that code names; functions of installed libraries are not searched."""
    for name in global_names(code, variables):
        yield f"{GLOBALS}.{name}", variables[name]
        yield from members_named(f"{GLOBALS}.{name}", variables[name], code)


def members_named(name: str, module: Any, code: types.CodeType) -> Iterator[tuple[str, Any]]:
    """Yield what a module of the script holds under the names in code; nothing of anything else."""
    if isinstance(module, types.ModuleType) and is_of_script(module.__name__):
        for member in _names_in(code):
            if member in vars(module):
                yield f"{name}.{member}", vars(module)[member]


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names_in(inner)


def global_names(code: types.CodeType, variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the globals of a script that code names, and functions within it; none of a library."""
    if _is_library(str(variables.get("__name__", ""))):
        return
    yield from (name for name in _loaded_globals(code) if name in variables)


@lru_cache(maxsize=4096)
def _loaded_globals(code: types.CodeType) -> tuple[str, ...]:
    """Return the globals that code, and functions within it, read or assign; names of attributes are others."""
    own = [found.argval for found in dis.get_instructions(code) if found.opname in _OF_GLOBALS]
    inner = [name for one in code.co_consts if isinstance(one, types.CodeType) for name in _loaded_globals(one)]
    return tuple(dict.fromkeys([*own, *inner]))


@lru_cache(maxsize=4096)
def _is_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES


def package_of(thing: Any) -> str:
    """Return the package in which a function, or the class of anything else, is."""
    is_function = isinstance(thing, (types.FunctionType, types.MethodType, type))
    return str(getattr(thing if is_function else type(thing), "__module__", "")).partition(".")[0]


@lru_cache
def is_installed(package: str) -> bool:
    """Return whether a package is one that was installed, and not a module of the script."""
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def is_of_script(module: str) -> bool:
    """Return whether a module is a part of the script: of no library, and not installed."""
    package = module.partition(".")[0]
    return package not in _LIBRARIES and not is_installed(package)


_THIRD_PARTY = frozenset(
    {
        *(
            "PIL",
            "albumentations",
            "clearml",
            "cv2",
            "datasets",
            "ignite",
            "ignite_hooks",
            "matplotlib",
            "mlflow",
            "monai",
        ),
        *("numpy", "pandas", "scipy", "sklearn", "tensorboard", "tensorboardX", "torch", "torchaudio", "torchdata"),
        *("torchvision", "tqdm", "transformers", "wandb"),
    }
)
_LIBRARIES = _THIRD_PARTY | sys.stdlib_module_names
"""Where no globals of a script are named and no counters of a script are kept."""


def worth_entering(thing: object) -> bool:
    """Return whether an object may hold state of the script: models, engines and the like are saved elsewhere."""
    if type(thing) in _ALWAYS_ENTERED:
        return True
    module, saved_elsewhere = _saved_elsewhere()
    if isinstance(thing, module):
        # Random transforms of torchvision are modules too.
        return next(thing.parameters(), None) is None
    ours = ("ignite_hooks.", "torch.utils.data._utils", "_pytest.", "numpy.")
    return not type(thing).__module__.startswith(ours) and not isinstance(thing, saved_elsewhere)


@lru_cache
def _saved_elsewhere() -> tuple[Any, tuple[type, ...]]:
    """Return the class of modules, and the classes whose objects hold no state of the script."""
    import logging

    import torch
    from ignite.engine import Engine

    others = (Engine, torch.optim.Optimizer, torch.Tensor, logging.Logger, logging.Handler, BaseException)
    return torch.nn.Module, others


def worth_entering_in_script(thing: object) -> bool:
    """Return whether an object that a handler holds may hold state of the script: nothing of large libraries does."""
    if type(thing) in _ALWAYS_ENTERED:
        return True
    module = type(thing).__module__
    foreign = module.partition(".")[0] in _THIRD_PARTY and not module.startswith(("ignite.handlers", "ignite.contrib"))
    return worth_entering(thing) and not foreign


def is_of_library(thing: object) -> bool:
    """Return whether the class of a thing is one of a well-known library or of the standard library."""
    return _is_library(type(thing).__module__)
