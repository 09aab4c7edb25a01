"""A configuration alone becomes a run."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from ignite_hooks import BaseHook, BaseTrainer, ConfigError, load_config
from ignite_hooks.hooks.monitors.time_tracking_hook import TimeTrackingHook
from tests.trainer.tools import blobs, config, write_cifar10


def weights(trainer: BaseTrainer) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


# -- the specification ---------------------------------------------------------------------------------------------

FIRST_SEED = """\
experiment_dir: "experiments/my_experiment"

model:
  type: "cnn"

dataset:
  type: "cifar10"

training:
  epochs: 50

hooks:
  - type: "TimeTrackingHook"
    name: "training_timer"
    frequency: 1
    log_to_file: true
    log_path: "time_tracking.log"

  - type: "FeatureMapHook"
    name: "feature_visualizer"
    frequency: 100
    max_features: 16
    sample_batch_idx: 0

  - type: "SystemMonitorHook"
    name: "system_monitor"
    frequency: 10
    interval: 2
    track_cpu: true
    track_memory: true
    track_gpu: true
    track_gpu_memory: true
"""


def test_the_example_of_the_first_seed_runs_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_cifar10(tmp_path / "data" / "cifar-10-batches-bin", records=2)
    Path("config.yaml").write_text(FIRST_SEED)
    config = load_config("config.yaml")
    trainer = BaseTrainer(config)
    trainer.register_hook(
        TimeTrackingHook({"frequency": 1, "log_to_file": True, "log_path": "custom_time_tracking.log"})
    )
    trainer.register_service("mlflow", "a stand-in")
    metrics = trainer.train()
    folder = tmp_path / "experiments" / "my_experiment"
    assert trainer.trainer.state.epoch == 50
    assert {"val_accuracy", "test_accuracy"} <= set(metrics)
    assert all((folder / name).is_file() for name in ("time_tracking.log", "custom_time_tracking.log", "config.yaml"))
    assert trainer.runner.get_service("mlflow") == "a stand-in"


HOOKS_ALONE = [
    {"type": "CheckpointHook", "interval": 1, "max_keep_ckpts": 3},
    {"type": "LoggerHook", "interval": 50},
    {"type": "DistEvalHook", "interval": 1},
    {"type": "EMAHook", "momentum": 0.9999},
]


def test_hooks_alone_are_tried_out_on_the_digits(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    trainer = BaseTrainer({"hooks": HOOKS_ALONE}, work_dir=tmp_path, overrides=["training.epoch_length=1"])
    assert trainer.sections.notes == ["the configuration names neither model nor dataset: a cnn learns the digits"]
    assert "val" in trainer.evaluators


def test_hooks_have_every_service_of_the_first_seed(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}
    names = ("trainer", "config", "model", "train_loader", "val_loader", "optimizer", "scheduler", "device", "logger")
    folders = ("experiment_dir", "checkpoints_dir", "logs_dir", "visualization_dir")

    class Asking(BaseHook):
        def after_epoch(self, epoch: int, model: Any, metrics: Any) -> None:
            seen.update({name: self.get_service(name) for name in (*names, *folders)})
            seen["metrics"] = dict(metrics)

    trainer = BaseTrainer(config(training={"scheduler": "CosineAnnealingLR"}), work_dir=tmp_path)
    trainer.register_hook(Asking())
    trainer.train()
    assert [name for name, thing in seen.items() if thing is None] == []
    assert "val_accuracy" in seen["metrics"]


# -- training ------------------------------------------------------------------------------------------------------


def test_it_learns_validates_and_tests(tmp_path: Path) -> None:
    trainer = BaseTrainer(config(training={"epochs": 30, "optimizer": {"type": "adam", "lr": 0.05}}), work_dir=tmp_path)
    metrics = trainer.train()
    assert metrics["val_accuracy"] == metrics["test_accuracy"] == 1.0
    assert trainer.test() == pytest.approx({"accuracy": 1.0, "loss": metrics["test_loss"]})
    assert trainer.validate()["accuracy"] == 1.0


def test_weights_depend_on_the_seed_alone_bit_for_bit(tmp_path: Path) -> None:
    runs = []
    for number, seed in enumerate((1, 1, 2)):
        trainer = BaseTrainer(config(training={"seed": seed}), work_dir=tmp_path / str(number))
        trainer.train()
        runs.append(weights(trainer))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


SCHEDULES: dict[str, Any] = {
    "none": None,
    "by epoch": {"type": "StepLR", "step_size": 1},
    "by iteration": {"type": "OneCycleLR", "max_lr": 0.1},
    "by a metric": {"type": "ReduceLROnPlateau", "monitor": "val_loss", "patience": 0},
}


@pytest.mark.parametrize("scheduler", [pytest.param(value, id=name) for name, value in SCHEDULES.items()])
def test_resuming_equals_never_having_stopped(scheduler: Any, tmp_path: Path) -> None:
    def made(epochs: int, folder: str, resume: Any = None) -> BaseTrainer:
        hooks = [{"type": "CheckpointHook"}, {"type": "EMAHook", "momentum": 0.9}]
        if scheduler is not None and scheduler["type"] == "OneCycleLR":
            scheduler["total_steps"] = 12
        training = {"epochs": epochs, "scheduler": scheduler, "optimizer": {"type": "SGD", "lr": 0.1, "momentum": 0.9}}
        return BaseTrainer(config(training=training, hooks=hooks), work_dir=tmp_path / folder, resume=resume)

    whole = made(4, "whole")
    whole.train()
    made(2, "parts").train()
    second = made(4, "parts", resume="auto")
    second.train()
    assert torch.equal(weights(whole), weights(second))
    assert whole.optimizer.param_groups[0]["lr"] == second.optimizer.param_groups[0]["lr"]


def test_a_scheduler_by_epoch_reaches_the_end_of_the_run(tmp_path: Path) -> None:
    trainer = BaseTrainer(config(training={"epochs": 3, "scheduler": "CosineAnnealingLR"}), work_dir=tmp_path)
    trainer.train()
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0)


@pytest.mark.parametrize(
    "scheduler", ["CosineAnnealingLR", {"type": "OneCycleLR", "max_lr": 0.1}], ids=["epoch", "iter"]
)
def test_a_longer_run_has_the_schedule_of_its_new_length(
    scheduler: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def rates(epochs: int, folder: str, resume: Any = None) -> list[float]:
        seen: list[float] = []

        class Watching(BaseHook):
            def before_train_iter(self, optimizer: Any) -> None:
                seen.append(optimizer.param_groups[0]["lr"])

        training = {"epochs": epochs, "scheduler": scheduler, "optimizer": {"type": "SGD", "lr": 0.1, "momentum": 0.9}}
        given = config(training=training, hooks=[{"type": "CheckpointHook"}])
        trainer = BaseTrainer(given, work_dir=tmp_path / folder, resume=resume)
        trainer.register_hook(Watching())
        trainer.train()
        return seen

    caplog.set_level("INFO")
    whole = rates(4, "whole")
    rates(2, "parts")
    assert rates(4, "parts", resume="auto") == pytest.approx(whole[6:])
    assert caplog.text.count("of the scheduler: ") == 1
    assert "settings" not in caplog.text, "it has just been applied, and nobody else set it"


def test_what_hooks_say_is_heard_without_a_logger_hook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])

    class Speaker(BaseHook):
        def before_training(self, logger: Any) -> None:
            logger.info("it begins")

    trainer = BaseTrainer(config(training={"epochs": 1}, hooks=[]), work_dir=tmp_path)
    trainer.register_hook(Speaker())
    trainer.train()
    assert "INFO     it begins" in capsys.readouterr().err
    assert logging.getLogger("ignite_hooks").handlers == []


def test_a_schedule_keeps_its_length_where_the_checkpoint_decides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def trained(epochs: int, resume: Any = None) -> BaseTrainer:
        training = {"epochs": epochs, "scheduler": "CosineAnnealingLR"}
        given = config(training=training, hooks=[{"type": "CheckpointHook"}], resume_settings="checkpoint")
        trainer = BaseTrainer(given, work_dir=tmp_path, resume=resume)
        trainer.train()
        return trainer

    trained(2)
    assert trained(3, resume="auto").scheduler.T_max == 2
    assert "keeps the former ones: scheduler.T_max 2 -> 3" in caplog.text
    assert "of the scheduler: " not in caplog.text


def test_gradients_are_clipped_when_they_have_been_accumulated(tmp_path: Path) -> None:
    norms: list[float] = []

    class Watching(BaseHook):
        def after_train_iter(self, runner: Any, model: Any) -> None:
            if runner.global_step % 3 == 0:
                norms.append(torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item())

    training = {"clip_grad": 0.01, "grad_accumulation": 3, "optimizer": "SGD"}
    trainer = BaseTrainer(config(training=training), work_dir=tmp_path)
    trainer.register_hook(Watching())
    trainer.train()
    assert norms == pytest.approx([0.01, 0.01], rel=1e-4)


def test_half_precision_on_a_cpu_is_bfloat16(tmp_path: Path) -> None:
    seen: list[torch.dtype] = []
    trainer = BaseTrainer(config(training={"amp": True}), work_dir=tmp_path)
    trainer.model.layers[-1].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    assert trainer.train()["val_accuracy"] >= 0
    assert set(seen) == {torch.bfloat16}


def test_deterministic_algorithms_are_for_the_training_alone(tmp_path: Path) -> None:
    seen: list[bool] = []

    class Watching(BaseHook):
        def after_epoch(self) -> None:
            seen.append(torch.are_deterministic_algorithms_enabled())
            seen.append(not torch.utils.deterministic.fill_uninitialized_memory)

    trainer = BaseTrainer(config(training={"deterministic": True}), work_dir=tmp_path)
    trainer.register_hook(Watching())
    trainer.train()
    assert seen == [True] * 4
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_an_eval_hook_of_the_configuration_decides_what_is_measured(tmp_path: Path) -> None:
    metric = {"error": {"type": "Loss", "loss_fn": "criterion"}}
    sections = config(hooks=[{"type": "EvalHook", "metric": "error", "rule": "less", "metrics": metric}])
    metrics = BaseTrainer(sections, work_dir=tmp_path).train()
    assert "val_error" in metrics
    assert "val_accuracy" not in metrics


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"type": "LoggerHook"}, r"a hook is needed, not \{'type': 'LoggerHook'\}: pass it to build_hook\(\) first"),
        (TimeTrackingHook, r"a class: write \{'type': 'TimeTrackingHook'\} or TimeTrackingHook\(\) for a hook"),
        (None, "not a hook: .*; a hook has a method that is a point, such as after_epoch; .*"),
    ],
    ids=["an entry", "a class", "nothing"],
)
def test_what_is_no_hook_is_not_registered(given: Any, hint: str, tmp_path: Path) -> None:
    trainer = BaseTrainer(config(), work_dir=tmp_path)
    with pytest.raises(TypeError, match=f"^{hint}$"):
        trainer.register_hook(given)


# -- what is kept --------------------------------------------------------------------------------------------------


def test_the_saved_configuration_gives_the_same_run_and_no_secrets(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    given = config(dataset="digits", training={"epoch_length": 2})
    given["tracker"] = {"api_key": "k-1234567890"}
    first = BaseTrainer(given, work_dir=tmp_path / "a")
    first.train()
    kept = (tmp_path / "a" / "config.yaml").read_text()
    assert "k-1234567890" not in kept
    assert yaml.safe_load(kept)["training"]["optimizer"] == {"type": "Adam", "lr": 0.001}
    again = BaseTrainer(tmp_path / "a" / "config.yaml", work_dir=tmp_path / "b")
    again.train()
    assert torch.equal(weights(first), weights(again))


def test_metrics_of_all_evaluations_are_in_the_file_of_numbers(tmp_path: Path) -> None:
    hooks = [{"type": "LoggerHook", "interval": 1}]
    BaseTrainer(config(hooks=hooks), work_dir=tmp_path).train()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    named = {f"{line['kind']}/{name}" for line in lines if "scalars" in line for name in line["scalars"]}
    assert {"train/loss", "val/accuracy", "test/accuracy"} <= named


# -- code of the user's own ------------------------------------------------------------------------------------------

OWN = """\
import torch
from ignite_hooks import BaseHook
from tests.trainer.tools import blobs


