"""Real Slurm: a job that hears of its end saves, is requeued, and ends with the bits of one that did not."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import torch

from tests.faults.slurm import ROOT, SECONDS, Slurm, why_not

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not() or "")]

SCRIPT = ROOT / "examples/cluster/slurm.sh"
EPOCHS = 30


def lines_of(output: Path, pattern: str) -> list[str]:
    return re.findall(pattern, output.read_text(), re.MULTILINE) if output.exists() else []


def when_in_epoch(number: int, output: Path, slurm: Slurm) -> None:
    """Wait until the job has finished this epoch."""
    until = time.monotonic() + SECONDS
    while not lines_of(output, rf"^epoch {number} on "):
        assert time.monotonic() < until, f"{output.read_text() if output.exists() else 'no output'}\n{slurm.logs()}"
        time.sleep(0.02)


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_job_that_is_signalled_and_requeued_ends_with_the_same_bits(nodes: int, tmp_path: Path) -> None:
    with Slurm(nodes).running() as slurm:
        options = [f"--nodes={nodes}", f"--ntasks-per-node={2 if nodes == 1 else 1}", "--time=10"]
        ran: dict[str, tuple[str, str]] = {}
        for name in ("whole", "requeued"):
            folder, output = tmp_path / name, tmp_path / f"{name}.txt"
            arguments = ["--epochs", str(EPOCHS), "--timeout", "30", "--backend", "gloo", "--work-dir", str(folder)]
            job = slurm.submit(SCRIPT, *arguments, output=output, options=options)
            if name == "requeued":
                when_in_epoch(3, output, slurm)
                slurm.run("scancel", "-s", "USR1", job)
            assert slurm.ended(job, output) == "COMPLETED", f"{output.read_text()}\n{slurm.logs()}"
            ran[name] = job, output.read_text()
        assert slurm.state(ran["whole"][0])[1] == 0
        assert slurm.state(ran["requeued"][0])[1] == 1, ran["requeued"][1]
    job, text = ran["requeued"]
    size = 2 if nodes == 1 else nodes
    assert text.count(f"job {job} is requeued: Slurm starts it again") == 1, text
    assert text.count(" as asked") == 1
    assert len(re.findall(r"resumed from .*last\.pth", text)) == 1
    assert set(re.findall(r"^epoch \d+ on (\d+)$", text, re.MULTILINE)) == {str(size)}
    ends = [torch.load(tmp_path / name / "last.pth", weights_only=True) for name in ("whole", "requeued")]
    assert {end["meta"]["epoch"] for end in ends} == {EPOCHS}
    for name, weights in ends[0]["state_dict"].items():
        assert torch.equal(weights, ends[1]["state_dict"][name]), name
    moments = [end["optimizer"]["state"] for end in ends]
    assert all(torch.equal(moments[0][key]["exp_avg"], moments[1][key]["exp_avg"]) for key in moments[0])


def test_a_cancelled_job_saves_and_stays_away(tmp_path: Path) -> None:
    with Slurm(1).running() as slurm:
        folder, output = tmp_path / "run", tmp_path / "run.txt"
        arguments = ["--epochs", "10000", "--backend", "gloo", "--work-dir", str(folder)]
        job = slurm.submit(SCRIPT, *arguments, output=output, options=["--time=10"])
        when_in_epoch(3, output, slurm)
        slurm.run("scancel", job)
        assert slurm.ended(job, output) == "CANCELLED"
        assert slurm.state(job)[1] == 0
    assert "SIGTERM received" in output.read_text()
    assert torch.load(folder / "last.pth", weights_only=True)["meta"]["epoch"] >= 3
