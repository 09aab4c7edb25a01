"""``result.json``: how a run ended, what it reached, and what it was made with."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ignite_hooks.errors import ResultError
from ignite_hooks.store.files import open_regular, write_whole
from ignite_hooks.text import indented_json

FILE_NAME: Final = "result.json"
FORMAT: Final = 1
LARGEST: Final = 64 * 1024 * 1024

STATES: Final = ("finished", "stopped", "failed")


@dataclass(frozen=True)
class Reached:
    """The value of a metric, and when it was reached."""

    value: float
    step: int
    epoch: int | None = None
    file: str | None = None
    """Name of the checkpoint that holds the weights with this value."""


@dataclass(frozen=True)
class RecordedTest:
    """The figures of a test after the run, and of which weights they are."""

    metrics: Mapping[str, float]
    checkpoint: str
    """The checkpoint that was tested, below the work directory where it is there."""
    weights: str
    """``raw``, ``ema``, or the name of a further average."""


@dataclass(frozen=True)
class RunResult:
    """The result of a run, as ``result.json`` holds it."""

    state: str
    reason: str = ""
    kind: str = ""
    """``pruned`` if a search has stopped the run, else empty."""
    run: str = ""
    """The id of the run, which its resumes keep."""
    began: float = 0.0
    ended: float = 0.0
    seconds: float = 0.0
    """Duration of the last life of the run; one that was resumed has had others."""
    epochs: int = 0
    iterations: int = 0
    max_epochs: int | None = None
    resumed_from: str = ""
    metrics: Mapping[str, Reached] = field(default_factory=dict)
    """The last value of every metric."""
    best: Mapping[str, Reached] = field(default_factory=dict)
    delivered: str = ""
    """The file that holds the weights which the run delivers; empty where those are the last ones."""
    tests: Mapping[str, RecordedTest] = field(default_factory=dict)
    """The tests after the run, by evaluation, checkpoint and weights."""
    iterations_per_second: float | None = None
    samples_per_second: float | None = None
    seed: int | None = None
    bits: Mapping[str, Any] = field(default_factory=dict)
    """What the bits of the weights depend on besides the script: threads, deterministic flags, kernels."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Checksums of the configuration and of the weights: equal ones mean equal runs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """The configuration that was trained, without its secrets."""
    plan: Sequence[Mapping[str, str]] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file: plain types, NaN and infinities as null."""
        # Not by asdict(), which copies what a configuration holds: a hook may have locks.
        content = {"format": FORMAT, **{name: _plain(value) for name, value in vars(self).items()}}
        content["metrics"] = {name: _short(one) for name, one in content["metrics"].items()}
        content["best"] = {name: _short(one) for name, one in content["best"].items()}
        return content

    def write(self, folder: Path) -> None:
        """Write the file, whole or not at all."""
        text = indented_json(self.to_json(), ensure_ascii=False, allow_nan=False)
        write_whole(folder / FILE_NAME, text.encode("utf-8", "backslashreplace"))


def add_test(folder: Path, name: str, tested: RecordedTest) -> None:
    """Add a test to the result in a folder, and keep whatever else the file holds.

    Raises:
        ResultError: If there is no result, or a file that is not one.
    """
    content = _content(folder)
    if content is None:
        raise ResultError(f"{folder / FILE_NAME}: there is no result, so the run has not ended")
    content["tests"] = {**(content.get("tests") or {}), name: _plain(tested)}
    text = indented_json(content, ensure_ascii=False)
    write_whole(folder / FILE_NAME, text.encode("utf-8", "backslashreplace"))


