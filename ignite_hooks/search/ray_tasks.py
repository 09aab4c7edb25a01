"""Trials as tasks of a Ray cluster: Ray finds a machine for each and says when one is lost; the study stays here."""

from __future__ import annotations

import logging
import os
import socket
import tarfile
from collections.abc import Mapping
from typing import Any

from ignite_hooks.run.trials import Trial, stored_trial
from ignite_hooks.search.away import SentJob, run_trial, unpack
from ignite_hooks.search.engines import PATIENCE, Ended, Job, ended_with, threads_of
from ignite_hooks.text import one_line, shortened
from ignite_hooks.trainer.search_section import SearchSection

ANSWERS_WITHIN = 10.0
MISSING = "Ray is needed: pip install 'ignite-hooks[ray]'"


class Judge:
    """Asks the study for trials on other machines, on the machine of the search, where the file of the study is.

    Args:
        pruning: The settings of the `PruningHook` of any trial.
    """

    def __init__(self, pruning: Mapping[str, Any]) -> None:
        self._pruning = pruning
        self._trials: dict[int, Trial] = {}

    def answer(self, number: int, value: float, step: int) -> bool:
        """Report a value of a trial, and return whether the trial is pruned."""
        if number not in self._trials:
            storage, study, pruner = (self._pruning[name] for name in ("storage", "study", "pruner"))
            self._trials[number] = stored_trial(storage, study, number, pruner)
        trial = self._trials[number]
        trial.report(value, step)
        return trial.should_prune()


def run_task(sent: SentJob, judge: Any) -> tuple[int, bytes | None]:
    """Run a trial in a process beside that of the task, and ask the judge for it."""
    import ray

    return run_trial(sent, lambda value, step: bool(ray.get(judge.answer.remote(sent.job.number, value, step))))


def _check_that_it_answers(address: str) -> None:
    """Raise an error at once where nothing listens at an address: Ray would wait for many minutes."""
    if "://" in address:
        raise ValueError(f"{address} is the address of a client: start the search on a machine of the cluster")
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS_WITHIN).close()


def _words(error: Exception) -> str:
    """Return what Ray says of a lost task, without the advice that follows."""
    return shortened(str(error).split("\n")[0].split(". ")[0], 100) or type(error).__name__


class RayTasks:
    """Trials as tasks of a Ray cluster.

    Args:
        section: What every trial may have.

    Raises:
        ImportError: If Ray is not installed.
        ValueError: If there is no such cluster, or the search cannot run from here.
    """

    def __init__(self, section: SearchSection) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError(MISSING) from error
        self._ray, self._section = ray, section
        self._running: dict[Any, Job] = {}
        self._judge: Any = None
        self._connected = False
        if not ray.is_initialized():
            address = section.engine_settings.address
            address = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
            message = f"no Ray cluster at {address!r}: start one with 'ray start --head', or name its address"
            try:
                _check_that_it_answers(address)
                ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
            except OSError as error:
                raise ValueError(f"{message} ({one_line(error)})") from error
            self._connected = True
        self._warn_of_size()

    def start(self, job: Job) -> None:
        """Submit a task."""
        ray, section = self._ray, self._section
        if self._judge is None:
            here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            made = ray.remote(Judge).options(num_cpus=0, scheduling_strategy=here)
            self._judge = made.remote(job.pruning)
        settings = {"num_cpus": threads_of(section), "num_gpus": section.gpus, "name": f"trial {job.number}"}
        # Ray does not repeat it: the study would not know.
        task = ray.remote(run_task).options(max_retries=0, **settings)
        shown = Job(job.number, job.config, job.folder, job.log, {n: job.pruning[n] for n in ("monitor", "mode")})
        sent = SentJob(shown, job.config.read_bytes(), os.getcwd(), threads_of(section))
        self._running[task.remote(sent, self._judge)] = job

    def ended(self) -> list[Ended]:
        """Return the trials whose tasks have ended."""
        if not self._running:
            return []
        refs = list(self._running)
        ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        return [self._end(ref) for ref in ready]

    def close(self) -> None:
        """Cancel what is running, and leave the cluster."""
        refs = list(self._running)
        for ref in refs:
            self._ray.cancel(ref)
        if refs:
            self._ray.wait(refs, num_returns=len(refs), timeout=PATIENCE + 5)
        self._running.clear()
        if self._judge is not None:
            self._ray.kill(self._judge)
        if self._connected:
            self._ray.shutdown()

    def _end(self, ref: Any) -> Ended:
        job, errors = self._running.pop(ref), self._ray.exceptions
        try:
            code, content = self._ray.get(ref)
        except errors.TaskCancelledError:
            return Ended(job.number, killed="cancelled")
        except errors.RayTaskError as error:
            # Our code was running there, and has failed: it would again.
            return Ended(job.number, 1, reason=one_line(error.cause))
        except errors.RayError as error:
            return Ended(job.number, killed=_words(error))
        try:
            if content is not None:
                unpack(content, job)
        except tarfile.TarError as error:
            return Ended(job.number, 1, reason=f"its files cannot be unpacked here: {one_line(error)}")
        return ended_with(job.number, code)

    def _warn_of_size(self) -> None:
        """Say so if no machine has room for a trial: Ray waits then, as a cluster that grows may get one."""
        wanted = {"CPU": threads_of(self._section), "GPU": self._section.gpus or 0}
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if not any(all(has.get(name, 0) >= number for name, number in wanted.items()) for has in nodes):
            needs = " and ".join(f"{number} {name}s" for name, number in wanted.items() if number)
            logging.getLogger(__name__).warning("no machine of the Ray cluster has %s now: trials wait for one", needs)
