"""Lets a teacher follow its student."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ignite_hooks.errors import refuse_other_momentum
from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model.optimizers import param_groups
from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.plan.schedule import scheduled

if TYPE_CHECKING:
    from torch import Tensor

    from ignite_hooks.model.averages import Averages
    from ignite_hooks.run.runner import Runner


@settings
class MeanTeacherHook(BaseHook):
    """Keep the teacher within a model an exponential moving average of its student.

    ``model.teacher`` begins as ``model.student``. After every interval then
    ``teacher = momentum * teacher + (1 - momentum) * student``; weights that are not finite are left out.

    Args:
        momentum: The share of the teacher that is kept, near 1; MMDetection calls 0.001 what is 0.999 here.
        interval: How many iterations lie between two updates.
        skip_buffer: Whether buffers are the teacher's own; otherwise floating-point ones are averaged too.

    Reads: model.
    """

    momentum: float = 0.999
    interval: Annotated[int, Ge(1)] = 1
    skip_buffer: bool = True

    may_end_a_run: ClassVar[bool] = False
    changes_training: ClassVar[bool] = True

    # Like EMAHook: a checkpoint of an iteration holds the teacher of that iteration.
    point_priority: ClassVar[dict[str, int]] = {"after_train_iter": 95}

    def __post_init__(self) -> None:
        elsewhere = "In MMDetection it is the share of the new weights: its 0.001 is 0.999 here"
        refuse_other_momentum(self.momentum, "teacher", elsewhere)
        self._averages: Averages | None = None
        self._shared: Any = None
        self._copies: list[tuple[Tensor, Tensor]] = []
        self._warned = False

    def before_train(self, runner: Runner, model: Any) -> None:
        """Find the teacher, after a checkpoint has been loaded that holds it as a part of the model."""
        from ignite_hooks.model.averages import Averages

        model, self._warned = unwrapped(model), False
        student, teacher = getattr(model, "student", None), getattr(model, "teacher", None)
        if student is None or teacher is None:
            raise ValueError(f"the model needs a teacher and a student, and {type(model).__name__} has not both")
        groups = param_groups(runner.optimizer)
        trained = {id(parameter) for group in groups for parameter in group["params"]}
        if any(id(parameter) in trained for parameter in teacher.parameters()):
            raise ValueError("the optimizer trains the teacher: give it the parameters of model.student alone")
        if runner.global_step == 0:
            runner.checkpoints.wait_for_staging()
            teacher.load_state_dict(student.state_dict())
        self._averages = Averages(student, buffers=not self.skip_buffer)
        self._averages.load_state_dict(teacher.state_dict())
        self._share_memory(teacher)

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        averages = self._averages
        assert averages is not None
        runner.checkpoints.wait_for_staging()
        averages.refresh()
        averages.buffers.update(self.momentum)
        if not averages.weights.update(self.momentum):
            self._warn(runner)
        if self._shared is not averages.weights.values:
            # Tensors of the student were replaced, so that the averages are new ones.
            self._share_memory(unwrapped(runner.model).teacher)
        for tensor, value in self._copies:
            tensor.copy_(value)

    def after_load_checkpoint(self, runner: Runner) -> None:
        """Use the teacher of the file, not the one before it."""
        if self._averages is not None:
            self._averages.load_state_dict(unwrapped(runner.model).teacher.state_dict())

    def after_train(self, runner: Runner) -> None:
        """Warn of updates that a GPU has skipped by itself."""
        if self._averages is not None and self._averages.weights.take_skipped():
            self._warn(runner)

    def cleanup(self) -> None:
        self._averages, self._shared, self._copies = None, None, []

    def _warn(self, runner: Runner) -> None:
        if not self._warned:
            self._warned = True
            words = "the student is not finite: the teacher continues without it (iteration %d)"
            runner.logger.warning(words, runner.global_step)

    def _share_memory(self, teacher: Any) -> None:
        """Let the teacher use the memory of the averages: nothing is kept twice."""
        averages = self._averages
        assert averages is not None
        self._shared = averages.weights.values
        self._copies = [pair for part in averages.parts for pair in part.share_memory_with(teacher)]
