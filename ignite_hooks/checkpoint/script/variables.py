"""Numbers and tensors that a script keeps itself: in closures, globals, attributes, and attributes of its modules."""

from __future__ import annotations

import copy
import sys
import time
import types
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ignite_hooks.checkpoint.script.reachable import (
    global_names,
    is_of_library,
    reach,
    worth_entering_in_script,
)
from ignite_hooks.model.wrapping import unwrapped

if TYPE_CHECKING:
    from torch import Tensor

SCALARS = (bool, int, float, str, type(None))
MOST_BYTES = 16 * 2**20
"""The most that is kept of one variable: a hidden state is small, what is larger is rather data."""
MOST_ITEMS = 64
"""The most items of a collection that are looked at one by one."""
LONGEST_WINDOW = 10_000
"""The most items of a deque that are kept, such as the latest losses."""
LATEST_TIME = 1e9
"""A larger number with a fraction is a time, which a resumed run has to take anew."""

MOST_NAMED = 8

CANNOT = object()
"""In place of a value that no checkpoint holds."""


class Variable(NamedTuple):
    """A place where a script keeps a value."""

    place: str
    get: Callable[[], Any]
    set: Callable[[Any], None]


class Mark(NamedTuple):
    """By what a value is recognised as changed."""

    kind: str
    value: Any = None
    tensor: weakref.ref[Any] | None = None

    def is_of(self, value: Any) -> bool:
        """Return whether a value is what it was."""
        now = mark_of(value)
        same = self.tensor is None or (now.tensor is not None and self.tensor() is now.tensor())
        return same and (self.kind, self.value) == (now.kind, now.value)


def mark_of(value: Any) -> Mark:
    """Return the mark of a value.

    Example:
        >>> mark_of(0.5).is_of(0.5), mark_of(0.5).is_of(1.0), mark_of(None).is_of([])
        (True, False, False)
    """
    if type(value) in SCALARS:
        return Mark(type(value).__name__, repr(value))
    if _is_tensor(value):
        return Mark("tensor", 0 if value.is_inference() else value._version, weakref.ref(value))
    if _is_array(value):
        return Mark("array", (value.shape, hash(value.tobytes()) if value.nbytes <= MOST_BYTES else id(value)))
    if isinstance(value, (list, tuple, deque)):
        items = tuple(mark_of(item) for item in value) if len(value) <= MOST_ITEMS else ()
        return Mark(type(value).__name__, (len(value), items and tuple(_without_reference(item) for item in items)))
    if isinstance(value, (set, frozenset, dict)):
        return Mark(type(value).__name__, len(value))
    return Mark("other")


def _without_reference(mark: Mark) -> Any:
    return (mark.kind, mark.value, id(mark.tensor()) if mark.tensor is not None else None)


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_array(value: Any) -> bool:
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ == "ndarray" and value.dtype.kind in "biuf"


def plain_of(value: Any, known: Collection[int] = (), depth: int = 3) -> Any:
    """Return a value as it can be saved; `CANNOT` for what cannot, or what is saved in another way.

    Args:
        value: The value.
        known: The memory of tensors that are saved in another way, which a variable may only point to.
        depth: How deep collections may be nested.
    """
    kind = type(value)
    if kind is float:
        return CANNOT if value > LATEST_TIME and not value.is_integer() else value
    if kind in SCALARS:
        return value
    if _is_tensor(value):
        return _plain_tensor(value, known)
    if _is_array(value):
        import torch

        return torch.from_numpy(value.copy()) if value.nbytes <= MOST_BYTES else CANNOT
    if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    if kind in (list, tuple, deque) and depth and len(value) <= (MOST_ITEMS if kind is not deque else LONGEST_WINDOW):
        items = [plain_of(item, known, depth - 1) for item in value]
        return CANNOT if any(item is CANNOT for item in items) else {"kind": kind.__name__, "items": items}
    return CANNOT


def _plain_tensor(tensor: Tensor, known: Collection[int]) -> Any:
    import torch

    is_weight = tensor.requires_grad and tensor.is_leaf
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_meta
    if is_weight or not plain or tensor.numel() * tensor.element_size() > MOST_BYTES or memory_of(tensor) in known:
        return CANNOT
    return tensor.detach().clone()


def memory_of(tensor: Tensor) -> int:
    """Return where the content of a tensor is; 0 for one without content."""
    if hasattr(tensor, "fake_mode"):
        return 0
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # one without a storage
        return 0


def as_before(saved: Any, now: Any) -> Any:
    """Return a saved value as what the script has in this place: a tensor on its device, an array, a tuple."""
    if isinstance(saved, Mapping):
        now = now if isinstance(now, (list, tuple, deque)) and len(now) == len(saved["items"]) else saved["items"]
        items = [as_before(item, other) for item, other in zip(saved["items"], now, strict=True)]
        return {"tuple": tuple, "deque": deque}.get(saved["kind"], list)(items)
    if _is_tensor(saved):
        if _is_array(now):
            return saved.numpy().astype(now.dtype)
        return saved.to(now.device) if _is_tensor(now) else saved
    return saved


