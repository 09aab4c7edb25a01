"""Hooks written in each style of the specifications run as they stand."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from ignite.engine import Engine
from torch import nn

from ignite_hooks import HOOK_REGISTRY, HOOKS, BaseHook, Hook, HookError, attach_hooks
from ignite_hooks.hooks.registry import HookRegistry
from ignite_hooks.testing import tiny_run
from ignite_hooks.writers.memory import MemoryWriter
from tests.tools import echo_trainer


@pytest.fixture(autouse=True)
def names_are_given_back() -> Iterator[None]:
    before = dict(HOOKS._classes)
    yield
    HOOKS._classes.clear()
    HOOKS._classes.update(before)


def test_the_first_specifications_hook_with_a_configuration_and_services(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Visualizer:
        def __init__(self) -> None:
            self.scalars: list[tuple[str, float, int]] = []

        def add_scalar(self, name: str, value: float, step: int) -> None:
            self.scalars.append((name, value, step))

    @HookRegistry.register("MyCustomHook")
    class MyCustomHook(BaseHook):
        def __init__(self, config: dict[str, Any] | None = None) -> None:
            super().__init__(config)

        def before_training(self, model: nn.Module) -> None:
            logger = self.get_service("logger")
            if logger:
                logger.info("训练即将开始！")

        def after_epoch(self, epoch: int, model: nn.Module, metrics: dict[str, float]) -> None:
            logger = self.get_service("logger")
            visualizer = self.get_service("visualizer")
            if logger:
                logger.info(f"完成第 {epoch + 1} 个epoch，指标: {metrics}")
            if visualizer:
                visualizer.add_scalar("custom/metric", 0.5, epoch)

    tiny = tiny_run()
    trainer, data = tiny.trainer, tiny.data
    visualizer = Visualizer()
    with caplog.at_level(logging.INFO, "ignite_hooks"):
        configuration = {"experiment_dir": str(tmp_path), "hooks": [{"type": "MyCustomHook", "frequency": 1}]}
        attach_hooks(trainer, configuration, visualizer=visualizer)
        trainer.run(data, max_epochs=2)
    assert "训练即将开始！" in caplog.messages
    assert any(message.startswith("完成第 2 个epoch，指标: {'loss':") for message in caplog.messages)
    assert visualizer.scalars == [("custom/metric", 0.5, 0), ("custom/metric", 0.5, 1)]


def test_the_first_specifications_hook_with_a_custom_service(tmp_path: Path) -> None:
    logged: list[tuple[str, float, int]] = []

    class Client:
        def log_metric(self, name: str, value: float, step: int) -> None:
            logged.append((name, value, step))

    class MLFlowHook(BaseHook):
        def after_epoch(self, epoch, model, metrics):
            mlflow = self.get_service("mlflow")
            if mlflow:
                for name, value in metrics.items():
                    mlflow.log_metric(name, value, step=epoch)

    tiny = tiny_run()
    trainer, data = tiny.trainer, tiny.data
    runner = attach_hooks(trainer, [], work_dir=tmp_path)
    runner.register_service("mlflow", Client())
    runner.register_hook(MLFlowHook())
    trainer.run(data, max_epochs=2)
    assert [(name, step) for name, _, step in logged] == [("loss", 0), ("loss", 1)]
    assert all(isinstance(value, float) for _, value, _ in logged)


def test_the_third_specifications_hook_that_writes_through_the_logger(tmp_path: Path) -> None:
    @HOOK_REGISTRY.register()
    class LogHook(Hook):
        def __init__(self):
            self.ema_loss_for_log = 0.0
            self.bar_info = {}

        def after_train_iter(self, trainner) -> None:
            for param_group in trainner.optimizer.param_groups:
                name = param_group["name"]
                if name == "point_cloud." + "position":
                    pos_lr = param_group["lr"]
                    break
            log_dict = {"num_pt": len(trainner.model.point_cloud), "pos_lr": pos_lr}
            log_dict.update(trainner.loss_dict)
            for key, value in log_dict.items():
                if key == "loss":
                    self.ema_loss_for_log = 0.4 * value.item() + 0.6 * self.ema_loss_for_log
                    self.bar_info.update({key: f"{self.ema_loss_for_log:.{7}f}"})
                if trainner.logger and key != "optimizer_params":
                    trainner.logger.write_scalar(key, value, trainner.global_step)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.point_cloud = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(5)])

    model, writer = Model(), MemoryWriter()
    optimizer = torch.optim.SGD([{"params": model.parameters(), "name": "point_cloud.position"}], lr=0.25)
    trainer = Engine(lambda engine, batch: {"loss": torch.tensor(float(batch))})
    configuration = {"hooks": [{"type": "LogHook"}], "writers": [writer]}
    runner = attach_hooks(trainer, configuration, work_dir=tmp_path, model=model, optimizer=optimizer)
    trainer.run([1, 2])
    assert [(name, float(value), step) for name, value, step in writer.scalars] == [
        *[("num_pt", 5.0, 1), ("pos_lr", 0.25, 1), ("loss", 1.0, 1)],
        *[("num_pt", 5.0, 2), ("pos_lr", 0.25, 2), ("loss", 2.0, 2)],
    ]
    assert runner.hooks["LogHook"].bar_info == {"loss": "1.0400000"}


def test_the_fourth_specifications_hook_with_the_signature_of_mmengine(tmp_path: Path) -> None:
    @HOOKS.register_module()
    class CheckInvalidLoss(Hook):
        def __init__(self, interval: int = 50) -> None:
            self.interval = interval

        def after_train_iter(
            self,
            runner: Any,
            batch_idx: int,
            data_batch: Optional[dict] = None,  # noqa: UP045 - as it stands there
            outputs: Optional[dict] = None,  # noqa: UP045
        ) -> None:
            if self.every_n_train_iters(runner, self.interval):
                assert torch.isfinite(outputs["loss"]), runner.logger.info("loss become infinite or NaN!")

    losses = [1.0, float("nan"), 1.0, float("nan")]
    trainer = Engine(lambda engine, batch: {"loss": torch.tensor(batch)})
    attach_hooks(
        trainer, {"custom_hooks": [{"type": "CheckInvalidLoss", "interval": 3}], "hooks": []}, work_dir=tmp_path
    )
    trainer.run(losses)  # the third is finite, and nobody looks at the others
    other = Engine(lambda engine, batch: {"loss": torch.tensor(batch)})
    attach_hooks(other, [CheckInvalidLoss(interval=2)], work_dir=tmp_path)
    with pytest.raises(HookError, match=r"CheckInvalidLoss.after_train_iter failed at epoch 1, iteration 2") as caught:
        other.run(losses)
    assert isinstance(caught.value.__cause__, AssertionError)


def test_a_python_configuration_of_mmdetection_is_read_and_not_executed(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text("custom_hooks = [\n    dict(type='LoggerHook', name='mine', interval=50)\n]\nhooks = []\n")
    trainer = echo_trainer()
    assert list(attach_hooks(trainer, path, work_dir=tmp_path).hooks) == ["mine"]
