"""Where the loss is in the output of a training step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ignite_hooks.errors import LossError, SettingError
from ignite_hooks.text import shown

Where = int | str | Callable[[Any], Any]
"""An index, a key, or a function of the output."""

NAMES_SHOWN = 6
PLAIN = frozenset((int, float))


def losses_of(output: Any, *names: str, detached: bool = False) -> dict[str, Any]:
    """Return the losses in the output of a step: a number, a tensor of one, or those in a mapping.

    Args:
        output: What a training step returned.
        *names: The losses to return; all by default.
        detached: Whether tensors are detached from their graph, which would keep the memory of a whole iteration.

    Example:
        >>> losses_of(0.5), losses_of({"loss": 1.0, "aux": 2, "y": "text"}), losses_of(("y_pred", "y"))
        ({'loss': 0.5}, {'loss': 1.0, 'aux': 2}, {})
    """
    found: dict[str, Any] = {}
    # A single loop, because this runs in every iteration.
    for name, value in output.items() if isinstance(output, Mapping) else (("loss", output),):
        kind = type(value)
        if kind is float or (kind is not bool and isinstance(value, (int, float))):
            found[name] = value
        elif hasattr(kind, "numel") and value.numel() == 1:
            found[name] = value.detach() if detached and value.requires_grad else value
        elif hasattr(kind, "dtype") and getattr(value, "size", 0) == 1 and value.dtype.kind in "fiu":
            # A number of NumPy, or an array of one.
            found[name] = value.item()
    return {name: value for name, value in found.items() if name in names} if names else found


def mean(values: list[Any]) -> Any:
    """Return the mean of numbers, or of tensors as a tensor on their device."""
    if set(map(type, values)) <= PLAIN or all(isinstance(value, (int, float)) for value in values):
        return sum(values) / len(values)
    import torch

    try:
        together = torch.stack(values)
    except (TypeError, RuntimeError):  # numbers among tensors, or tensors of the shapes () and (1,)
        together = torch.stack([torch.as_tensor(value).reshape(()).float() for value in values])
    return together.float().mean()


class LossSource:
    """Finds the losses of a step: in a number or a mapping, or where it was told to look.

    Example:
        >>> source = LossSource()
        >>> source.of((0.5, "y_pred")), source.of({"total": 0.5, "aux": 1.0})
        ({}, {'total': 0.5, 'aux': 1.0})
        >>> source.choose(0)
        >>> source.of((0.5, "y_pred"))
        {'loss': 0.5}
    """

    def __init__(self) -> None:
        self.where: Where | None = None
        self.failed = False
        """Whether a function that finds the loss has failed."""
        self._passed_to = "attach_hooks()"

    def choose(self, where: Where | None, passed_to: str = "attach_hooks()") -> None:
        """Say where the loss is, and where that was passed; raise a `SettingError` if it was said otherwise before."""
        if where is None:
            return
        if problem := problem_of_loss(where):
            raise SettingError("loss", problem)
        if self.where is not None and self.where != where:
            raise SettingError("loss", f"is {_named(self.where)} elsewhere and {_named(where)} here: say it once")
        if self.where is None:
            self._passed_to = passed_to
        self.where = where

    def of(self, output: Any, *, detached: bool = False) -> dict[str, Any]:
        """Return the losses of a step by name."""
        where = self.where
        if where is None:
            return losses_of(output, detached=detached)
        if callable(where):
            try:
                return losses_of(where(output), detached=detached)
            except Exception as error:
                self.failed = True
                raise LossError(
                    f"loss={_named(where)}, passed to {self._passed_to}, failed on what the training step returned, "
                    f"{described(output)}: {type(error).__name__}: {error}"
                ) from error
        found = losses_of(picked(output, where), detached=detached)
        if isinstance(output, Mapping) and "loss" in found:
            # The other losses keep their names.
            beside = losses_of(output, detached=detached)
            found |= {name: value for name, value in beside.items() if name not in (where, *found)}
        return found

    def detached(self, output: Any) -> dict[str, Any]:
        """Return the losses without the graph of their iteration."""
        return self.of(output, detached=True)

    def remedy(self, output: Any) -> str:
        """Say that an output has no loss, and what to pass."""
        told = "" if self.where is None else f" at loss={_named(self.where)}"
        if output is None:
            return (
                f"no loss is found{told}: the training step returns nothing; return the loss to see it in log and files"
            )
        return (
            f"no loss is found{told}: the training step returns {described(output)}; "
            f"pass {suggestion(output)} to attach_hooks() or LoggerHook"
        )


def _named(where: object) -> str:
    """Return a place of the loss for messages: a function by its name, and by its line."""
    code = getattr(where, "__code__", None)
    if code is None:
        return shown(where)
    return f"{code.co_name} ({os.path.basename(code.co_filename)}, line {code.co_firstlineno})"


def problem_of_loss(where: object) -> str | None:
    """Return the reason why something cannot say where the loss is, or None.

    >>> problem_of_loss("total"), problem_of_loss(1.5)
    (None, 'an index, a key or a function of the output of a step is needed, not 1.5')
    """
    if hasattr(type(where), "named_parameters"):
        return "is a module: it says where the loss is in the output of a step; pass a criterion as criterion=..."
    if isinstance(where, bool) or not (isinstance(where, (int, str)) or callable(where)):
        return f"an index, a key or a function of the output of a step is needed, not {shown(where)}"
    return None


def picked(output: Any, where: int | str) -> Any:
    """Return what is at an index or key of an output; of a list of mappings, the mean of what each has there.

    Example:
        >>> picked([{"loss": 1.0}, {"loss": 3.0}], "loss"), picked((0.5, "y"), 0), picked((0.5,), 7)
        (2.0, 0.5, None)
    """
    if isinstance(output, Mapping):
        return output.get(where)
    if isinstance(where, int):
        inside = isinstance(output, Sequence) and -len(output) <= where < len(output)
        return output[where] if inside else None
    if isinstance(output, (list, tuple)) and output and all(isinstance(one, Mapping) for one in output):
        values = [value for one in output for value in losses_of(one.get(where), detached=True).values()]
        return mean(values) if values else None
    return getattr(output, where, None)


def described(output: Any) -> str:
    """Describe an output in a few words.

    >>> described((0.5, [1])), described({"a": [1]}), described([{"a": 1}])
    ('a tuple of float and list', 'a mapping of a', 'a list of 1 mappings of a')
    """
    if isinstance(output, Mapping):
        names = [str(name) for name in output]
        return f"a mapping of {', '.join(names[:NAMES_SHOWN])}" if names else "an empty mapping"
    if isinstance(output, (list, tuple)):
        if output and all(isinstance(one, Mapping) for one in output):
            keys = ", ".join(str(name) for name in list(output[0])[:NAMES_SHOWN])
            return f"a {type(output).__name__} of {len(output)} mappings of {keys}"
        return f"a {type(output).__name__} of {' and '.join(type(one).__name__ for one in output[:NAMES_SHOWN])}"
    shape = getattr(output, "shape", None)
    return f"a {type(output).__name__}" + ("" if shape is None else f" of shape {tuple(shape)}")


def suggestion(output: Any) -> str:
    """Return an argument that finds the loss in an output.

    >>> suggestion((0.5, "y")), suggestion([{"loss": 1.0}]), suggestion([[1]])
    ('loss=0', "loss='loss'", 'loss=lambda output: ...')
    """
    if isinstance(output, (list, tuple)) and output:
        if all(isinstance(one, Mapping) for one in output):
            names = [str(name) for name, value in output[0].items() if losses_of(value)]
            named = next((name for name in names if "loss" in name), names[0] if names else None)
            return "loss=lambda output: ..." if named is None else f"loss={named!r}"
        index = next((i for i, one in enumerate(output) if losses_of(one)), None)
        return "loss=lambda output: ..." if index is None else f"loss={index}"
    if isinstance(output, Mapping):
        inner = next(
            (str(name) for name, value in output.items() if isinstance(value, Mapping) and losses_of(value)), None
        )
        return "loss=lambda output: ..." if inner is None else f"loss={inner!r}"
    return "loss=lambda output: ..."
