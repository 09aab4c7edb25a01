"""`worker.py`: the process of a trial ends with the search."""

from __future__ import annotations

import subprocess
import sys

import pytest

DIES = "from ignite_hooks.search.worker import die_with; die_with({}); print('lives')"


@pytest.mark.parametrize(("parent", "said"), [("__import__('os').getppid()", b"lives\n"), ("1_000_000_000", b"")])
def test_a_trial_whose_search_is_gone_is_killed(parent: str, said: bytes) -> None:
    done = subprocess.run([sys.executable, "-c", DIES.format(parent)], stdout=subprocess.PIPE, check=False)
    assert done.stdout == said
