"""The settings of hooks in a form that can be stored and compared."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Mapping
from typing import Any

HIDDEN_FIELDS = "__settings_fields__"
_INCOMPARABLE = object()


def fields_of(cls: type) -> tuple[dataclasses.Field[Any], ...] | None:
    """Return the fields of a hook or of another dataclass, or None where it is neither.

    A class made by ``@settings`` is no dataclass for others: OmegaConf would take its objects for configurations.
    """
    for base in cls.__mro__:
        if HIDDEN_FIELDS in vars(base):
            found: dict[str, dataclasses.Field[Any]] = vars(base)[HIDDEN_FIELDS]
            return tuple(field for field in found.values() if not _is_class_variable(field))
        if "__dataclass_fields__" in vars(base):
            return dataclasses.fields(base)
    return None


def show_fields(cls: type) -> None:
    """Make the parents of a class dataclasses again, as a decorator of the class needs their fields."""
    for base in cls.__mro__[1:]:
        if HIDDEN_FIELDS in vars(base):
            base.__dataclass_fields__ = vars(base)[HIDDEN_FIELDS]  # type: ignore[attr-defined]


def hide_fields(cls: type) -> None:
    """Keep the fields of a class and of its parents under a name of ours."""
    for base in cls.__mro__:
        if "__dataclass_fields__" in vars(base):
            setattr(base, HIDDEN_FIELDS, vars(base)["__dataclass_fields__"])
            delattr(base, "__dataclass_fields__")


def _is_class_variable(field: dataclasses.Field[Any]) -> bool:
    return "ClassVar" in str(field.type)


def settings_of_hooks(hooks: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """Return the `comparable_settings` of each hook, by the hook's name."""
    return {name: comparable_settings(hook) for name, hook in hooks.items()}


def comparable_settings(hook: object) -> dict[str, Any]:
    """Return the settings of a hook that can be compared later; of a text only a digest, as it may be a secret.

    What a hook names in ``derived_settings`` is left out: it follows from something else, and nobody set it.
    """
    fields = [field.name for field in fields_of(type(hook)) or () if field.init]
    values = {name: getattr(hook, name) for name in fields} or dict(getattr(hook, "config", None) or {})
    derived = getattr(hook, "derived_settings", ())
    own = {str(name): value for name, value in values.items() if name not in derived}
    return {name: seen for name, value in own.items() if (seen := _comparable(value)) is not _INCOMPARABLE}


def _comparable(value: Any) -> Any:
    if value is None or (isinstance(value, (bool, int, float)) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, (str, enum.Enum)):
        return f"text {hashlib.sha256(str(value).encode()).hexdigest()[:12]}"
    if isinstance(value, (list, tuple)):
        items = [_comparable(item) for item in value]
        return _INCOMPARABLE if any(item is _INCOMPARABLE for item in items) else items
    return _INCOMPARABLE
