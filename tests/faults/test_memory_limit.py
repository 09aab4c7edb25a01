"""Runs in a real control group whose memory is too small for the copies that a save usually makes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ignite_hooks.store.folder import FolderStore

pytestmark = [pytest.mark.faults, pytest.mark.slow]

GROUPS = Path("/sys/fs/cgroup/memory")
STATE = 240
"""Megabytes."""
MB = 2**20

SCRIPT = f"""
import logging, sys, torch
from ignite.engine import Engine
from ignite_hooks import attach_hooks
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
torch.set_num_threads(1)
count = {STATE} * {MB} // 4 // 2 // 4
model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(count)) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

def step(engine, batch):
    for weight in model.parameters():
        if weight.grad is None:
            weight.grad = torch.ones_like(weight)
    optimizer.step()
    if engine.state.iteration == 1:
        # What training needs without any save is known now: so much more is the limit of the group.
        used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("RssAnon"))
        with open(sys.argv[2] + "/memory.limit_in_bytes", "w") as file:
            file.write(str(used + int(float(sys.argv[3]) * {STATE} * {MB}) + 80 * {MB}))

trainer = Engine(step)
hook = {{"type": "CheckpointHook", "by_epoch": False, "max_keep_ckpts": 1, "save_best": False}}
runner = attach_hooks(trainer, [hook], model=model, optimizer=optimizer, work_dir=sys.argv[1])
# As with this limit from the start: there is no room to spare.
runner.checkpoints.prepare = lambda size: None
trainer.run(range(4), max_epochs=1)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """Yield a control group for memory without a limit."""
    folder = GROUPS / f"ignite-hooks-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    if not (folder / "memory.limit_in_bytes").exists():
        folder.rmdir()
        pytest.skip("no control groups of version 1 here")
    try:
        yield folder
    finally:
        folder.rmdir()


def run_in(group: Path, work_dir: Path, copies: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, str(work_dir), str(group), str(copies)]
    enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
    return subprocess.run(["sh", "-c", enter, "sh", *command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("copies", "said"),
    [(1.6, "memory for one copy of 240.0 MB only"), (0.6, "no memory for a copy of 240.0 MB")],
    ids=["room for one", "room for none"],
)
def test_a_run_is_not_killed_for_the_copies_of_a_save(group: Path, tmp_path: Path, copies: float, said: str) -> None:
    done = run_in(group, tmp_path, copies)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout} {done.stderr}"
    assert "oom_kill 0" in (group / "memory.oom_control").read_text()
    assert done.stdout.count(said) == 1, done.stdout
    store = FolderStore(tmp_path)
    assert [entry.name for entry in store.entries()] == ["iter_4.pth", "last.pth"]
    assert store.newest() == tmp_path / "last.pth"
