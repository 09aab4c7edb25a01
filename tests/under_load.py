"""Runs all tests beside a busy loop on each core, with files that are written and synchronised slowly; ``make load``.

``python -m tests.under_load [ROUNDS]``: three rounds by default. Exits 1 where a test of any round failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

SOURCE = Path(__file__).with_name("slow_files.c")

PROCESSES = 5
"""For each core: most of the time they wait for slow files."""


def main() -> int:
    """Run the rounds one after the other; the same files are slow in all of them."""
    rounds, cores = int(sys.argv[1]) if len(sys.argv) > 1 else 3, os.cpu_count() or 1
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
        for _ in range(cores):
            stack.callback(_end, subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        codes = []
        for number in range(1, rounds + 1):
            print(f"round {number} of {rounds}, beside busy loops and with slow files", flush=True)
            command = [sys.executable, "-m", "tests", "--numprocesses", str(PROCESSES * cores)]
            codes.append(subprocess.run(command, env=environment(folder), check=False).returncode)
        print("exit codes of the rounds:", *codes)
    return int(any(codes))


def environment(folder: Path) -> dict[str, str]:
    """Return the variables with which the temporary files of a process are slow.

    Args:
        folder: An empty folder: the library is built there, and temporary files go to a folder in it.
    """
    library, files = folder / "slow_files.so", folder / "files"
    if not library.exists():
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    files.mkdir(exist_ok=True)
    before = os.environ.get("LD_PRELOAD", "")
    preload = f"{library}:{before}" if before else str(library)
    return {**os.environ, "LD_PRELOAD": preload, "SLOW_FILES": str(files), "TMPDIR": str(files)}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
