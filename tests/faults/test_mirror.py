"""A run whose disk is emptied between its lives goes on from its mirror, whatever happens to the store meanwhile."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.store.files import discard
from ignite_hooks.store.mirror.remote import MirrorError, Remote
from ignite_hooks.store.mirror.replica import Replica
from tests import warm
from tests.faults.s3 import s3_server, without_secrets
from tests.faults.tools import LONG, drawn, times

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(times(300, 3600))]

ROOT = Path(__file__).parents[2]
URL = "s3://bucket/run"
SCRIPT = """
import json, os, signal, sys, time
import torch
from ignite.engine import Engine, Events
from torch import nn
from ignite_hooks import attach_hooks

torch.set_num_threads(1)
folder, url, die_at, last, pace, timeout = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
torch.manual_seed(0)
model = nn.Linear(40, 40)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

def step(engine, batch):
    optimizer.zero_grad()
    loss = model(batch).square().mean() + torch.rand(()) * 0
    loss.backward()
    optimizer.step()
    time.sleep(pace)
    return loss.item()

trainer = Engine(step)
saving = {"type": "CheckpointHook", "by_epoch": False, "interval": 2, "max_keep_ckpts": 3, "save_best": False,
          "mirror": url, "mirror_timeout": timeout}
runner = attach_hooks(trainer, [saving, {"type": "LoggerHook", "interval": 1}],
                      model=model, optimizer=optimizer, work_dir=folder, resume="auto")

@trainer.on(Events.ITERATION_STARTED)
def say():
    if trainer.state.iteration == say.first:
        print("BEGINS", trainer.state.iteration - 1, flush=True)
say.first = None

@trainer.on(Events.STARTED)
def note():
    say.first = trainer.state.iteration + 1

@trainer.on(Events.ITERATION_COMPLETED)
def die():
    print("DONE", trainer.state.iteration, flush=True)
    if trainer.state.iteration == die_at:
        os.kill(os.getpid(), signal.SIGKILL)

trainer.run([torch.full((4, 40), float(i)) for i in range(10)], max_epochs=int(last) // 10)
print("ENDED", trainer.state.iteration, flush=True)
"""


def live(
    folder: Path, environment: dict[str, str], *, die_at: int, last: int, pace: float = 0.02, timeout: float = 60
) -> tuple[int, str]:
    """Run one life in a process; return its exit code and what it printed."""
    done = warm.run(
        [sys.executable, "-c", SCRIPT, str(folder), URL, str(die_at), str(last), str(pace), str(timeout)],
        cwd=ROOT,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=250,
        also=("s3fs", "aiobotocore.session"),
    )
    return done.returncode, done.stdout + done.stderr


def usable(environment: dict[str, str], tmp_path: Path) -> int:
    """Return the iteration of the newest checkpoint in the mirror that verifies; 0 if there is none."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        replica = Replica(Remote(URL))
        path = tmp_path / "looked-at"
        for entry in replica.candidates():
            try:
                if replica.fetch(entry, path) is None:
                    return entry.iteration
            finally:
                discard(path)
    return 0


def tear(environment: dict[str, str], dice: random.Random) -> None:
    """Cut the newest object that is listed."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        remote = Remote(URL)
        found = Replica(remote).candidates()
        if len(found) < 2:
            return
        # One that was announced when a life ended may not be there.
        for entry in found:
            if (content := remote.read(entry.name, most=10_000_000)) is not None:
                remote.write(entry.name, content[: dice.randrange(len(content))])
                return


def number_after(word: str, text: str) -> int:
    found = [line.split()[1] for line in text.splitlines() if line.startswith(word)]
    assert found, text
    return int(found[0])


def test_every_life_on_an_empty_disk_goes_on_from_the_newest_that_verifies(tmp_path: Path) -> None:
    dice, lives = drawn(), times(2, 50)
    folder, last, reached = tmp_path / "run", 10 * (lives + 2), 0
    with s3_server(dice) as (network, environment):
        for number in itertools.count():
            # A life may end before its first upload: go on until one has begun in the mirror.
            if number >= lives and reached:
                break
            assert number < lives + 20, "no life has begun in the mirror"
            network.mode = "well"
            if number and dice.random() < 0.3:
                tear(environment, dice)
            newest = usable(environment, tmp_path)
            network.mode = dice.choice(["well", "mixed", "mixed"])
            code, text = live(folder, environment, die_at=newest + dice.randrange(3, 15), last=last)
            assert code == -9, text
            assert number_after("BEGINS", text) == newest, text
            assert without_secrets(folder)
            assert "wJalr" not in text
            reached = max(reached, newest)
            shutil.rmtree(folder)
        network.mode = "well"
        code, text = live(folder, environment, die_at=-1, last=last)
        assert code == 0, text
        assert usable(environment, tmp_path) == last
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))
    if not LONG:
        return
    # The same run that nobody has killed.
    with s3_server(dice) as (_, environment):
        code, text = live(tmp_path / "whole", environment, die_at=-1, last=last, pace=0)
        assert code == 0, text
    one, other = (torch.load(place / "last.pth", weights_only=True) for place in (folder, tmp_path / "whole"))
    for key, tensor in one["state_dict"].items():
        assert torch.equal(tensor, other["state_dict"][key])


def test_a_dead_store_holds_neither_the_training_nor_its_end(tmp_path: Path) -> None:
    dice = drawn()
    # A silent one takes three of our own deadlines; that these hold is tested below.
    for mode in ("cut", "error", "silent") if LONG else (dice.choice(["cut", "error"]),):
        folder = tmp_path / mode
        with s3_server(dice) as (network, environment):
            # Too few for any request: no answer comes through.
            network.mode, network.most = mode, 50
            code, text = live(folder, environment, die_at=-1, last=10, timeout=1)
            # An empty disk and no answer: to begin anew would lose what is there.
            assert code != 0
            assert "nothing is here to resume from, and the mirror cannot be read" in text
            assert "BEGINS" not in text
            network.mode = "well"
            code, text = live(folder, environment, die_at=-1, last=10, timeout=60)
            assert code == 0, text
            network.mode = mode
            code, text = live(folder, environment, die_at=-1, last=20, timeout=3)
        assert code == 0, text
        assert "ENDED 20" in text
        assert "the training goes on" in text or mode == "silent"
        assert "lacks what the folder holds, iter_12.pth" in text
        assert without_secrets(tmp_path)
        assert "wJalr" not in text


def test_an_upload_to_a_silent_server_ends_at_our_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(drawn()) as (network, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        remote: Any = Remote(URL, quick=2)
        (tmp_path / "a").write_bytes(b"x" * 1000)
        network.mode = "silent"
        with pytest.raises(MirrorError, match="no answer within"):
            remote.put("a", str(tmp_path / "a"), 1000)
        network.mode = "well"
        remote.put("a", str(tmp_path / "a"), 1000)
        assert remote.read("a", most=2000) == b"x" * 1000
