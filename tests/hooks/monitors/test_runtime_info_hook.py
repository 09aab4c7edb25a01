from __future__ import annotations

from pathlib import Path
from typing import Any

import ignite
import pytest
import torch

import ignite_hooks
from ignite_hooks import attach_hooks
from ignite_hooks.writers.memory import MemoryWriter
from tests.tools import echo_trainer


def lines_of(caplog: pytest.LogCaptureFixture, tmp_path: Path, cfg: Any = None, **services: Any) -> list[str]:
    caplog.set_level("INFO")
    trainer = echo_trainer()
    attach_hooks(trainer, {"hooks": ["RuntimeInfoHook"], **(cfg or {})}, work_dir=tmp_path, **services)
    trainer.run([1.0])
    return [message for message in caplog.messages if message.startswith("ignite_hooks ")]


def test_one_line_names_versions_device_and_work_dir(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    assert lines_of(caplog, tmp_path) == [
        f"ignite_hooks {ignite_hooks.__version__}  torch {torch.__version__}  ignite {ignite.__version__}"
        f"  cpu  work_dir {tmp_path}"
    ]


def test_the_seed_is_named_where_there_is_one(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (line,) = lines_of(caplog, tmp_path, {"seed": 7})
    assert "  seed 7  " in line


def test_the_device_of_the_model_is_named(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (line,) = lines_of(caplog, tmp_path, model=torch.nn.Linear(2, 2, device="meta"))
    assert "  meta  " in line


def frozen_first_layer() -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Linear(99, 10), torch.nn.Linear(10, 1))
    model[0].requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (torch.nn.Linear(9, 1), "10 of 10 parameters trainable"),
        (frozen_first_layer(), "11 of 1,011 parameters trainable"),
        (torch.nn.ReLU(), "0 of 0 parameters trainable"),
    ],
)
def test_parameters_are_counted(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, model: torch.nn.Module, expected: str
) -> None:
    (line,) = lines_of(caplog, tmp_path, model=model)
    assert f"  {expected}  " in line


def test_a_lazy_layer_has_no_size_yet(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (line,) = lines_of(caplog, tmp_path, model=torch.nn.Sequential(torch.nn.Linear(9, 1), torch.nn.LazyLinear(2)))
    assert "  10 of 10 parameters trainable  " in line


def test_several_models_are_not_counted(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (line,) = lines_of(caplog, tmp_path, model={"a": torch.nn.Identity(), "b": torch.nn.Linear(1, 1)})
    assert "parameters" not in line


def test_the_writers_get_the_configuration_at_every_run(tmp_path: Path) -> None:
    trainer, writer = echo_trainer(), MemoryWriter()
    cfg = {"hooks": ["RuntimeInfoHook"], "writers": [writer], "seed": 7, "model": {"depth": 18}}
    attach_hooks(trainer, cfg, work_dir=tmp_path)
    trainer.run([1.0])
    assert writer.config is not None
    assert writer.config["model"] == {"depth": 18}
    writer.config = None
    trainer.run([1.0])
    assert writer.config is not None


def test_a_configuration_of_the_scripts_own_is_what_is_written(tmp_path: Path) -> None:
    trainer, writer = echo_trainer(), MemoryWriter()
    attach_hooks(trainer, {"hooks": ["RuntimeInfoHook"], "writers": [writer]}, work_dir=tmp_path, config={"lr": 0.1})
    trainer.run([1.0])
    assert writer.config == {"lr": 0.1}
