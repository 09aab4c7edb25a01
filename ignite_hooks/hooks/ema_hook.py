"""Keeps an exponential moving average of the weights, and evaluates with it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ignite_hooks.checkpoint.capture import unwrapped
from ignite_hooks.distributed.collectives import all_gather, world_size
from ignite_hooks.errors import CheckpointError, SettingError, refuse_other_momentum
from ignite_hooks.hooks.base_hook import BaseHook, PriorityLike, settings
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When, scheduled

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from torch import Tensor

    from ignite_hooks.model.averages import Averages
    from ignite_hooks.run.runner import Runner


@dataclass
class Progress:
    """What this hook remembers."""

    began_at: int | None = None
    """The iteration after which the average was the weights of the model; None before it begins."""
    warmed_up: bool = False
    """Whether the average came from elsewhere, so that a warm-up would only wipe it out."""
    updates: int = 0
    skipped: int = 0

    @property
    def differs(self) -> bool:
        """Whether there is an average yet, apart from the weights it began as."""
        return self.warmed_up or self.updates > 0


@settings
class EMAHook(BaseHook):
    """Keep an exponential moving average of the weights, evaluate with it and save it.

    After each optimizer step ``average = m * average + (1 - m) * weights``. In the n-th step since the average began,
    counted from 0, m is ``min(momentum, (1 + n) / (warm_up + n))``. Weights that are not finite are left out.

    With ``overlap`` nothing but the optimizer may change the weights between two of its steps.

    Args:
        momentum: The share of the average that is kept, near 1; other libraries call 0.0002 what is 0.9998 here.
        interval: How many iterations lie between two updates.
        warm_up: How slowly the momentum rises to its value, in optimizer steps; 0 for the full momentum at once.
        resume_from: A checkpoint, relative to the work directory, whose averages a fresh run begins with; they are
            not warmed up again. Without averages its weights are taken.
        update_buffers: Whether floating-point buffers are averaged too; otherwise those of the model are used.
        begin_iter: The iterations that have to be over before the average begins, as the weights of that moment.
        begin_epoch: The epochs that have to be over before the average begins.
        accumulate: How many iterations an optimizer step takes; the average moves at multiples of it.
        evaluate: Whether evaluations see the average, the raw weights, or first the raw weights and then the average.
        sync: How the averages of several ranks are made equal: those of rank 0 count, their mean does, or none are.
        sync_interval: The iterations between two times this is done, besides evaluations and checkpoints.
        overlap: Whether an update runs beside the next forward and backward pass, on the CPU; needs a spare core.

    Reads: model, optimizer.
    Writes: val_raw_<metric> where both are evaluated.
    Saves: ema_state_dict in every checkpoint.
    """

    momentum: float = 0.9999
    interval: Annotated[int, Ge(1)] = 1
    warm_up: Annotated[int, Ge(0)] = 100
    resume_from: str | None = None
    update_buffers: bool = False
    begin_iter: Annotated[int, Ge(0)] = 0
    begin_epoch: Annotated[int, Ge(0)] = 0
    accumulate: Annotated[int, Ge(1)] = 1
    evaluate: Literal["ema", "raw", "both"] = "ema"
    sync: Literal["broadcast", "average", "none"] = "broadcast"
    sync_interval: Annotated[int, Ge(0)] = 0
    overlap: bool = False
    priority: PriorityLike = Priority.ABOVE_NORMAL
    state: Progress = field(init=False, default_factory=Progress)

    may_end_a_run: ClassVar[bool] = False
    collective: ClassVar[bool] = True

    # First of all: a checkpoint of an iteration holds its average, and what follows an evaluation sees raw weights.
    point_priority: ClassVar[Mapping[str, int]] = {
        "after_train_iter": 95,
        "after_val_epoch": 95,
        "after_test_epoch": 95,
    }

    def __post_init__(self) -> None:
        elsewhere = "MMEngine and Ignite's EMAHandler call the other share so, whose 0.0002 is 0.9998 here"
        refuse_other_momentum(self.momentum, "average", elsewhere)
        when = self.when
        if when.unit == "epoch":
            raise SettingError("interval", "an average moves by iterations: give interval, or every: '10 iter'")
        around = range(when.start + 1, when.start + 1 + int(when.interval) * self.accumulate)
        if when.unit == "iter" and not any(when.due(n) and n % self.accumulate == 0 for n in around):
            raise SettingError(
                "interval", f"{when} never meets the end of an optimizer step of {self.accumulate} iterations"
            )
        self._averages: Averages | None = None
        self._optimizer: Any = None
        self._evaluation: str | None = None
        self._restored = False
        self._began_with: Mapping[str, Any] | None = None
        self._watches: dict[str, Any] = {}
        self._worker: ThreadPoolExecutor | None = None
        self._pending: Future[bool] | None = None
        self._skipped_before = 0
        self._synced_at = -1
        self._told_of_drift = False
        self._warned = False

    # -- a run ------------------------------------------------------------------------------------------------

    def before_run(self, runner: Runner, model: Any) -> None:
        if self._averages is not None and self._averages.inside:
            raise RuntimeError("the averages are in the model: leave swap() before the training begins")
        self._optimizer, self._warned = runner.optimizer, False
        if runner.global_step == 0 or (self._averages is not None and self._averages.model is not unwrapped(model)):
            self.state, self._averages = Progress(), None
        if self.evaluate == "both":
            runner.evaluation_options.extra["raw"] = contextlib.nullcontext

    def before_train(self, runner: Runner) -> None:
        """After a checkpoint has been loaded, so that a resumed run needs no file to begin with."""
        self._skipped_before = self.state.skipped
        if self._averages is None and runner.global_step == 0 and self.resume_from is not None:
            self._take_from(runner, (runner.work_dir / (self.resume_from or "")))
        if self.overlap:
            self._prepare_overlap(runner)

    def before_train_epoch(self, runner: Runner) -> None:
        # One that is resumed in its middle has begun before.
        if self._averages is None and runner.global_step == runner.state.epoch_began_at and self._may_begin(runner):
            self._begin(runner)

    @scheduled
    def after_train_iter(self, runner: Runner) -> None:
        step = runner.global_step
        if step % self.accumulate:
            return
        if self._pending is not None:
            self._join(runner)
        state, averages = self.state, self._averages
        if averages is None or state.began_at is None:
            if self._may_begin(runner):
                self._begin(runner)
            return
        runner.wait_for_copy()
        if averages.inside:
            raise RuntimeError("the averages are in the model: leave swap() before the training goes on")
        averages.refresh()
        passed = math.inf if state.warmed_up else (step - 1 - state.began_at) // self.accumulate
        momentum = momentum_at(passed, self.momentum, self.warm_up)
        if self.update_buffers:
            averages.buffers.update(momentum)
        later = averages.weights.later
        if self._worker is not None:
            self._pending = self._worker.submit(averages.weights.update, momentum)
        elif later is not None:
            if later.take_down(momentum, step):
                self._join(runner)
        else:
            self._count(runner, averages.weights.update(momentum))
        if self.sync_interval and When(self.sync_interval, "iter").due(step):
            self._synchronise(runner)

    def before_val_epoch(self, runner: Runner) -> None:
        self._synchronise(runner)
        if self.evaluate != "raw" and self.state_now(runner).differs and self._put_in():
            self._evaluation = runner.state.evaluating

    def after_val_epoch(self, runner: Runner) -> None:
        """Give the raw weights back, unless somebody else has put the averages in."""
        if self._evaluation is not None and self._evaluation == runner.state.evaluating:
            self._take_out()

    before_test_epoch = before_val_epoch
    after_val = after_test = after_test_epoch = after_val_epoch

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Add the averages; the weights are the raw ones, whatever the model shows."""
        self._synchronise(runner)
        if self._averages is not None and self._averages.inside and "state_dict" in checkpoint:
            checkpoint["state_dict"] = self._averages.raw_state_dict()
        checkpoint |= self.weights()

    def after_load_checkpoint(self, runner: Runner, checkpoint: Mapping[str, Any]) -> None:
        restored, self._restored = self._restored, False
        self._join(runner)
        evaluation, inside = self._evaluation, self._averages is not None and self._averages.inside
        if self._averages is not None:
            # The checkpoint went into what the model shows.
            self._averages.keep_as_raw()
            self._take_out()
        self._averages = None
        found = checkpoint.get("ema_state_dict")
        if found is None:
            runner.logger.warning("the checkpoint holds no averages: they begin as its weights")
            self.state = Progress()
            if self._may_begin(runner):
                self._begin(runner)
        elif not restored:
            self._begin(runner, found)
            self.state = Progress(began_at=runner.global_step, warmed_up=True)
        elif self.state.began_at is not None:
            began_at = self.state.began_at
            self._begin(runner, found if self._began_with is None else self._began_with)
            self.state.began_at = began_at
        self._began_with = None
        if inside and self._put_in():
            self._evaluation = evaluation

    def on_exception(self) -> None:
        self._take_out()

    def cleanup(self, runner: Runner) -> None:
        self._take_out()
        runner.evaluation_options.extra.pop("raw", None)
        try:
            self._join(runner)
        finally:
            if self._worker is not None:
                self._worker.shutdown()
            self._worker = None
            for watch in self._watches.values():
                watch.remove()
            self._watches.clear()
        skipped = self.state_now(runner).skipped - self._skipped_before
        if skipped:
            runner.logger.warning("updates of the average left out, as the weights were not finite: %d", skipped)

    # -- by hand ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def swap(self) -> Iterator[None]:
        """Let the model show the averages, in a run or outside of one; before the first update nothing changes.

        Example:
            >>> EMAHook(momentum=0.999).momentum
            0.999
        """
        mine = self._put_in()
        try:
            yield
        finally:
            if mine:
                self._take_out()

    def weights(self) -> dict[str, Any]:
        """The averages by name, not copied; before the first update the weights of the model."""
        from ignite_hooks.model.averages import state_of

        self._join(None)
        if self._averages is not None and self.state.differs:
            return {"ema_state_dict": self._averages.state_dict()}
        return {"ema_state_dict": state_of(unwrapped(self.runner.model))}

    def load_weights(self, found: Mapping[str, Any]) -> None:
        """Put back what `weights` gave."""
        self._join(None)
        self.runner.wait_for_copy()
        if self._averages is not None:
            self._averages.load_state_dict(found["ema_state_dict"])

    def steady_tensors(self) -> list[Tensor]:
        """The tensors that change only after `runner.wait_for_copy`."""
        return [] if self._averages is None else self._averages.tensors()

    def state_now(self, runner: Runner | None = None) -> Progress:
        """The progress, with what ran beside the training or was counted by a device."""
        self._join(runner)
        if self._averages is not None:
            skipped = self._averages.weights.take_skipped()
            self.state.updates -= skipped
            self._count_skipped(runner, skipped)
        return self.state

    def state_dict(self) -> dict[str, Any]:
        """The progress and, before the first update, the weights the average has begun as."""
        self.state_now()
        saved = super().state_dict()
        if self._averages is not None and not self.state.differs:
            saved["began_with"] = self._averages.state_dict()
        return saved

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._join(None)
        super().load_state_dict(state)
        self._restored, self._began_with = True, state.get("began_with")

    # -- how --------------------------------------------------------------------------------------------------

    def _may_begin(self, runner: Runner) -> bool:
        from ignite_hooks.model.averages import is_lazy_model

        step, epoch = runner.global_step, runner.epoch
        return step >= self.begin_iter and epoch >= self.begin_epoch and not is_lazy_model(unwrapped(runner.model))

    def _begin(self, runner: Runner, found: Mapping[str, Any] | None = None) -> None:
        """Begin with given averages, or as the weights of the model."""
        from ignite_hooks.model.averages import Averages

        averages = Averages(unwrapped(runner.model), buffers=self.update_buffers, patient=self._worker is None)
        if found is not None:
            averages.load_state_dict(found)
        if self.sync != "none" and world_size() > 1:
            averages.broadcast()
        self._averages, self.state.began_at, self._synced_at = averages, runner.global_step, -1

    def _synchronise(self, runner: Runner) -> None:
        """Make the averages of all ranks equal, and tell which had drifted."""
        averages = self._averages
        if averages is None or world_size() == 1 or self._synced_at == runner.global_step:
            return
        self._synced_at = runner.global_step
        self._join(runner)
        digests = all_gather([self.state.updates, averages.digest()])
        drifted = [str(number) for number, digest in enumerate(digests) if digest != digests[0]]
        if drifted and not self._told_of_drift:
            self._told_of_drift = True
            runner.logger.warning(
                "iteration %d: the averages of rank %s differ from those of rank 0 (sync: %s)",
                runner.global_step,
                ", ".join(drifted),
                self.sync,
            )
        if drifted and self.sync != "none":
            runner.wait_for_copy()
            averages.broadcast() if self.sync == "broadcast" else averages.take_mean()

    def _take_from(self, runner: Runner, path: Path) -> None:
        found = runner.store(path.parent).load(path)
        weights = found.get("ema_state_dict", found.get("state_dict"))
        if weights is None:
            raise CheckpointError(f"resume_from: {path} has neither 'ema_state_dict' nor 'state_dict'")
        try:
            self._begin(runner, weights)
        except CheckpointError as error:
            raise CheckpointError(f"resume_from: {path}: {error}") from None
        self.state.warmed_up = "ema_state_dict" in found

    def _count(self, runner: Runner | None, done: bool) -> None:
        self.state.updates += done
        self._count_skipped(runner, not done)

    def _count_skipped(self, runner: Runner | None, skipped: int, iteration: int | None = None) -> None:
        self.state.skipped += skipped
        if skipped and not self._warned:
            self._warned, runner = True, runner or self.runner
            iteration = runner.global_step if iteration is None else iteration
            runner.logger.warning("weights are not finite: the average goes on without them (iteration %d)", iteration)

    def _put_in(self) -> bool:
        """Whether the averages are in the model now and were not before."""
        averages = self._averages
        self._join(None)
        if averages is None or averages.inside or not self.state.differs:
            return False
        averages.put_in()
        self._watch_steps("swapped", refuse_step)
        return True

    def _take_out(self) -> None:
        self._evaluation = None
        if "swapped" in self._watches:
            self._watches.pop("swapped").remove()
        if self._averages is not None:
            self._averages.take_out()

    def _watch_steps(self, name: str, before_step: Callable[..., None]) -> None:
        register = getattr(self._optimizer, "register_step_pre_hook", None)
        if register is not None:
            self._watches[name] = register(before_step)

    # -- beside the training ----------------------------------------------------------------------------------

    def _prepare_overlap(self, runner: Runner) -> None:
        reason = why_in_line(runner.model, self._optimizer)
        if reason is not None:
            runner.logger.info("overlap is off: %s", reason)
        elif self._worker is None:
            self._worker = one_worker()
            self._watch_steps("overlap", lambda *_: self._join(runner))

    def _join(self, runner: Runner | None) -> None:
        """Have all updates made, those beside the training and those that wait for others, and count them."""
        if self._pending is not None:
            future, self._pending = self._pending, None
            self._count(runner, future.result())
        if self._averages is not None:
            made, left_out = self._averages.catch_up()
            self.state.updates += made
            if left_out:
                self._count_skipped(runner, len(left_out), left_out[0])