def _short(one: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in one.items() if value is not None or key == "value"}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Reached | RecordedTest):
        return _plain(vars(value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return str(value)


def read_result(folder: Path) -> RunResult | None:
    """Return the result in a folder, None where there is none; raise `ResultError` for a file that is not one."""
    content = _content(folder)
    return None if content is None else from_json(content)


def _content(folder: Path) -> dict[str, Any] | None:
    """Return what the file in a folder holds, once it is known to be a result."""
    path = folder / FILE_NAME
    try:
        with open_regular(path) as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ResultError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > LARGEST:
        raise ResultError(f"{path}: larger than {LARGEST} bytes, so it is not a result of ours")
    try:
        found = json.loads(content)
        from_json(found)
        return dict(found)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path}: not a result of a run: {error}") from error


def from_json(content: Any) -> RunResult:
    """Return the result that a file holds; entries of later versions are left out, wrong types are a `ValueError`."""
    if not isinstance(content, Mapping) or not isinstance(content.get("format"), int):
        raise ValueError("it has no format")
    if content.get("state") not in STATES:
        raise ValueError(f"state is {content.get('state')!r}, expected one of {', '.join(STATES)}")
    known = {each.name: each for each in dataclasses.fields(RunResult)}
    found: dict[str, Any] = {}
    for name, value in content.items():
        if name not in known:
            continue
        check = _CHECKS[name]
        if not check(value):
            raise ValueError(f"{name} is {str(value)[:50]!r}, expected {_WORDS[check]}")
        found[name] = value
    for name in ("metrics", "best"):
        found[name] = {metric: _reached(metric, one) for metric, one in found.get(name, {}).items()}
    found["tests"] = {test: _tested(test, one) for test, one in found.get("tests", {}).items()}
    return RunResult(**found)


def _reached(metric: str, one: Any) -> Reached:
    if not isinstance(one, Mapping) or not _is_number(one.get("value")) or not _is_count(one.get("step", 0)):
        raise ValueError(f"metric {metric!r} has no value and step")
    epoch, file = one.get("epoch"), one.get("file")
    value = one["value"]
    return Reached(
        math.nan if value is None else float(value),
        one.get("step", 0),
        epoch if _is_count(epoch) else None,
        file if isinstance(file, str) else None,
    )


def _tested(name: str, one: Any) -> RecordedTest:
    words = ("checkpoint", "weights")
    metrics = one.get("metrics") if isinstance(one, Mapping) else None
    if not isinstance(metrics, Mapping) or not all(map(_is_number, metrics.values())):
        raise ValueError(f"test {name!r} has no metrics that are numbers")
    if not all(isinstance(one.get(word), str) for word in words):
        raise ValueError(f"test {name!r} has no checkpoint and weights")
    values = {metric: math.nan if value is None else float(value) for metric, value in metrics.items()}
    return RecordedTest(values, *(one[word] for word in words))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _is_count(value: object) -> bool:
    return value is None or (type(value) is int and value >= 0)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(row, Mapping) for row in value)


_WORDS: Final = {
    _is_text: "text",
    _is_number: "a number",
    _is_count: "a whole number",
    _is_mapping: "a mapping",
    _is_rows: "a list of mappings",
}
_CHECKS: Final = {
    **dict.fromkeys(("state", "reason", "kind", "run", "resumed_from", "delivered"), _is_text),
    **dict.fromkeys(("began", "ended", "seconds", "iterations_per_second", "samples_per_second"), _is_number),
    **dict.fromkeys(("epochs", "iterations", "max_epochs", "seed"), _is_count),
    **dict.fromkeys(("metrics", "best", "tests", "bits", "digests", "environment", "configuration"), _is_mapping),
    "plan": _is_rows,
}

_COUNT = {"type": ["integer", "null"], "minimum": 0}
_REACHED = {
    "type": "object",
    "required": ["value", "step"],
    "properties": {
        "value": {"type": ["number", "null"], "description": "null: NaN or infinite"},
        "step": {"type": "integer", "minimum": 0},
        "epoch": _COUNT,
        "file": {"type": ["string", "null"]},
    },
}
_TESTED = {
    "type": "object",
    "required": ["metrics", "checkpoint", "weights"],
    "properties": {
        "metrics": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
        "checkpoint": {"type": "string"},
        "weights": {"type": "string", "description": "raw, ema, or the name of a further average"},
    },
}
SCHEMA: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "result.json of ignite_hooks",
    "type": "object",
    "required": ["format", "state", "epochs", "iterations", "metrics", "best"],
    "properties": {
        "format": {"const": FORMAT},
        "state": {"enum": list(STATES)},
        "reason": {"type": "string"},
        "kind": {"enum": ["", "pruned", "planned"]},
        "run": {"type": "string", "pattern": "^[0-9a-f]*$"},
        "began": {"type": "number", "description": "seconds since 1970"},
        "ended": {"type": "number"},
        "seconds": {"type": "number", "minimum": 0},
        "epochs": {"type": "integer", "minimum": 0},
        "iterations": {"type": "integer", "minimum": 0},
        "max_epochs": _COUNT,
        "resumed_from": {"type": "string"},
        "metrics": {"type": "object", "additionalProperties": _REACHED},
        "best": {"type": "object", "additionalProperties": _REACHED},
        "delivered": {"type": "string", "description": "a file below the work directory; empty: the last weights"},
        "tests": {"type": "object", "additionalProperties": _TESTED},
        "iterations_per_second": {"type": ["number", "null"]},
        "samples_per_second": {"type": ["number", "null"]},
        "seed": _COUNT,
        "bits": {"type": "object"},
        "digests": {"type": "object", "additionalProperties": {"type": "string"}},
        "environment": {"type": "object", "additionalProperties": {"type": "string"}},
        "configuration": {"type": "object"},
        "plan": {"type": "array", "items": {"type": "object"}},
    },
}
"""The JSON Schema of the file."""
