"""Evaluates, tests and hands on the evaluation weights of schedule-free optimizers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, settings
from ignite_hooks.model.optimizers import StepHooks
from ignite_hooks.model.parts import flat, is_several, names_of, nested
from ignite_hooks.model.wrapping import unwrapped
from ignite_hooks.plan.priority import Priority
from ignite_hooks.run.averaging import PUT_BACK_FIRST, refuse_step

if TYPE_CHECKING:
    from torch import Tensor

    from ignite_hooks.model.schedule_free import EvaluationWeights
    from ignite_hooks.run.runner import Runner


@settings
class ScheduleFreeHook(BaseHook):
    """Evaluate with the evaluation weights of a schedule-free optimizer, and save them beside the training weights.

    It is added by itself where the optimizer has ``train()``, ``eval()`` and ``train_mode``, as those of the package
    ``schedulefree`` have, and no hook keeps averages. The script calls neither of the two: the training weights are put
    back from a copy, since ``eval()`` and then ``train()`` is not exact. Evaluation weights are averages like those of
    `EMAHook`: ``ema_state_dict`` in files, and ``weights: ema`` wherever weights are chosen. Batch norms keep the
    statistics of the training weights.

    Args:
        evaluate: Whether evaluations see the evaluation weights or the training weights.

    Reads: model, optimizer.
    Saves: ema_state_dict in every checkpoint.
    """

    evaluate: Literal["ema", "raw"] = "ema"
    priority: PriorityLike = Priority.ABOVE_NORMAL

    may_end_a_run: ClassVar[bool] = False
    keeps_averages: ClassVar[bool] = True

    point_priority: ClassVar[Mapping[str, int]] = PUT_BACK_FIRST

    def __post_init__(self) -> None:
        self._weights: EvaluationWeights | None = None
        self._step_hooks = StepHooks()
        self._evaluation: str | None = None
        self._loaded_at: int | None = None
        """The iteration at which evaluation weights were loaded, which the optimizer does not know."""

    def before_run(self, runner: Runner) -> None:
        self._weights = self._loaded_at = None
        self._step_hooks.optimizer = runner.optimizer
        if not self._is_needed(runner):
            runner.note_once("ScheduleFreeHook has no effect: the optimizer has no train(), eval() and train_mode")

    def before_train(self, runner: Runner) -> None:
        """Let the optimizer train, which a script need not say."""
        from ignite_hooks.model.schedule_free import set_training

        self._loaded_at = None
        if self._is_needed(runner):
            runner.checkpoints.wait_for_staging()
            set_training(runner.optimizer)

    def before_val_epoch(self, runner: Runner) -> None:
        wanted = runner.evaluation_options.weights or self.evaluate
        if wanted != "raw" and self._is_needed(runner) and self._swap_in(runner):
            self._evaluation = runner.state.evaluating

    def after_val_epoch(self, runner: Runner) -> None:
        """Put the training weights back; the script's own handlers see the others until the evaluation has ended."""
        if self._evaluation is not None and self._evaluation == runner.state.evaluating:
            self._swap_out()
            runner.evaluation_options.for_script["averages"] = self.swap

    before_test_epoch = before_val_epoch
    after_val = after_test = after_test_epoch = after_val_epoch

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Add the evaluation weights; the others are the training weights, whatever is in the model."""
        if not self._is_needed(runner):
            return
        made = self._made(runner)
        if made.averages.swapped:
            if "state_dict" in checkpoint:
                checkpoint["state_dict"] = nested(made.averages.raw_state_dict(), self._names)
        elif made.are_in_model:
            # The script has called eval(), and calls train() later.
            runner.checkpoints.wait_for_staging()
            weights, states = made.of_training()
            checkpoint["state_dict"] = nested(weights, self._names)
            if "optimizer" in checkpoint and not is_several(runner.optimizer):
                checkpoint["optimizer"] = states[0]
        checkpoint |= self.weights()

    def after_load_checkpoint(self, runner: Runner) -> None:
        if self._weights is not None and self._weights.averages.swapped:
            # The checkpoint was loaded into what is in the model.
            self._weights.averages.keep_as_raw()
            self._swap_out()
        self._weights = self._loaded_at = None
        if self._is_needed(runner):
            from ignite_hooks.model.schedule_free import say_training

            say_training(runner.optimizer)

    def on_exception(self) -> None:
        self._swap_out()

    def switched_off(self) -> None:
        self._swap_out()

    def cleanup(self) -> None:
        self._swap_out()
        self._step_hooks.clear()

    # -- by hand ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def swap(self) -> Iterator[None]:
        """Put the evaluation weights into the model, for as long as the context lasts."""
        is_ours = self._swap_in(self.runner)
        try:
            yield
        finally:
            if is_ours:
                self._swap_out()

    def weights(self) -> dict[str, Any]:
        """Return the evaluation weights by name, not copied."""
        runner = self.runner
        if not self._is_needed(runner):
            return {}
        made = self._made(runner)
        self._refresh(runner, made)
        return {"ema_state_dict": nested(made.state_dict(), self._names)}

    def load_weights(self, found: Mapping[str, Any]) -> None:
        """Load what `weights` has returned; they count until the training goes on."""
        runner = self.runner
        if self._is_needed(runner):
            runner.checkpoints.wait_for_staging()
            made = self._made(runner)
            made.averages.load_state_dict(flat(found["ema_state_dict"], self._names))
            self._loaded_at = runner.global_step

    def steady_tensors(self) -> list[Tensor]:
        """Return the tensors that change only after `runner.checkpoints.wait_for_staging`."""
        return [] if self._weights is None else self._weights.averages.tensors()

    # -- how --------------------------------------------------------------------------------------------------

    @property
    def _names(self) -> list[str] | None:
        return names_of(self.runner.model)

    def _is_needed(self, runner: Runner) -> bool:
        from ignite_hooks.model.schedule_free import is_schedule_free

        return runner.model is not None and is_schedule_free(runner.optimizer)

    def _made(self, runner: Runner) -> EvaluationWeights:
        from ignite_hooks.model.schedule_free import EvaluationWeights

        if self._weights is None:
            self._weights = EvaluationWeights(unwrapped(runner.model), runner.optimizer)
        return self._weights

    def _refresh(self, runner: Runner, made: EvaluationWeights) -> None:
        """Compute the evaluation weights of this iteration, unless they are in the model or were loaded."""
        if not made.averages.swapped and not made.are_in_model and self._loaded_at != runner.global_step:
            runner.checkpoints.wait_for_staging()
            made.refresh()

    def _swap_in(self, runner: Runner) -> bool:
        """Put the evaluation weights into the model; return whether they were not in it before."""
        made = self._made(runner)
        if made.averages.swapped or made.are_in_model:
            return False
        self._refresh(runner, made)
        made.averages.swap_in()
        self._step_hooks.add("swapped", refuse_step)
        return True

    def _swap_out(self) -> None:
        self._evaluation = None
        self._step_hooks.remove("swapped")
        if self._weights is not None:
            self._weights.averages.swap_out()