# -- where they are --------------------------------------------------------------------------------------------


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
        states: The states of its engines, by place.
        seen: The ids of objects that are saved in another way.
        not_theirs: The attributes of states that are not the script's.
    """
    passed: set[tuple[int, str]] = set()
    packages = {_package_of(thing) for root in roots.values() for thing in (root, getattr(root, "__self__", root))}

    def each_once(found: Iterable[tuple[Variable, tuple[int, str]]]) -> Iterator[Variable]:
        for variable, owner in found:
            if owner not in passed:
                passed.add(owner)
                yield variable

    for place, root in roots.items():
        for found in reach({place: root}, _enter, seen):
            # The attributes of an installed library are not the script's, unless the step is in that library.
            package = _package_of(found.thing)
            if package in packages or not _is_installed(package):
                yield from each_once(_variables_of(found.place, found.thing))
    for name, module in modules.items():
        yield from each_once(_attributes(f"model.{name}", module, skip=_of_every_module()))
    for place, state in states.items():
        yield from each_once(_attributes(place, state, skip=not_theirs))


def _package_of(thing: Any) -> str:
    is_function = isinstance(thing, (types.FunctionType, types.MethodType))
    return str(getattr(thing if is_function else type(thing), "__module__", "")).partition(".")[0]


@lru_cache
def _is_installed(package: str) -> bool:
    """Return whether a package is one that was installed, and not a module of the script."""
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _enter(thing: object) -> bool:
    import torch
    from ignite.metrics import Metric

    if isinstance(thing, (torch.utils.data.Dataset, torch.utils.data.Sampler, torch.utils.data.DataLoader, Metric)):
        return False
    if isinstance(thing, (list, tuple)):
        # What a list holds has no name of its own: only a list of objects is a part of the script, any other a value.
        return not any(isinstance(item, (*SCALARS, list, tuple, dict, torch.Tensor)) for item in thing)
    return worth_entering_in_script(thing)


def _variables_of(place: str, thing: Any) -> Iterator[tuple[Variable, tuple[int, str]]]:
    """Yield the variables of one object, each with what tells it from others."""
    if isinstance(thing, types.FunctionType):
        for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=False):
            yield _of_cell(f"{place}.{name}", cell), (id(cell), "")
        yield from _globals(place, thing.__code__, thing.__globals__)
    elif type(thing) is dict:
        yield from _entries(place, thing) if len(thing) <= MOST_ITEMS else ()
    elif type(thing) in (list, deque):
        yield _in_place(place, thing), (id(thing), "")
    elif not isinstance(thing, (types.MethodType, tuple)) and _enter(thing):
        is_ours_to_read = not is_of_library(thing) or type(thing).__name__ in ("SimpleNamespace", "Namespace")
        if is_ours_to_read:
            yield from _attributes(place, thing)
            for kind in type(thing).__mro__:
                methods = [value for value in vars(kind).values() if isinstance(value, types.FunctionType)]
                for method in methods:
                    yield from _globals(place, method.__code__, method.__globals__)


def _of_cell(place: str, cell: types.CellType) -> Variable:
    def get() -> Any:
        try:
            return _single(cell.cell_contents)
        except ValueError:  # not assigned yet
            return CANNOT

    return Variable(place, get, lambda value: setattr(cell, "cell_contents", value))


def _globals(place: str, code: types.CodeType, names: dict[str, Any]) -> Iterator[tuple[Variable, tuple[int, str]]]:
    for name in global_names(code, names):
        yield _of_mapping(f"{place}.{name}", names, name), (id(names), name)


def _entries(place: str, thing: Any, skip: Collection[str] = ()) -> Iterator[tuple[Variable, tuple[int, str]]]:
    """Yield the entries of a mapping, and a place for those that come later."""
    yield Variable(f"{place}.", lambda: CANNOT, lambda entry: thing.__setitem__(*entry)), (id(thing), ".")
    for name in list(thing):
        if isinstance(name, str) and name not in skip:
            yield _of_mapping(f"{place}.{name}", thing, name), (id(thing), name)


def _attributes(place: str, thing: Any, skip: Collection[str] = ()) -> Iterator[tuple[Variable, tuple[int, str]]]:
    attributes = getattr(thing, "__dict__", None)
    if type(attributes) is dict:
        yield from _entries(place, attributes, skip)


def _of_mapping(place: str, mapping: Any, name: str) -> Variable:
    return Variable(place, lambda: _single(mapping.get(name, CANNOT)), lambda value: mapping.__setitem__(name, value))


def _single(value: Any) -> Any:
    """Return a value; `CANNOT` for a collection that changes in place, which is a variable of its own."""
    return CANNOT if isinstance(value, (list, deque, dict)) else value


def _in_place(place: str, thing: Any) -> Variable:
    def put(items: Any) -> None:
        thing.clear()
        thing.extend(items)

    return Variable(place, lambda: type(thing)(thing), put)


def _of_every_module() -> Collection[str]:
    import torch

    return {*vars(torch.nn.Module()), "training"}


def own_modules(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the modules of a model whose classes are the script's, by name."""
    import torch

    if isinstance(model, torch.nn.Module):
        for name, module in unwrapped(model).named_modules():
            if not is_of_library(module):
                yield name or type(module).__name__, module