def momentum_at(step: float, momentum: float, warm_up: int) -> float:
    """The momentum of the optimizer step of this 0-based number.

    Example:
        >>> momentum_at(0, 0.9999, 100), momentum_at(98, 0.9999, 100), momentum_at(0, 0.9999, 0)
        (0.01, 0.5, 0.9999)
    """
    if warm_up == 0 or step == math.inf:
        return momentum
    warm = (1 + step) / (warm_up + step)
    return warm if warm < momentum else momentum


def why_in_line(model: Any, optimizer: Any) -> str | None:
    """What keeps updates from running beside the training, or None."""
    if not hasattr(optimizer, "register_step_pre_hook"):
        return "no optimizer was given whose steps can be waited for"
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if trained - known:
        return "the optimizer that was given does not train all of the model"
    if any(tensor.device.type != "cpu" or hasattr(tensor, "_local_tensor") for tensor in model.parameters()):
        return "not all of the model is in the memory of the CPU"
    return None


def one_worker() -> ThreadPoolExecutor:
    """A thread that leaves the other cores to the training."""
    from concurrent.futures import ThreadPoolExecutor

    import torch

    def take_one_core() -> None:
        # A thread takes the common number the first time it asks, whatever it has been given before.
        torch.get_num_threads()
        torch.set_num_threads(1)

    worker, threads = ThreadPoolExecutor(1, thread_name_prefix="EMAHook"), torch.get_num_threads()
    worker.submit(take_one_core).result()
    # That has also set the common number, with which later threads begin.
    torch.set_num_threads(threads)
    return worker


def refuse_step(*_: Any) -> None:
    """Before an optimizer step while the averages are in the model."""
    raise RuntimeError("the averages are in the model: an optimizer step would change them, leave swap() before it")
