"""Logs the modules of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from annotated_types import Ge

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.hooks.base_hook import BaseHook, OnError, settings
from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.text import columns

if TYPE_CHECKING:
    from torch.nn import Module

    from ignite_hooks.run.runner import Runner


class Row(NamedTuple):
    """One row of the table."""

    name: str
    kind: str
    output: str
    parameters: str
    trained: str


@settings
class ModelSummaryHook(BaseHook):
    """Log a table of the model's modules after its first batch: outputs, parameters, what is trained.

    Args:
        max_depth: Depth of nested modules down to which to list them.
        max_rows: Maximum number of rows of the table; the middle is left out.

    Reads: model.
    Writes: model_summary, as a text.
    """

    max_depth: Annotated[int, Ge(0)] = 3
    max_rows: Annotated[int, Ge(3)] = 60
    on_error: OnError = "warn"

    may_end_a_run: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._handles: list[Any] = []
        self._shapes: dict[str, str] = {}

    def before_train(self, runner: Runner, model: Any) -> None:
        if not is_main_process():
            return
        module = unwrapped(model)
        self._shapes = {}
        for name, part in modules_of(module, self.max_depth):
            self._handles.append(part.register_forward_hook(self._shape_recorder(name)))
        # After the first forward pass of the model the hook is removed and costs nothing.
        self._handles.append(module.register_forward_hook(lambda *_: self._log_table(runner, module)))

    def cleanup(self) -> None:
        self._remove_handles()

    def _shape_recorder(self, name: str) -> Any:
        def record(_module: Any, _inputs: Any, output: Any) -> None:
            self._shapes.setdefault(name, shape_of(output))

        return record

    def _log_table(self, runner: Runner, module: Module) -> None:
        self._remove_handles()
        text = cut_table(rows_of(module, self.max_depth, self._shapes), self.max_rows) + "\n" + last_line(module)
        runner.logger.info("the model:\n%s", text)
        runner.writer.write_text("model_summary", text, runner.global_step)

    def _remove_handles(self) -> None:
        while self._handles:
            self._handles.pop().remove()


def modules_of(module: Module, depth: int) -> list[tuple[str, Module]]:
    """Return the modules down to a depth, each once, the model itself first."""
    return [(name, part) for name, part in module.named_modules() if (name.count(".") + 1 if name else 0) <= depth]


def rows_of(module: Module, depth: int, shapes: Mapping[str, str]) -> list[Row]:
    """Return one row per module."""
    rows = []
    for name, part in modules_of(module, depth):
        total, trained = sizes(part)
        indent = "  " * (name.count(".") + 1 if name else 0)
        share = "" if total == 0 else "yes" if trained == total else "no" if trained == 0 else f"{trained / total:.0%}"
        label = indent + (name.rpartition(".")[2] or "(whole)")
        rows.append(Row(label, type(part).__name__, shapes.get(name, "not used"), f"{total:,}" if total else "", share))
    return rows


def sizes(module: Module) -> tuple[int, int]:
    """Return the number of parameters, and of those that are trained."""
    from torch.nn.parameter import is_lazy

    known = [parameter for parameter in module.parameters() if not is_lazy(parameter)]  # type: ignore[redundant-expr]
    return sum(one.numel() for one in known), sum(one.numel() for one in known if one.requires_grad)


def last_line(module: Module) -> str:
    """Return the last line: parameters and size of the model."""
    total, trained = sizes(module)
    tensors = [*module.parameters(), *module.buffers()]
    megabytes = sum(one.numel() * one.element_size() for one in tensors) / 2**20
    return f"{total:,} parameters, {trained:,} of them trained; {megabytes:.1f} MB with buffers"


def shape_of(output: Any) -> str:
    """Return the shape of an output of a module, in words.

    Example:
        >>> import torch
        >>> shape_of(torch.zeros(8, 3)), shape_of((torch.zeros(2), None)), shape_of({"x": torch.zeros(1, 2)})
        ('8 x 3', '(2, -)', '{x: 1 x 2}')
    """
    shape = getattr(output, "shape", None)
    if shape is not None:
        return " x ".join(str(size) for size in shape) or "one number"
    if isinstance(output, Mapping):
        return "{" + ", ".join(f"{key}: {shape_of(value)}" for key, value in list(output.items())[:4]) + "}"
    if isinstance(output, (list, tuple)):
        return "(" + ", ".join(shape_of(value) for value in output[:4]) + ")"
    return "-"


def cut_table(rows: Sequence[Row], most: int) -> str:
    """Return the aligned rows below their head; leave out the middle if there are too many.

    Example:
        >>> print(cut_table([Row("(whole)", "Linear", "8 x 3", "15", "yes")], 10))
        module   type    output  parameters  trained
        (whole)  Linear  8 x 3           15  yes
    """
    shown = list(rows)
    if len(shown) > most:
        head = most // 2
        left_out = Row(f"... {len(shown) - most + 1} more", "", "", "", "")
        shown = [*shown[:head], left_out, *shown[head - most + 1 :]]
    lines = [Row("module", "type", "output", "parameters", "trained"), *shown]
    return "\n".join(columns(lines, numbers=[Row._fields.index("parameters")]))
