"""What the launcher of this process says: torchrun and Slurm count restarts, and Slurm starts a job again if asked."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping

RESTART_COUNTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
"""The variables in which launchers count how often they have restarted a run."""

LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")

SLURM_JOB = "SLURM_JOB_ID"

SECONDS_TO_REQUEUE = 30.0
"""The time that Slurm's controller has to answer."""


def restarted(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the variable that counts restarts, with its value, if the launcher has restarted this run.

    Example:
        >>> restarted({"SLURM_RESTART_COUNT": "2"}), restarted({"TORCHELASTIC_RESTART_COUNT": "0"})
        ('SLURM_RESTART_COUNT=2', None)
    """
    variables = os.environ if environment is None else environment
    for name in RESTART_COUNTS:
        value = variables.get(name, "").strip()
        if value.isdecimal() and int(value) > 0:
            return f"{name}={value}"
    return None


def slurm_job() -> str | None:
    """Return the number of the Slurm job that this process belongs to."""
    number = os.environ.get(SLURM_JOB, "")
    return number if number.isdecimal() else None


def requeue(job: str) -> str | None:
    """Ask Slurm to put a running job back into its queue; return what went wrong, or None.

    Slurm then ends the job with SIGTERM, and starts it again under the same number.
    """
    command = ["scontrol", "requeue", job]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS_TO_REQUEUE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    # Slurm may end this command together with the job, once it has been heard.
    if done.returncode <= 0:
        return None
    return " ".join(done.stderr.split()) or f"{' '.join(command)} ended with code {done.returncode}"


def command() -> str:
    """Return the command that has started this process, or its launcher, as one line."""
    import psutil

    words = list(sys.orig_argv)
    try:
        launcher = psutil.Process().parent()
        started = [] if launcher is None else launcher.cmdline()
    except psutil.Error:
        started = []
    if any(word.endswith(LAUNCHERS) for word in started):
        words = started
    return shlex.join(words)
