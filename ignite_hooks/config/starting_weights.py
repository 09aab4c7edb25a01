"""The key ``load_from``: the weights that a training starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ignite_hooks.config.validate import validate_settings
from ignite_hooks.errors import Problem
from ignite_hooks.text import shown


@dataclass(frozen=True)
class LoadFrom:
    """The weights to start from.

    Args:
        path: The file: ours, a state_dict, safetensors, or a checkpoint of Ignite, Lightning, MMEngine or timm.
        strict: Whether every weight must fit.
        weights: The raw weights of the file, or the averages in it.
        rename: Beginnings of names in the file, and what they are in the model.
    """

    path: str = ""
    strict: bool = False
    weights: Literal["raw", "ema"] = "raw"
    rename: Mapping[str, str] | None = None

    @property
    def file(self) -> Path:
        """The file, as the user has named it."""
        return Path(self.path).expanduser()

    @property
    def how(self) -> dict[str, Any]:
        """The other settings, as `checkpoint.load_from.load_from` takes them."""
        return {"strict": self.strict, "weights": self.weights, "rename": self.rename}


def read_load_from(wanted: Any, problems: list[Problem], place: str = "load_from") -> LoadFrom | None:
    """Return the weights to start from; None where there are none, or something is wrong with the setting.

    Example:
        >>> found = []
        >>> read_load_from({"path": "w.pth", "strct": True}, found), found[0].message
        (None, "not a setting of LoadFrom, did you mean 'strict'?")
    """
    if wanted is None:
        return None
    if not isinstance(wanted, (str, Path, Mapping)):
        problems.append(Problem(place, f"a path, or a mapping with one, is needed, not {shown(wanted)}"))
        return None
    given: dict[str, Any] = {"path": str(wanted)} if not isinstance(wanted, Mapping) else dict(wanted)
    wrong = validate_settings(LoadFrom, given, place, hook=False)
    if not wrong and not given.get("path"):
        wrong = [Problem(f"{place}.path", "missing: the file of the weights")]
    problems += wrong
    return None if wrong else LoadFrom(**given)
