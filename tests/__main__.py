"""Runs all tests on two cores, in random order: slow ones, which mostly wait for child processes, beside the others."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile

SLOW = "slow or faults"
SEED = "--randomly-seed="
NO_TESTS = 5
"""What pytest exits with where nothing was to be run."""


def main() -> int:
    """Run both halves in a random order; the output of the slow one comes after that of the other."""
    seed = next((each for each in sys.argv[1:] if each.startswith(SEED)), f"{SEED}{random.randrange(2**32)}")
    print(f"in random order; to repeat it: python -m tests {seed}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", seed, *sys.argv[1:]]
    with tempfile.TemporaryFile() as output:
        slow = subprocess.Popen([*command, "-m", SLOW], stdout=output, stderr=subprocess.STDOUT)
        try:
            quick = subprocess.run([*command, "-m", f"not ({SLOW})"], check=False).returncode
            print(f"\nthe tests that are {SLOW}:\n", flush=True)
            codes = {quick, slow.wait()}
        finally:
            slow.terminate()
            slow.wait()
        output.seek(0)
        sys.stdout.buffer.write(output.read())
    # A process that a signal has ended has a code below 0.
    return 1 if codes - {0, NO_TESTS} else min(codes)


if __name__ == "__main__":
    sys.exit(main())
