"""Runs all tests in random order, shared by as many processes as keep the cores busy."""

from __future__ import annotations

import os
import random
import subprocess
import sys

SEED = "--randomly-seed="


def main() -> int:
    """Run the tests; whatever process is done first takes tests from the others."""
    seed = next((each for each in sys.argv[1:] if each.startswith(SEED)), f"{SEED}{random.randrange(2**32)}")
    print(f"in random order; to repeat it: python -m tests {seed}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "--numprocesses", str(processes()), "--dist", "worksteal", seed]
    # Child processes would compile the package again and again.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["IGNITE_HOOKS_EVERYTHING"] = "1"
    code = subprocess.run([*command, *sys.argv[1:]], env=environment, check=False).returncode
    # A process that a signal has ended has a code below 0.
    return max(code, 1) if code else 0


def processes() -> int:
    """Return one more than there are cores: tests that start processes or servers mostly wait."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return usable + 1


if __name__ == "__main__":
    sys.exit(main())
