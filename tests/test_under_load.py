"""The slow disk of ``make load`` is slow where it should be, and nowhere else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.under_load import environment

SCRIPT = """
import os, sys, time
def seconds(path):
    with open(path, "wb", buffering=0) as file:
        begin = time.monotonic()
        file.write(b"x" * 4_000_000)
        written = time.monotonic()
        os.fsync(file.fileno())
        return written - begin, time.monotonic() - written
print(*seconds(os.environ["TMPDIR"] + "/slow"), *seconds(sys.argv[1]))
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_files_below_the_folder_are_slow(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "fast")]
    slow = environment(tmp_path)
    out = subprocess.run(command, env=slow, capture_output=True, text=True, check=True).stdout
    written, synchronised, *_ = map(float, out.split())
    assert written >= 0.2
    assert synchronised >= 0.2