class Net(torch.nn.Module):
    def __init__(self, num_classes, width=8):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, num_classes))

    def forward(self, x):
        return self.layers(x)


class Counting(BaseHook):
    calls = 0

    def after_train_iter(self):
        Counting.calls += 1
"""


def test_models_data_and_hooks_may_be_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    sections = config(
        imports=["own_parts"],
        model={"type": "own_parts:Net", "width": 4},
        dataset="own_parts:blobs",
        hooks=[{"type": "own_parts:Counting"}],
    )
    trainer = BaseTrainer(sections, work_dir=tmp_path / "run")
    trainer.train()
    assert type(trainer.model).__name__ == "Net"
    assert sys.modules.pop("own_parts").Counting.calls == 6


def test_nothing_is_imported_that_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unlisted_parts.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"model.type: the module 'unlisted_parts' is not listed under imports"):
        BaseTrainer(config(model="unlisted_parts:Net"), work_dir=tmp_path / "run")


def test_a_mapping_a_pair_or_a_data_set_is_data(tmp_path: Path) -> None:
    whole = blobs()
    model = {"type": "mlp", "in_features": 16, "num_classes": 4}
    for number, given in enumerate(({"train": whole.train, "val": whole.val}, (whole.train, whole.val), whole.train)):
        trainer = BaseTrainer(
            config(dataset={"type": lambda given=given: given}, model=model), work_dir=tmp_path / str(number)
        )
        assert ("val_accuracy" in trainer.train()) == (number < 2)


def test_importing_the_package_loads_no_backend() -> None:
    code = (
        "import sys, ignite_hooks; print([m for m in ('torch', 'ignite', 'ignite_hooks.trainer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
