"""Keeps parts of a model as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, MinLen

from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, settings
from ignite_hooks.model.optimizers import param_groups
from ignite_hooks.model.parts import each
from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.plan.priority import Priority
from ignite_hooks.text import did_you_mean

if TYPE_CHECKING:
    from torch.nn import Module, Parameter

    from ignite_hooks.run.runner import Runner


@settings
class FreezeHook(BaseHook):
    """Leave some parameters out of the training, for the whole run or its first epochs; afterwards all is as it was.

    Under DistributedDataParallel, which counts on every gradient, they are computed and not used.

    Args:
        patterns: Names of parameters or modules, with * and ?: ``backbone`` and ``backbone.*`` mean all within it.
        unfreeze_epoch: The epochs that have to be over before these parameters are trained; None for never.
        norm_eval: Whether batch norms that are frozen altogether keep their running statistics too.

    Reads: model, optimizer.
    """

    patterns: Annotated[Sequence[str], MinLen(1)]
    unfreeze_epoch: Annotated[int, Ge(0)] | None = None
    norm_eval: bool = True
    # Before hooks that read gradients or the trained parameters.
    priority: PriorityLike = Priority.HIGHEST

    may_end_a_run: ClassVar[bool] = False
    changes_training: ClassVar[bool] = True
    freezes: ClassVar[bool] = True
    """Which weights are frozen follows from its settings, not from a checkpoint."""

    def __post_init__(self) -> None:
        if isinstance(self.patterns, str):
            raise SettingError("patterns", f"a list is needed: [{self.patterns!r}]")
        self._frozen: list[Parameter] = []
        self._still: list[Still] = []
        self._withholding: list[Any] = []

    def before_run(self, runner: Runner, model: Any) -> None:
        self._thaw()
        self._stop_withholding()
        if counts_on_gradients(model):
            self._withhold(runner)

    def before_train(self, runner: Runner, model: Any) -> None:
        """Freeze for the current epoch, after a checkpoint has been loaded."""
        from torch.nn.parameter import is_lazy

        self._thaw()
        module = unwrapped(model)
        found = dict(matching(module, self.patterns))
        if missing := [pattern for pattern in self.patterns if not any(matches(name, pattern) for name in found)]:
            known = [name for name, _ in module.named_parameters()]
            hint = did_you_mean(missing[0].rstrip(".*"), known) or f": there are {', '.join(known[:10])}"
            raise SettingError("patterns", f"no parameter matches {missing[0]!r}{hint}")
        if self._is_over(runner):
            return
        if lazy := [name for name, one in found.items() if is_lazy(one)]:  # type: ignore[redundant-expr]
            raise ValueError(f"{lazy[0]} has no size before its first forward: make one before the run")
        self._frozen = [parameter for parameter in found.values() if parameter.requires_grad]
        self._warn_of_strangers(runner)
        for parameter in self._frozen:
            # The gradients of an earlier step would be used by the next.
            parameter.grad = None
            if not self._withholding:
                parameter.requires_grad_(False)
        if self.norm_eval:
            self._keep_norms(module, {id(parameter) for parameter in found.values()})
        size = sum(parameter.numel() for parameter in found.values())
        until = "" if self.unfreeze_epoch is None else f" for {self.unfreeze_epoch} epochs"
        runner.logger.info("%d parameters in %d tensors are frozen%s", size, len(found), until)

    def before_train_epoch(self, runner: Runner) -> None:
        if self._frozen and self._is_over(runner):
            self._thaw()
            runner.logger.info("epoch %d: what was frozen is trained from now on", runner.epoch + 1)

    def cleanup(self) -> None:
        self._thaw()
        self._stop_withholding()

    def _is_over(self, runner: Runner) -> bool:
        return self.unfreeze_epoch is not None and runner.epoch >= self.unfreeze_epoch

    def _warn_of_strangers(self, runner: Runner) -> None:
        groups = param_groups(runner.optimizer)
        known = {id(parameter) for group in groups for parameter in group["params"]}
        if self.unfreeze_epoch is not None and known and any(id(one) not in known for one in self._frozen):
            runner.logger.warning("the optimizer does not have all that is frozen, and will not train it: give it all")

    def _withhold(self, runner: Runner) -> None:
        def without_gradients(*_: Any) -> None:
            for parameter in self._frozen:
                parameter.grad = None

        optimizers = list(each(runner.optimizer))
        if not optimizers:
            raise ValueError("needs the optimizer of a distributed model: pass optimizer=... to attach_hooks()")
        self._withholding = [one.register_step_pre_hook(without_gradients) for one in optimizers]

    def _stop_withholding(self) -> None:
        while self._withholding:
            self._withholding.pop().remove()

    def _keep_norms(self, module: Module, frozen: set[int]) -> None:
        from torch.nn.modules.batchnorm import _BatchNorm

        for norm in module.modules():
            own = [id(parameter) for parameter in norm.parameters(recurse=False)]
            if isinstance(norm, _BatchNorm) and own and frozen.issuperset(own):
                self._still.append(Still(norm, module))

    def _thaw(self) -> None:
        frozen, self._frozen = self._frozen, []
        for parameter in frozen:
            parameter.requires_grad_(True)
        while self._still:
            self._still.pop().undo()


def counts_on_gradients(model: Any) -> bool:
    """Return whether a model waits for the gradient of every parameter that was to be trained when it was made."""
    from torch.nn.parallel import DistributedDataParallel

    return any(isinstance(part, DistributedDataParallel) for part in model.modules())


class Still:
    """Keeps a batch norm in the mode of evaluations, though a step says train() at its beginning.

    Not by hooks around its forward: what torch.compile has made would not see them come and go.
    """

    def __init__(self, norm: Any, model: Any) -> None:
        self._norm, self._model = norm, model
        self._mode: bool | None = norm.training
        norm.training = False
        norm.train = self

    def __call__(self, mode: bool = True) -> Any:
        self._mode = None
        return self._norm

    def undo(self) -> None:
        """Give the layer the mode it would have: that of the model, if the model was given one."""
        del self._norm.train
        self._norm.training = self._model.training if self._mode is None else self._mode


def matching(module: Module, patterns: Sequence[str]) -> Iterator[tuple[str, Parameter]]:
    """Return the parameters whose names match one of the patterns."""
    for name, parameter in module.named_parameters():
        if any(matches(name, pattern) for pattern in patterns):
            yield name, parameter


def matches(name: str, pattern: str) -> bool:
    """Return whether the name of a parameter, or of a module it is in, matches a pattern.

    Example:
        >>> matches("stem.0.weight", "stem"), matches("stem.0.weight", "*.weight"), matches("head.bias", "stem")
        (True, True, False)
    """
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:end]), pattern) for end in range(1, len(parts) + 1))
