"""One or several: models, optimizers, schedulers and scalers may be one object, a list or a mapping of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

Result = TypeVar("Result")


def is_several(thing: Any) -> bool:
    """Return whether a thing is a mapping or a list of objects, even if there is only one in it."""
    return isinstance(thing, (list, tuple, dict, Mapping))


def parts_of(thing: Any) -> dict[str, Any]:
    """Return several objects by name: the keys of a mapping, the places in a list, and ``""`` for one object.

    Example:
        >>> parts_of({"g": 1, "d": 2}), parts_of([1, 2]), parts_of(1), parts_of(None)
        ({'g': 1, 'd': 2}, {'0': 1, '1': 2}, {'': 1}, {})
    """
    if isinstance(thing, Mapping):
        return {str(name): part for name, part in thing.items() if part is not None}
    if isinstance(thing, (list, tuple)):
        return {str(place): part for place, part in enumerate(thing) if part is not None}
    return {} if thing is None else {"": thing}


def each(thing: Any) -> Iterator[Any]:
    """Yield the values of a mapping, the items of a list, or the one object there is.

    Example:
        >>> list(each({"a": 1, "b": 2})), list(each([1, 2])), list(each(1)), list(each(None))
        ([1, 2], [1, 2], [1], [])
    """
    if is_several(thing):
        yield from parts_of(thing).values()
    elif thing is not None:
        yield thing


def by_part(function: Callable[[Any], Result], thing: Any) -> Any:
    """Return what a function makes of one object, or of each of several, by name.

    Example:
        >>> by_part(abs, -1), by_part(abs, {"g": -1, "d": -2}), by_part(abs, [-1])
        (1, {'g': 1, 'd': 2}, {'0': 1})
    """
    if not is_several(thing):
        return function(thing)
    return {name: function(part) for name, part in parts_of(thing).items()}


def names_of(thing: Any) -> list[str] | None:
    """Return the names of several objects; None for one.

    Example:
        >>> names_of({"g": 1, "d": 2}), names_of([1]), names_of(1)
        (['g', 'd'], ['0'], None)
    """
    return list(parts_of(thing)) if is_several(thing) else None


def chosen(thing: Any, names: Collection[str] | None) -> Any:
    """Return those of several objects that have these names; all of them, or the one there is, where names is None."""
    return thing if names is None else {name: parts_of(thing)[name] for name in names}


def nested(state: Mapping[str, Any], names: Collection[str] | None) -> dict[str, Any]:
    """Return the state of several objects in one by the name of each; as it is where names is None, for one object.

    Example:
        >>> nested({"g.0.weight": 1, "d.bias": 2}, ["g", "d"])
        {'g': {'0.weight': 1}, 'd': {'bias': 2}}
    """
    if names is None:
        return dict(state)
    found: dict[str, Any] = {name: {} for name in names}
    for key, value in state.items():
        name, _, rest = key.partition(".")
        found[name][rest] = value
    return found


def flat(state: Mapping[str, Any], names: Collection[str] | None) -> dict[str, Any]:
    """Return what `nested` was given; parts with other names are left out.

    Example:
        >>> flat({"g": {"0.weight": 1}, "d": {"bias": 2}}, ["g"])
        {'g.0.weight': 1}
    """
    if names is None:
        return dict(state)
    return {f"{name}.{key}": value for name in names for key, value in state[name].items()}


def with_saved(thing: Any, saved: Any) -> list[tuple[str, Any, Any]]:
    """Return each object with its name and its part of what `by_part` has made of all, which has to fit."""
    if not is_several(thing):
        return [("", thing, saved)]
    return [(name, part, saved[name]) for name, part in parts_of(thing).items()]


def why_no_fit(kind: str, saved: Collection[str] | None, now: Collection[str] | None) -> str | None:
    """Return why objects that were saved are not those of this run, with the names of both; None where they are.

    Args:
        kind: What they are, such as ``model``.
        saved: The names of several that were saved; None for one.
        now: The names of those of this run.

    Example:
        >>> why_no_fit("model", ["g", "d"], None)
        'it holds several, model g, d, and this run has one model: pass model={"g": ..., "d": ...} to attach_hooks()'
    """
    if (None if saved is None else set(saved)) == (None if now is None else set(now)):
        return None
    before = f"one {kind}" if saved is None else f"several, {kind} {', '.join(saved)}"
    here = f"one {kind}" if now is None else f"several, {kind} {', '.join(now)}"
    return f"it holds {before}, and this run has {here}: pass {kind}={_as_code(saved)} to attach_hooks()"


def _as_code(names: Collection[str] | None) -> str:
    if names is None:
        return "..."
    if list(names) == [str(place) for place in range(len(names))]:
        return f"[{', '.join(['...'] * len(names))}]"
    return "{" + ", ".join(f'"{name}": ...' for name in names) + "}"


def problem_of_models(wanted: Sequence[str] | None, known: Sequence[str] | None) -> str | None:
    """Return why models with these names cannot be averaged, or None.

    Example:
        >>> problem_of_models(["g"], ["g", "d"])
        >>> problem_of_models(["gen"], ["g", "d"])
        "there is no model 'gen': the models are g, d"
        >>> problem_of_models(["g"], None)
        'names models, and this run has one model: remove it, or pass model={"g": ..., ...} to attach_hooks()'
    """
    if wanted is None:
        return None
    if not wanted:
        return "is empty: name at least one model, or remove it"
    if known is None:
        return (
            f'names models, and this run has one model: remove it, or pass model={{"{wanted[0]}": ..., ...}} '
            "to attach_hooks()"
        )
    unknown = [name for name in wanted if name not in known]
    return f"there is no model {unknown[0]!r}: the models are {', '.join(known)}" if unknown else None


def problem_of_names(thing: Any) -> str | None:
    """Return why the names of several objects cannot be the names of parts of a checkpoint, or None.

    Example:
        >>> problem_of_names({"g": 1}), problem_of_names({"a.b": 1})
        (None, "a name of text without dots is needed, not 'a.b'")
        >>> problem_of_names([])
        'is empty: pass at least one'
    """
    if not isinstance(thing, Mapping):
        return "is empty: pass at least one" if is_several(thing) and not parts_of(thing) else None
    for name in thing:
        if not isinstance(name, str) or not name or "." in name:
            return f"a name of text without dots is needed, not {name!r}"
    return None if parts_of(thing) else "is empty: pass at least one"
