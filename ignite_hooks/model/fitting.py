"""Weights of a file and a model: which entry of a checkpoint holds them, and which name there is which name here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Shape = tuple[int, ...]

RAW: Final = ("state_dict", "model", "model_state_dict", "module", "net", "network", "weights")
AVERAGES: Final = ("ema_state_dict", "state_dict_ema", "model_ema", "ema_model", "ema")
"""The entries under which checkpoints keep weights, the usual first."""

ORIGINS: Final = (
    ("pytorch-lightning_version", "Lightning"),
    ("message_hub", "MMEngine"),
    ("arch", "timm"),
    ("trainer", "Ignite"),
)
"""The entries by which the checkpoints of others are known."""

WRAPPERS: Final = ("module", "_orig_mod")
"""The words that wrappers put into names."""


@dataclass(frozen=True)
class Fit:
    """How the weights of a file fit a model."""

    loaded: Mapping[str, str] = field(default_factory=dict)
    """The names here, and their names in the file."""
    missing: tuple[str, ...] = ()
    """The names here that the file does not have."""
    unexpected: tuple[str, ...] = ()
    """The names in the file that are not here."""
    other_shape: Mapping[str, tuple[Shape, Shape]] = field(default_factory=dict)
    """The names here whose shape is another one in the file: the shape in the file, and here."""

    @property
    def is_whole(self) -> bool:
        """Whether each name has its weight, and none is left over."""
        return not (self.missing or self.unexpected or self.other_shape)

    def rows(self) -> list[dict[str, str]]:
        """Return what was not loaded as a table."""
        rows = [{"weight": name, "is": "not in the file, stays as it was"} for name in self.missing]
        rows += [
            {"weight": name, "is": f"{_by(there)} in the file and {_by(here)} here, stays as it was"}
            for name, (there, here) in self.other_shape.items()
        ]
        return rows + [{"weight": name, "is": "only in the file, left out"} for name in self.unexpected]


def _by(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "a number"


def weights_in(content: Any, wanted: Literal["raw", "ema"] = "raw") -> tuple[Mapping[str, Any] | None, str]:
    """Return the weights that a file holds, None where it has none, and whose file it is.

    Example:
        >>> import torch
        >>> weights_in({"state_dict": {"a": torch.ones(1)}, "arch": "vit"})
        ({'a': tensor([1.])}, 'timm')
        >>> weights_in({"epoch": 3})
        (None, '')
    """
    if not isinstance(content, Mapping):
        return None, ""
    meta = content.get("meta")
    ours = isinstance(meta, Mapping) and "format" in meta and "state_dict" in content
    known = (origin for entry, origin in ORIGINS if entry in content)
    origin = "ignite_hooks" if ours else next(known, "")
    for entry in AVERAGES if wanted == "ema" else RAW:
        found = content.get(entry)
        if isinstance(found, Mapping) and _tensors(found):
            return _tensors(found), origin
    bare = _tensors(content) if wanted == "raw" else {}
    return (bare or None), origin or ("a bare state_dict" if bare else "")


def _tensors(found: Mapping[Any, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if isinstance(name, str) and hasattr(value, "shape")}


def fit(there: Mapping[str, Shape], here: Mapping[str, Shape], rename: Mapping[str, str] | None = None) -> Fit:
    """Return which weights of a file belong to which of a model.

    Words of wrappers are left out of names; then one prefix is taken off or put on, the one with which most fit.

    Args:
        there: The shapes in the file by name.
        here: The shapes of the model by name.
        rename: Beginnings of names in the file, and what they are here.

    Example:
        >>> found = fit({"module.net.a": (2,), "module.net.head": (9,)}, {"a": (2,), "head": (5,), "b": (1,)})
        >>> found.loaded, found.missing, found.other_shape
        ({'a': 'module.net.a'}, ('b',), {'head': ((9,), (5,))})
    """
    plain = {_renamed(_plain(name, here), rename or {}): name for name in there}
    best: tuple[tuple[int, int, int], dict[str, str]] = ((-1, 0, 0), plain)
    for off, on in _prefixes(plain, here):
        names = {on + name.removeprefix(off): old for name, old in plain.items() if name.startswith(off)}
        exact = sum(1 for name, old in names.items() if here.get(name) == there[old])
        by_name = sum(1 for name in names if name in here)
        score = (exact, by_name, -len(off) - len(on))
        if score > best[0]:
            best = score, names
    names = best[1]
    loaded = {name: names[name] for name in here if name in names and there[names[name]] == here[name]}
    other = {name: (there[names[name]], here[name]) for name in here if name in names and name not in loaded}
    used = {names[name] for name in (*loaded, *other)}
    return Fit(
        loaded, tuple(name for name in here if name not in names), tuple(n for n in there if n not in used), other
    )


def _plain(name: str, here: Mapping[str, Shape]) -> str:
    return name if name in here else ".".join(word for word in name.split(".") if word not in WRAPPERS)


def _renamed(name: str, rename: Mapping[str, str]) -> str:
    # The longest beginning first, so that of two the more exact one counts.
    for old in sorted(rename, key=len, reverse=True):
        if name.startswith(old):
            return rename[old] + name[len(old) :]
    return name


def _prefixes(there: Iterable[str], here: Iterable[str]) -> list[tuple[str, str]]:
    """Return what may be taken off the names of a file, or put before them."""
    found = [("", "")]
    found += [(prefix, "") for prefix in _beginnings(there)]
    return found + [("", prefix) for prefix in _beginnings(here)]


def _beginnings(names: Iterable[str]) -> list[str]:
    cut = (name.split(".") for name in names)
    return sorted({".".join(words[:depth]) + "." for words in cut for depth in (1, 2) if len(words) > depth})
