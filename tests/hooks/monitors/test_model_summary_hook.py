from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import attach_hooks
from ignite_hooks.hooks.monitors.model_summary_hook import Row, cut_table
from ignite_hooks.writers.memory import MemoryWriter


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Sequential(torch.nn.BatchNorm2d(8), torch.nn.ReLU())
        )
        self.backbone[0].requires_grad_(False)
        self.spare = torch.nn.Linear(2, 2)
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scores": self.head(self.backbone(x).mean(dim=(2, 3)))}


def summary(folder: Path, model: torch.nn.Module, **settings: Any) -> list[str]:
    trainer, writer = Engine(lambda engine, batch: model(batch) and None), MemoryWriter()
    config = {"hooks": [{"type": "ModelSummaryHook", **settings}], "writers": [writer]}
    attach_hooks(trainer, config, work_dir=folder, model=model)
    trainer.run([torch.zeros(4, 3, 6, 6)] * 3, max_epochs=2)
    return [text for name, text, _ in writer.texts if name == "model_summary"]


def test_a_table_is_written_once_after_the_first_batch(tmp_path: Path) -> None:
    (text,) = summary(tmp_path, Model())
    assert text.splitlines() == [
        "module      type         output            parameters  trained",
        "(whole)     Model        {scores: 4 x 10}         336  33%",
        "  backbone  Sequential   4 x 8 x 6 x 6            240  7%",
        "    0       Conv2d       4 x 8 x 6 x 6            224  no",
        "    1       Sequential   4 x 8 x 6 x 6             16  yes",
        "      0     BatchNorm2d  4 x 8 x 6 x 6             16  yes",
        "      1     ReLU         4 x 8 x 6 x 6",
        "  spare     Linear       not used                   6  yes",
        "  head      Linear       4 x 10                    90  yes",
        "336 parameters, 112 of them trained; 0.0 MB with buffers",
    ]


@pytest.mark.parametrize(("depth", "names"), [(0, ["(whole)"]), (1, ["(whole)", "  backbone", "  spare", "  head"])])
def test_only_so_deep_as_was_asked_for(depth: int, names: list[str], tmp_path: Path) -> None:
    (text,) = summary(tmp_path, Model(), max_depth=depth)
    assert [line[: len(name)] for line, name in zip(text.splitlines()[1:-1], names, strict=True)] == names


def test_the_middle_of_a_long_table_is_left_out() -> None:
    lines = cut_table([Row(f"layer {n}", "Linear", "1 x 1", "2", "yes") for n in range(100)], 10).splitlines()
    assert len(lines) == 11
    assert lines[5].startswith("layer 4")
    assert lines[6] == "... 91 more"
    assert lines[-1].startswith("layer 99")


def test_nothing_stays_on_the_model(tmp_path: Path) -> None:
    model = Model()
    summary(tmp_path, model)
    assert not any(part._forward_hooks for part in model.modules())


def test_a_model_that_is_never_called_keeps_nothing_either(tmp_path: Path) -> None:
    model, trainer = Model(), Engine(lambda *_: None)
    attach_hooks(trainer, ["ModelSummaryHook"], work_dir=tmp_path, model=model)
    trainer.run([0])
    assert not any(part._forward_hooks for part in model.modules())
