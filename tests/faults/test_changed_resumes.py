"""Resumes with one thing changed at random are right, or say what has changed: none is silent, none a traceback."""

from __future__ import annotations

import logging
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import CheckpointError, ConfigError, attach_hooks
from tests.faults.tools import drawn, times

pytestmark = [pytest.mark.faults, pytest.mark.timeout(times(120, 3600))]

SAMPLES, EPOCHS = 24, 4


def run(folder: Path, stop_at: int = -1, **changed: Any) -> tuple[dict[str, Any], list[tuple[int, int]], int]:
    """Run a script until its end or an iteration; return its weights, the samples it saw by epoch, its iteration."""
    random.seed(0), torch.manual_seed(0)
    data = TensorDataset(torch.arange(float(SAMPLES)).reshape(-1, 1) / SAMPLES)
    batch, workers = changed.get("batch", 4), changed.get("workers", 0)
    loader = DataLoader(data, batch, shuffle=True, num_workers=workers)
    model = nn.Sequential(nn.Linear(1, changed.get("width", 4)), nn.Dropout(0.2), nn.Linear(changed.get("width", 4), 1))
    kind = changed.get("optimizer", torch.optim.SGD)
    settings = {"lr": 0.1, "momentum": 0.9} if kind is torch.optim.SGD else {"lr": 0.1}
    optimizer = kind(model.parameters(), **{**settings, **changed.get("settings", {})})
    seen: list[tuple[int, int]] = []

    def step(engine: Engine, values: Any) -> float:
        optimizer.zero_grad()
        loss = model(values[0]).square().mean()
        loss.backward()
        optimizer.step()
        seen.extend((engine.state.epoch, round(float(value) * SAMPLES)) for value in values[0])
        if engine.state.iteration == stop_at:
            runner.stop("stopped here")
        return loss.item()

    trainer = Engine(step)
    hook = {"type": "CheckpointHook", "save_best": False, "by_epoch": False, "interval": 3, **changed.get("hook", {})}
    runner = attach_hooks(
        trainer,
        {"hooks": [hook], **changed.get("config", {})},
        work_dir=folder,
        resume=changed.get("resume", "auto"),
        model=model,
        optimizer=optimizer,
    )
    trainer.run(loader, max_epochs=EPOCHS)
    return {name: weight.clone() for name, weight in model.state_dict().items()}, seen, trainer.state.iteration


def change(dice: random.Random, folder: Path) -> tuple[str, dict[str, Any], str]:
    """Change one thing; return its name, what the next run is given, and a word that has to be said, or nothing."""
    files = sorted(folder.glob("*.pth"))
    chosen = dice.choice(files)
    kind = dice.choice(list(CHANGES))
    if kind == "removed":
        chosen.unlink()
        return kind, {}, ""
    if kind == "torn":
        content = bytearray(chosen.read_bytes())
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        chosen.write_bytes(content[: dice.choice([len(content), dice.randrange(len(content))])])
        return kind, {}, ""
    if kind in ("older layout", "format"):
        state = torch.load(folder / "last.pth", weights_only=True)
        if kind == "format":
            state["meta"]["format"] = 99
        else:
            state["meta"]["format"] = 1
            del state["data"][dice.choice(list(state["data"]))], state["meta"]["optimizer"]
        torch.save(state, folder / "other.pth")
        return kind, {"resume": "other.pth"}, "format 99" if kind == "format" else ""
    if kind == "world":
        path = folder / "ranks.pth"
        state = torch.load(folder / "last.pth", weights_only=True)
        state["ranks"] = [{"data": state["data"], "random": state["random"]}] * dice.choice([2, 3])
        torch.save(state, path)
        return kind, {"resume": "ranks.pth"}, "this run has 1"
    given, word = CHANGES[kind](dice)
    return kind, given, word


CHANGES: dict[str, Any] = {
    "removed": None,
    "torn": None,
    "older layout": None,
    "format": None,
    "world": None,
    "nothing": lambda dice: ({}, ""),
    "batch size": lambda dice: ({"batch": (size := dice.choice([2, 3, 5, 8, 24]))}, f"batch size was 4 and is {size}"),
    "rate": lambda dice: ({"settings": {"lr": 0.05}}, "lr 0.1 -> 0.05"),
    "momentum": lambda dice: ({"settings": {"momentum": 0.5}}, "momentum 0.9 -> 0.5"),
    "refused": lambda dice: ({"settings": {"lr": 1.0}, "config": {"resume_settings": "refuse"}}, "lr 0.1 -> 1.0"),
    "optimizer": lambda dice: ({"optimizer": dice.choice([torch.optim.Adam, torch.optim.RMSprop])}, "SGD"),
    "threads": lambda dice: ({"threads": 2}, "torch threads 1 -> 2"),
    "model": lambda dice: ({"width": dice.choice([3, 5])}, "size mismatch"),
    "setting of a hook": lambda dice: ({"hook": {"max_keep_ckpts": 2}}, "max_keep_ckpts 5 -> 2"),
    "name": lambda dice: ({"resume": "epoch_77.pth"}, "epoch_77.pth"),
}
EXACT = ("nothing", "removed", "torn", "setting of a hook")
"""The changes after which the run ends with the bits of an uninterrupted one, if it runs at all."""


def test_a_resume_with_one_thing_changed_is_right_or_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    caplog.set_level(logging.WARNING, logger="ignite_hooks")
    dice = drawn()
    whole, _, last = run(tmp_path / "whole")
    stops = {at: tmp_path / f"stopped-{at}" for at in dice.sample(range(4, last), 5)}
    begun = {at: run(folder, at)[1] for at, folder in stops.items()}
    outcomes: Counter[str] = Counter()
    try:
        for number in range(times(40, 1000)):
            at, folder = dice.choice(list(stops)), tmp_path / "now"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(stops[at], folder)
            kind, given, word = change(dice, folder)
            torch.set_num_threads(given.pop("threads", 1))
            caplog.clear()
            told = f"resume {number}: {kind} after iteration {at}"
            try:
                weights, seen, iteration = run(folder, **given)
            except (CheckpointError, ConfigError) as error:
                refusal = str(error)
            else:
                refusal = ""
            if refusal:
                assert word in refusal, f"{told}: {refusal}"
                assert kind not in ("nothing", "rate", "batch size", "world"), f"{told}: {refusal}"
                outcomes[f"{kind}: refused"] += 1
                continue
            assert word in caplog.text, f"{told}: nothing says {word!r}"
            same = all(torch.equal(weights[name], whole[name]) for name in whole)
            if kind in EXACT:
                assert same, told
            elif kind == "batch size":
                counted = Counter([*begun[at], *seen])
                assert counted == Counter((epoch, i) for epoch in range(1, EPOCHS + 1) for i in range(SAMPLES)), told
                assert iteration > at, told
            else:
                assert same or caplog.text, f"{told}: other weights, and nothing was said"
            outcomes[f"{kind}: {'exact' if same else 'told'}"] += 1
    finally:
        print(dict(sorted(outcomes.items())))
