"""What a run does besides training because it was asked from outside: by a signal, or by ``ignite-hooks tell``."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from ignite_hooks.distributed.collectives import is_main_process, world_size
from ignite_hooks.distributed.launcher import SLURM_JOB, requeue, slurm_job
from ignite_hooks.engine.evaluation import evaluate
from ignite_hooks.engine.stop_vote import Order
from ignite_hooks.engine.tell import Listener
from ignite_hooks.errors import ConfigError
from ignite_hooks.plan.methods import method_of
from ignite_hooks.run.ranking import is_training_name

if TYPE_CHECKING:
    from ignite_hooks.engine.stop_vote import Stopping
    from ignite_hooks.engine.tell import Take
    from ignite_hooks.run.runner import Runner


class Orders:
    """The orders of one run; all ranks obey them after the same iteration.

    Args:
        runner: The run.
        stopping: Where the ranks agree on orders.
        requeues: Whether a save that a signal has asked for makes Slurm start the job again.
    """

    def __init__(self, runner: Runner, stopping: Stopping, *, requeues: bool) -> None:
        self._runner, self._stopping, self._requeues = runner, stopping, requeues
        self._listener: Listener | None = None
        self._alone = True

    def begin(self) -> None:
        """Listen to orders from outside: on rank 0 alone, which tells the others."""
        if not is_main_process():
            return
        runner, self._alone = self._runner, world_size() == 1
        if self._requeues and slurm_job() is None:
            runner.logger.info("requeue has no effect: this is no Slurm job (%s is not set)", SLURM_JOB)
        reference = weakref.ref(self)  # the thread must not keep a run that was interrupted

        def take() -> Take | None:
            orders = reference()
            return None if orders is None else orders.take

        self._listener = Listener(runner.work_dir, take, runner.logger)
        self._listener.begin()

    def end(self) -> None:
        """Stop listening, at the end of the run."""
        listener, self._listener = self._listener, None
        if listener is not None:
            reason = self._runner.stop_reason
            listener.end("the run has ended" + (f": {reason}" if reason else ""))

    def take(self, word: str) -> str | None:
        """Ask the ranks to obey an order; return why they cannot. Called by the thread that listens."""
        if not self._alone and not self._stopping.vote.needed:
            return "with several ranks, a run needs a hook that may end it, such as a CheckpointHook"
        if word == "stop":
            self._stopping.request("told to stop")
        elif word == "save" and not self._savers():
            return "no hook saves: add a CheckpointHook"
        elif word == "evaluate" and not self._evaluations():
            return "nothing evaluates: pass evaluators=... or val_loader=... to attach_hooks()"
        else:
            self._stopping.order(Order.SAVE if word == "save" else Order.EVALUATE)
        return None

    def obey(self) -> None:
        """Do what the ranks have agreed on; every rank must call this at the same point."""
        due = self._stopping.take_due()
        if Order.SAVE in due:
            self._save(requeues=Order.REQUEUE in due)
        if Order.EVALUATE in due:
            self._evaluate()

    def complete(self) -> None:
        """Answer and requeue once the last file of a run that was stopped is committed."""
        runner = self._runner
        if runner.state.requeue_at_end:
            self._requeue()
        self._answer("stop", f"stopped after iteration {runner.global_step}")

    def _savers(self) -> list[object]:
        return [hook for hook in self._runner.hooks.values() if method_of(hook, "save_now")]

    def _evaluations(self) -> list[str]:
        return [name for name in self._runner.evaluators if name != "test" and not is_training_name(name)]

    def _save(self, *, requeues: bool) -> None:
        runner, signals = self._runner, self._stopping.signals
        saved: list[Path | None] = [hook.save_now(runner) for hook in self._savers()]  # type: ignore[attr-defined]
        if all(saved):
            names = ", ".join(path.name for path in saved if path)
            runner.logger.info("saved %s at iteration %d, as asked", names, runner.global_step)
            self._answer("save", f"saved {', '.join(map(str, saved))} at iteration {runner.global_step}")
            if requeues:
                self._requeue()
        else:
            self._answer("save", "the save has failed: see the log of the run", state="refused")
            if requeues:
                runner.logger.error("the job is not requeued, as its state could not be saved")
        if signals is not None:
            signals.call_script()

    def _evaluate(self) -> None:
        runner = self._runner
        found: dict[str, object] = {}
        try:
            for name in self._evaluations():
                found |= {f"{name}_{metric}": value for metric, value in evaluate(name, runner).items()}
        except ConfigError as error:
            self._answer("evaluate", str(error), state="refused")
            return
        numbers = ", ".join(f"{n} {v:.6g}" for n, v in found.items() if isinstance(v, (int, float)))
        self._answer("evaluate", f"iteration {runner.global_step}: {numbers or 'evaluated'}")

    def _requeue(self) -> None:
        job = slurm_job()
        if self._stopping.signals is not None:
            self._stopping.signals.expects_end = job is not None
        if job is None or not is_main_process():
            return
        logger = self._runner.logger
        if (problem := requeue(job)) is None:
            logger.info("job %s is requeued: Slurm starts it again", job)
        else:
            logger.error("job %s cannot be requeued: %s; submit it again by hand", job, problem)

    def _answer(self, word: str, text: str, *, state: str = "done") -> None:
        if self._listener is not None:
            self._listener.answer(word, text, state=state)
