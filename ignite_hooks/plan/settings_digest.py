"""The settings of hooks in a form that can be stored and compared."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Mapping
from typing import Any

_INCOMPARABLE = object()


def settings_of_hooks(hooks: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """Return the `comparable_settings` of each hook, by the hook's name."""
    return {name: comparable_settings(hook) for name, hook in hooks.items()}


def comparable_settings(hook: object) -> dict[str, Any]:
    """Return the settings of a hook that can be compared later; of a text only a digest, as it may be a secret."""
    fields = [f.name for f in dataclasses.fields(hook) if f.init] if dataclasses.is_dataclass(hook) else []
    values = {name: getattr(hook, name) for name in fields} or dict(getattr(hook, "config", None) or {})
    return {str(name): seen for name, value in values.items() if (seen := _comparable(value)) is not _INCOMPARABLE}


def _comparable(value: Any) -> Any:
    if value is None or (isinstance(value, (bool, int, float)) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, (str, enum.Enum)):
        return f"text {hashlib.sha256(str(value).encode()).hexdigest()[:12]}"
    if isinstance(value, (list, tuple)):
        items = [_comparable(item) for item in value]
        return _INCOMPARABLE if any(item is _INCOMPARABLE for item in items) else items
    return _INCOMPARABLE