# -- their values ----------------------------------------------------------------------------------------------


class Values:
    """The variables of a script that change in a run: what is saved of them, and put back.

    What is not as it was when the first epoch of a run began is progress. Times of the clock are none.
    """

    def __init__(self) -> None:
        self._first: dict[str, Mark] = {}
        self._began = time.perf_counter()

    def begin(self, found: Iterable[Variable]) -> None:
        """Note what the variables are; what was noted before stays."""
        self._began = time.perf_counter()
        for variable in found:
            value = variable.get()
            if value is not CANNOT:
                self._first.setdefault(variable.place, mark_of(value))

    def state(self, found: Iterable[Variable], known: Collection[int]) -> dict[str, Any]:
        """Return the values that have changed, and the places of those that cannot be kept."""
        values: dict[str, Any] = {}
        unkept: list[str] = []
        now = time.perf_counter()
        for variable in found:
            value = variable.get()
            first = self._first.get(variable.place)
            if value is CANNOT or (first is not None and first.is_of(value)) or _is_log(value, first):
                continue
            if type(value) is float and self._began <= value <= now:
                # A reading of the clock.
                continue
            plain = plain_of(value, known)
            if plain is not CANNOT:
                values[variable.place] = plain
            elif first is not None and _holds_state(value):
                unkept.append(variable.place)
        # What is in a collection that cannot be kept would find no place.
        values = {place: one for place, one in values.items() if not place.startswith(tuple(f"{u}." for u in unkept))}
        return {"values": values, "unkept": unkept} if values or unkept else {}

    def put_back(self, found: Iterable[Variable], saved: Mapping[str, Any]) -> list[str]:
        """Put values back; return the places that are there no more."""
        left, later = dict(saved), dict[str, Variable]()

        def put(place: str, change: Callable[[Any], None], now: Any) -> None:
            # A copy: the script may change it in place, and it is put back once more at the first batch.
            change(as_before(copy.deepcopy(left.pop(place)), now))

        for variable in found:
            if (now := variable.get()) is CANNOT:
                later[variable.place] = variable
            elif variable.place in left:
                put(variable.place, variable.set, now)
        for place in list(left):
            owner, _, name = place.rpartition(".")
            if place in later:
                put(place, later[place].set, None)
            elif (mapping := later.get(f"{owner}.")) is not None:
                # An attribute that the script has not made yet.
                put(place, partial(_set_entry, mapping, name), None)
        return list(left)


def _set_entry(mapping: Variable, name: str, value: Any) -> None:
    mapping.set((name, value))


def _is_log(value: Any, first: Mark | None) -> bool:
    """Return whether a value is a list, or a list of lists, that only becomes longer: a script keeps it to look at."""
    if type(value) is not list:
        return False
    if any(type(item) is list for item in value[:MOST_ITEMS]):
        return not _has_tensors(value)  # a list for each epoch, say
    if first is not None and first.kind == "list" and first.value[0] == len(value):
        return False
    return all(isinstance(item, (*SCALARS, list, tuple, dict)) for item in value[:MOST_ITEMS]) and not _has_tensors(
        value[:MOST_ITEMS]
    )


def _has_tensors(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return _is_tensor(value) or any(map(_has_tensors, items))


def _holds_state(value: Any) -> bool:
    """Return whether a value that cannot be kept would be missed: a collection that has grown, a large tensor."""
    return isinstance(value, (list, deque)) or _is_array(value)


def named(places: Collection[str]) -> str:
    """Return the names of some variables for a message.

    Example:
        >>> named(["trainer.step.globals.beta", "model.encoder.temperature", "trainer.step.self.hidden"])
        'beta, model.encoder.temperature, self.hidden'
    """
    words = [_name_of(place) for place in places]
    shown = sorted(set(words))
    return ", ".join(shown[:MOST_NAMED]) + (f" and {len(shown) - MOST_NAMED} more" if len(shown) > MOST_NAMED else "")


def _name_of(place: str) -> str:
    if place.startswith(("model.", "trainer.state.")):
        return place
    words = [word for word in place.split(".")[2:] if word not in ("globals", "__func__", "__wrapped__")]
    return ".".join("self" if word == "__self__" else word for word in words[-2:])
