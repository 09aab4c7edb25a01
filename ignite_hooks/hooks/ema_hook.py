"""An exponential moving average of the weights, used in evaluations."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt

from ignite_hooks.distributed.collectives import world_size
from ignite_hooks.errors import SettingError, refuse_other_momentum
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, settings
from ignite_hooks.model.optimizers import StepHooks
from ignite_hooks.model.parts import chosen, names_of, nested
from ignite_hooks.model.wrapping import is_same_model, unwrapped
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When, scheduled
from ignite_hooks.run.averaging import (
    PUT_BACK_FIRST,
    RankSync,
    averages_in,
    check_also,
    check_models,
    flat_averages,
    momentum_at,
    refuse_step,
    update_or_begin,
    updates_beside,
)

if TYPE_CHECKING:
    from torch import Tensor

    from ignite_hooks.model.averages import Averages
    from ignite_hooks.model.averaging_beside import Beside
    from ignite_hooks.model.several_averages import SeveralAverages
    from ignite_hooks.run.runner import Runner


@dataclass
class EMAState:
    """The progress of the average, which checkpoints hold."""

    began_at: int | None = None
    """The iteration after which the average was the weights of the model; None before it begins."""
    warmed_up: bool = False
    """Whether the average came from elsewhere, so that a warm-up would only wipe it out."""
    updates: int = 0
    skipped: int = 0

    @property
    def differs(self) -> bool:
        """Whether the average differs from the weights it began as."""
        return self.warmed_up or self.updates > 0


@dataclass
class RunMemory:
    """What the hook remembers of a run and does not save."""

    evaluation: str | None = None
    """The evaluation for which the averages are in the model."""
    restored: bool = False
    """Whether the progress was loaded and the averages of its checkpoint are still to come."""
    began_with: Mapping[str, Any] | None = None
    """The weights that the average had begun as, where a checkpoint was saved before the first update."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """The further averages of the checkpoint that was loaded, until they begin."""
    skipped_before: int = 0
    warned: bool = False
    """Whether the log has a line on weights that are not finite."""

    def take_restored(self) -> tuple[bool, Mapping[str, Any] | None]:
        """Return and clear what was loaded."""
        found = self.restored, self.began_with
        self.restored, self.began_with = False, None
        return found


@settings
class EMAHook(BaseHook):
    """Keep an exponential moving average of the weights, evaluate with it and save it.

    After each optimizer step ``average = m * average + (1 - m) * weights``. In the n-th step since the average began,
    counted from 0, m is ``min(momentum, (1 + n) / (warm_up + n))``. Weights that are not finite are left out.

    Within an epoch only steps of the optimizer may change the weights that it trains while an update runs beside the
    training. ``overlap: auto`` looks whether this is so, and else makes all updates in line; bits never depend on it.

    Args:
        momentum: The share of the average that is kept, near 1; 0.9998 here is 0.0002 in some other libraries.
        interval: The number of iterations from one update to the next.
        warm_up: The time constant of the rise of the momentum, in optimizer steps; 0 for the full momentum at once.
        power: The exponent of a power-function average in place of warm_up: in the n-th step the momentum is
            ``(n / (n + 1)) ** (power + 1)``, up to ``momentum``. The average is of a share of the run, however long.
        resume_from: A checkpoint, relative to the work directory, with the averages that a fresh run begins with,
            without a warm-up. If it has no averages, its weights are used.
        update_buffers: Whether floating-point buffers are averaged too; otherwise an evaluation or a checkpoint gets
            copies of those that the model has at that time.
        begin_iter: The number of iterations before the average begins, as a copy of the weights.
        begin_epoch: The number of epochs before the average begins.
        accumulate: The number of iterations per optimizer step; the average is updated at multiples of it.
        evaluate: Whether evaluations see the average, the raw weights, or first the raw weights and then the average.
        sync: Whether the ranks use the averages of rank 0, the mean of all averages, or each its own.
        sync_interval: The iterations between two synchronisations, besides evaluations and checkpoints.
        overlap: Whether updates run beside the next forward and backward pass, which takes a spare core. With
            ``auto`` this is tried in the first 50 updates of a model of a million parameters or more on the CPU, if
            all of them are trained by optimizers of torch, and goes on where it was faster.
        models: The names of the models that are averaged, where there are several; all of them by default.
        also: Further averages by name with their momentum, as ``{slow: 0.99999}``: each is evaluated as
            ``val_slow_<metric>`` and saved in ``ema_state_dicts``.
        switch: Whether every epoch but the first begins with the average as the weights of the model (switch EMA).

    Reads: model, optimizer.
    Writes: val_raw_<metric> where both are evaluated, val_<name>_<metric> of further averages.
    Saves: ema_state_dict in every checkpoint, ema_state_dicts of further averages.
    """

    momentum: float = 0.9999
    interval: Annotated[int, Ge(1)] = 1
    warm_up: Annotated[int, Ge(0)] = 100
    power: Annotated[float, Gt(0)] | None = None
    resume_from: str | None = None
    update_buffers: bool = False
    begin_iter: Annotated[int, Ge(0)] = 0
    begin_epoch: Annotated[int, Ge(0)] = 0
    accumulate: Annotated[int, Ge(1)] = 1
    evaluate: Literal["ema", "raw", "both"] = "ema"
    sync: Literal["broadcast", "average", "none"] = "broadcast"
    sync_interval: Annotated[int, Ge(0)] = 0
    overlap: bool | Literal["auto"] = "auto"
    models: tuple[str, ...] | None = None
    also: Mapping[str, float] | None = None
    switch: bool = False
    priority: PriorityLike = Priority.ABOVE_NORMAL
    state: EMAState = field(init=False, default_factory=EMAState)

    may_end_a_run: ClassVar[bool] = False
    keeps_averages: ClassVar[bool] = True
    collective: ClassVar[bool] = True

    # First of all: a checkpoint of an iteration holds its average.
    point_priority: ClassVar[Mapping[str, int]] = {"after_train_iter": 95, **PUT_BACK_FIRST}

    def __post_init__(self) -> None:
        elsewhere = (
            "In MMEngine and Ignite's EMAHandler it is the share of the new weights: their 0.0002 is 0.9998 here"
        )
        refuse_other_momentum(self.momentum, "average", elsewhere)
        if self.power is not None and "warm_up" in self.given:
            raise SettingError("power", "is another rise of the momentum than 'warm_up': give one of them")
        when = self.when
        if when.unit == "epoch":
            raise SettingError("interval", "an average moves by iterations: give interval, or every: '10 iter'")
        if when.unit == "iter" and not any(
            (when.start + times * int(when.interval)) % self.accumulate == 0 for times in range(self.accumulate)
        ):
            raise SettingError(
                "interval", f"{when} never meets the end of an optimizer step of {self.accumulate} iterations"
            )
        check_also(self.also, elsewhere)
        self._more: SeveralAverages | None = None
        self._besides = self.update_buffers or self.also is not None
        self._averages: Averages | None = None
        self._beside: Beside | None = None
        self._step_hooks = StepHooks()
        self._ranks = RankSync(self.sync)
        self._run = RunMemory()

    # -- a run ------------------------------------------------------------------------------------------------

    def attached(self) -> None:
        check_models(self.models, names_of(self.runner.model), f"{self.name or type(self).__name__}.models")

    def before_run(self, runner: Runner, model: Any) -> None:
        if self._averages is not None and self._averages.swapped:
            raise RuntimeError("the averages are in the model: leave swap() before the training begins")
        self._step_hooks.optimizer, self._run.warned = runner.optimizer, False
        averages, now = self._averages, unwrapped(chosen(model, self.models))
        if runner.global_step == 0 or (averages is not None and not is_same_model(averages.model, now)):
            self.state, self._averages = EMAState(), None
            if self._more is not None:
                self._more.forget()
        if self.evaluate == "both":
            runner.evaluation_options.extra["raw"] = contextlib.nullcontext
        if self.also:
            from ignite_hooks.model.several_averages import SeveralAverages

            self._more = self._more or SeveralAverages(self.also)
            runner.evaluation_options.extra |= {name: partial(self._more.in_model, name) for name in self.also}

    def before_train(self, runner: Runner) -> None:
        """Begin with the averages of a file; a resumed run, whose checkpoint has been loaded, needs none."""
        self._run.skipped_before = self.state.skipped
        if self._averages is None and runner.global_step == 0 and self.resume_from is not None:
            weights, is_average = averages_in(runner, self.resume_from, self._names)
            self._begin(runner, weights)
            self.state.warmed_up = is_average
        if self._beside is None:
            self._beside = updates_beside(runner, self._model, self._step_hooks, self.overlap, self._catch_up)

    def before_train_epoch(self, runner: Runner) -> None:
        # An epoch that is resumed in its middle has begun before.
        if runner.global_step != runner.state.epoch_began_at:
            return
        if self._averages is None and self._may_begin(runner):
            self._begin(runner)
        elif self.switch and self._averages is not None and self.state_now(runner).differs:
            runner.checkpoints.wait_for_staging()
            self._averages.copy_into_model()

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        step = runner.global_step
        if step % self.accumulate:
            return
        if self._beside is not None:
            self._catch_up(runner)
            self._beside = self._beside.looked()
        state, averages = self.state, self._averages
        if averages is None or state.began_at is None:
            if self._may_begin(runner):
                self._begin(runner)
            return
        runner.checkpoints.wait_for_staging()
        if averages.swapped:
            raise RuntimeError("the averages are in the model: leave swap() before the training continues")
        (averages if self._besides else averages.weights).refresh()
        passed = math.inf if state.warmed_up else (step - 1 - state.began_at) // self.accumulate
        momentum = momentum_at(passed, self.momentum, self.warm_up, self.power)
        if self._besides:
            if self.update_buffers:
                averages.buffers.update(momentum)
            if self._more is not None:
                self._more.update(partial(momentum_at, passed, warm_up=self.warm_up, power=self.power))
        deferred = averages.weights.deferred
        if deferred is not None:
            if deferred.record(momentum, step):
                self._catch_up(runner)
        else:
            made = update_or_begin(averages.weights, momentum, self._beside, runner)
            if made is not None:
                self._count(runner, made, not made)
        if self.sync_interval and When(self.sync_interval, "iter").due(step):
            self._synchronise(runner)

    def before_val_epoch(self, runner: Runner) -> None:
        self._catch_up(runner)
        self._synchronise(runner)
        wanted = runner.evaluation_options.weights or self.evaluate
        if wanted != "raw" and self.state_now(runner).differs and self._swap_in():
            self._run.evaluation = runner.state.evaluating
            assert self._averages is not None
            self._ranks.share_buffers(self._averages)

    def after_val_epoch(self, runner: Runner) -> None:
        """Swap the raw weights back in, unless the averages were in the model before this evaluation.

        The script's own handlers see the averages until the evaluation has ended: they save what was scored.
        """
        if self._run.evaluation is not None and self._run.evaluation == runner.state.evaluating:
            self._swap_out()
            runner.evaluation_options.for_script["averages"] = self.swap

    before_test_epoch = before_val_epoch
    after_val = after_test = after_test_epoch = after_val_epoch

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Add the averages; the weights are the raw ones, even while the averages are in the model."""
        self._synchronise(runner)
        own = self._averages if self._averages is not None and self._averages.swapped else None
        swapped = own or (None if self._more is None else self._more.swapped)
        if swapped is not None and "state_dict" in checkpoint:
            raw = nested(swapped.raw_state_dict(), self._names)
            checkpoint["state_dict"] = raw if self.models is None else {**checkpoint["state_dict"], **raw}
        checkpoint |= self.weights()

    def after_load_checkpoint(self, runner: Runner, checkpoint: Mapping[str, Any]) -> None:
        restored, began_with = self._run.take_restored()
        self._catch_up(runner)
        evaluation, swapped = self._run.evaluation, self._averages is not None and self._averages.swapped
        if self._averages is not None:
            # The checkpoint was loaded into what is in the model.
            self._averages.keep_as_raw()
            self._swap_out()
        self._averages = None
        self._run.more = {
            name: flat_averages(one, self._names) for name, one in checkpoint.get("ema_state_dicts", {}).items()
        }
        found = checkpoint.get("ema_state_dict")
        if found is None:
            runner.logger.warning("the checkpoint holds no averages: they begin as its weights")
            self.state = EMAState()
            if self._may_begin(runner):
                self._begin(runner)
        elif not restored:
            self._begin(runner, flat_averages(found, self._names))
            self.state = EMAState(began_at=runner.global_step, warmed_up=True)
        elif self.state.began_at is not None:
            began_at = self.state.began_at
            self._begin(runner, flat_averages(found, self._names) if began_with is None else began_with)
            self.state.began_at = began_at
        if swapped and self._swap_in():
            self._run.evaluation = evaluation

    def on_exception(self) -> None:
        self._swap_out()

    def switched_off(self) -> None:
        self._swap_out()
        for name in ("raw", *(self.also or ())):
            self.runner.evaluation_options.extra.pop(name, None)

    def cleanup(self, runner: Runner) -> None:
        self.switched_off()
        try:
            self._catch_up(runner)
        finally:
            if self._beside is not None:
                self._beside.close()
            self._beside = None
            self._step_hooks.clear()
        skipped = self.state_now(runner).skipped - self._run.skipped_before
        if skipped:
            runner.logger.warning("updates of the average left out, as the weights were not finite: %d", skipped)

    # -- by hand ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def swap(self) -> Iterator[None]:
        """Put the averages into the model, in a run or outside of one; before the first update nothing changes.

        Example:
            >>> EMAHook(momentum=0.999).momentum
            0.999
        """
        is_ours = self._swap_in()
        try:
            yield
        finally:
            if is_ours:
                self._swap_out()

    def weights(self) -> dict[str, Any]:
        """Return the averages by name, not copied; before the first update the weights of the model."""
        from ignite_hooks.model.averages import state_of

        self._catch_up(None)
        differs = self._averages is not None and self.state.differs
        found = self._averages.state_dict() if self._averages and differs else state_of(self._model)
        more = {} if self._more is None else self._more.state_dict(self._names)
        return {"ema_state_dict": nested(found, self._names), **more}

    def load_weights(self, found: Mapping[str, Any]) -> None:
        """Load what `weights` has returned."""
        self._catch_up(None)
        self.runner.checkpoints.wait_for_staging()
        if self._averages is not None:
            self._averages.load_state_dict(flat_averages(found["ema_state_dict"], self._names))
        if self._more is not None:
            self._more.load(found, self._names)

    def steady_tensors(self) -> list[Tensor]:
        """Return the tensors that change only after `runner.checkpoints.wait_for_staging`."""
        more = [] if self._more is None else self._more.tensors()
        return more if self._averages is None else [*self._averages.tensors(), *more]

    def state_now(self, runner: Runner | None = None) -> EMAState:
        """Return the progress, with the updates of the thread and those counted by a device."""
        self._catch_up(runner)
        if self._averages is not None:
            skipped = self._averages.weights.take_skipped()
            self._count(runner, -skipped, skipped)
        return self.state

    def state_dict(self) -> dict[str, Any]:
        """Return the progress and, before the first update, the weights that the average has begun as."""
        self.state_now()
        saved = super().state_dict()
        if self._averages is not None and not self.state.differs:
            saved["began_with"] = self._averages.state_dict()
        return saved

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._catch_up(None)
        super().load_state_dict(state)
        self._run.restored, self._run.began_with = True, state.get("began_with")

    # -- how --------------------------------------------------------------------------------------------------

    @property
    def _model(self) -> Any:
        return unwrapped(chosen(self.runner.model, self.models))

    @property
    def _names(self) -> list[str] | None:
        return names_of(chosen(self.runner.model, self.models))

    def _may_begin(self, runner: Runner) -> bool:
        from ignite_hooks.model.wrapping import is_lazy_model

        is_time = runner.global_step >= self.begin_iter and runner.epoch >= self.begin_epoch
        return is_time and not is_lazy_model(self._model)

    def _begin(self, runner: Runner, found: Mapping[str, Any] | None = None) -> None:
        """Begin with given averages, or as the weights of the model."""
        from ignite_hooks.model.averages import Averages

        averages = Averages(self._model, buffers=self.update_buffers, deferrable=self._beside is None)
        if found is not None:
            averages.load_state_dict(found)
        self._ranks.begin(averages)
        if self._more is not None:
            more, self._run.more = self._run.more, {}
            broadcast = self.sync != "none" and world_size() > 1
            self._more.begin(averages.model, more, buffers=self.update_buffers, broadcast=broadcast)
        self._averages, self.state.began_at = averages, runner.global_step

    def _synchronise(self, runner: Runner) -> None:
        if self._averages is not None and self._ranks.is_due(runner.global_step):
            self._catch_up(runner)
            self._ranks.synchronise(runner, self._averages, self.state.updates)

    def _count(self, runner: Runner | None, made: int, skipped: int, iteration: int | None = None) -> None:
        self.state.updates += made
        self.state.skipped += skipped
        if skipped and not self._run.warned:
            self._run.warned, runner = True, runner or self.runner
            iteration = runner.global_step if iteration is None else iteration
            runner.logger.warning(
                "weights are not finite: the average continues without them (iteration %d)", iteration
            )

    def _swap_in(self) -> bool:
        """Put the averages into the model; return whether they were not in it before."""
        averages = self._averages
        self._catch_up(None)
        if averages is None or averages.swapped or not self.state.differs:
            return False
        averages.swap_in()
        self._step_hooks.add("swapped", refuse_step)
        return True

    def _swap_out(self) -> None:
        if self._beside is not None:
            self._beside.worker.wait()
        self._run.evaluation = None
        self._step_hooks.remove("swapped")
        for each in (self._averages, self._more):
            if each is not None:
                each.swap_out()

    def _catch_up(self, runner: Runner | None) -> None:
        """Finish all updates, those of the thread and deferred ones, and count them."""
        done = None if self._beside is None else self._beside.worker.result()
        if done is not None:
            self._count(runner, done, not done)
        if self._averages is not None:
            made, left_out = self._averages.catch_up()
            self._count(runner, made, len(left_out), left_out[0] if left_out else None)
