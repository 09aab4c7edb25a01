"""Says what a model is made of."""

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
    """A line of the table."""

    name: str
    kind: str
    output: str
    parameters: str
    trained: str


@settings
class ModelSummaryHook(BaseHook):
    """Log a table of the model's modules once its first batch has gone through: outputs, parameters, what is trained.

    Args:
        max_depth: How deep modules within modules are listed.
        max_rows: How many lines the table has at the most; the middle is left out.

    Reads: model.
    Writes: model_summary, as a text.
    """

    max_depth: Annotated[int, Ge(0)] = 3
    max_rows: Annotated[int, Ge(3)] = 60
    on_error: OnError = "warn"

    may_end_a_run: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._watches: list[Any] = []
        self._shapes: dict[str, str] = {}

    def before_train(self, runner: Runner, model: Any) -> None:
        if not is_main_process():
            return
        module = unwrapped(model)
        self._shapes = {}
        for name, part in listed(module, self.max_depth):
            self._watches.append(part.register_forward_hook(self._noting(name)))
        # After the forward of the whole there is nothing left to do: iterations pass by unseen.
        self._watches.append(module.register_forward_hook(lambda *_: self._tell(runner, module)))

    def cleanup(self) -> None:
        self._leave()

    def _noting(self, name: str) -> Any:
        def note(_module: Any, _inputs: Any, output: Any) -> None:
            self._shapes.setdefault(name, shape_of(output))

        return note

    def _tell(self, runner: Runner, module: Module) -> None:
        self._leave()
        text = cut_table(rows_of(module, self.max_depth, self._shapes), self.max_rows) + "\n" + total_of(module)
        runner.logger.info("the model:\n%s", text)
        runner.writer.write_text("model_summary", text, runner.global_step)

    def _leave(self) -> None:
        while self._watches:
            self._watches.pop().remove()


def listed(module: Module, depth: int) -> list[tuple[str, Module]]:
    """The modules down to a depth, each once, the whole first."""
    return [(name, part) for name, part in module.named_modules() if (name.count(".") + 1 if name else 0) <= depth]


def rows_of(module: Module, depth: int, shapes: Mapping[str, str]) -> list[Row]:
    """What the table says of each module."""
    rows = []
    for name, part in listed(module, depth):
        total, trained = sizes(part)
        indent = "  " * (name.count(".") + 1 if name else 0)
        share = "" if total == 0 else "yes" if trained == total else "no" if trained == 0 else f"{trained / total:.0%}"
        label = indent + (name.rpartition(".")[2] or "(whole)")
        rows.append(Row(label, type(part).__name__, shapes.get(name, "not used"), f"{total:,}" if total else "", share))
    return rows


def sizes(module: Module) -> tuple[int, int]:
    """The numbers of parameters, and of those that are trained."""
    from torch.nn.parameter import is_lazy

    known = [parameter for parameter in module.parameters() if not is_lazy(parameter)]  # type: ignore[redundant-expr]
    return sum(one.numel() for one in known), sum(one.numel() for one in known if one.requires_grad)


def total_of(module: Module) -> str:
    """The last line: sizes of the whole."""
    total, trained = sizes(module)
    tensors = [*module.parameters(), *module.buffers()]
    megabytes = sum(one.numel() * one.element_size() for one in tensors) / 2**20
    return f"{total:,} parameters, {trained:,} of them trained; {megabytes:.1f} MB with buffers"


def shape_of(output: Any) -> str:
    """The shape of what a module returned.

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
    """Align the rows below their head; of too many the middle is left out.

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
