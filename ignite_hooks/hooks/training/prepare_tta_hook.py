"""Tests with augmented views of each sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.text import shown

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@settings
class PrepareTTAHook(BaseHook):
    """Let the model see several views of each sample during a test (TTA); afterwards it is as before.

    Whatever the evaluator's step does, a call of the model within it becomes a call of what ``tta_cfg`` makes of it.

    Args:
        tta_cfg: ``{flips: [[-1]], flip_back: false}``: the mean over the input and its flips along these dimensions,
            flipped back where outputs are pictures too; or a function or class that is called with the model (or
            ``{type: it, ...}`` with more arguments) and returns what is called in its place. A file names a service.

    Reads: model.
    """

    tta_cfg: Mapping[str, Any] | Callable[..., Any]

    may_end_a_run: ClassVar[bool] = False
    one_model: ClassVar[str] = "remove the hook, or test one in a run that is given this model alone"

    def __post_init__(self) -> None:
        given = dict(self.tta_cfg) if isinstance(self.tta_cfg, Mapping) else {"type": self.tta_cfg}
        self._make, self._arguments = given.pop("type", Flipped), given
        if not callable(self._make):
            raise SettingError(
                "tta_cfg",
                f"type is a function or a class, not {shown(self._make)}: "
                "give it to attach_hooks as a service, tta=MyTTA, and name it '@tta'",
            )
        if self._make is Flipped:
            Flipped(None, **given)
        self._undo: Callable[[], None] | None = None

    def before_test(self, runner: Runner, model: Any) -> None:
        self._leave()
        module = unwrapped(model)
        self._undo = replace_forward(module, self._make(module, **self._arguments))

    def after_test(self) -> None:
        self._leave()

    def cleanup(self) -> None:
        self._leave()

    switched_off = cleanup

    def _leave(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()


class Flipped:
    """The mean of what a model says of an input and of its flips.

    Args:
        model: The model.
        flips: The dimensions of each further view, as in ``[[-1], [-2, -1]]``.
        flip_back: Whether outputs are flipped back before the mean is taken.

    Example:
        >>> import torch
        >>> Flipped(lambda x: x * torch.arange(2.0), flips=[[-1]])(torch.tensor([[1.0, 3.0]]))
        tensor([[0., 2.]])
    """

    def __init__(self, model: Any, flips: Any = ((-1,),), flip_back: bool = False) -> None:
        whole = [isinstance(flip, (list, tuple)) and flip and all(type(d) is int for d in flip) for flip in flips]
        if not whole or not all(whole):
            raise SettingError("tta_cfg", f"flips is a list of lists of dimensions, as [[-1]], not {shown(flips)}")
        self._model, self._flips, self._flip_back = model, [list(flip) for flip in flips], flip_back

    def __call__(self, inputs: Any, *others: Any, **named: Any) -> Any:
        must_be_one_tensor("takes", inputs)
        views = [self._model(inputs, *others, **named)]
        must_be_one_tensor("returns", views[0])
        for flip in self._flips:
            output = self._model(inputs.flip(flip), *others, **named)
            views.append(output.flip(flip) if self._flip_back else output)
        return sum(views[1:], views[0]) / len(views)


def must_be_one_tensor(does: str, value: Any) -> None:
    """Refuse what has no flip or no mean."""
    if not hasattr(value, "flip"):
        raise TypeError(
            f"tta_cfg: flips are of one tensor, and the model {does} a {type(value).__name__}: give a function that "
            "makes and merges views of it"
        )


def replace_forward(module: Any, instead: Callable[..., Any]) -> Callable[[], None]:
    """Replace the calls of a module by calls of something else, which may call the module; return what undoes this."""
    before = vars(module).get("forward")
    forward, inside = module.forward, False

    def either(*arguments: Any, **named: Any) -> Any:
        nonlocal inside
        if inside:
            return forward(*arguments, **named)
        inside = True
        try:
            return instead(*arguments, **named)
        finally:
            inside = False

    def undo() -> None:
        if before is None:
            del module.forward
        else:
            module.forward = before

    module.forward = either
    return undo
