"""Checkpoints that libraries themselves have written load with the right table; where one is missing it is skipped."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ignite_hooks.checkpoint.load_from import load_from
from tests.ranks import run_ranks


class Net(nn.Module):
    """A backbone with batch norm, and a head."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU())
        self.head = nn.Linear(5, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.backbone(x))
        return found


def trained() -> Net:
    torch.manual_seed(7)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    return model


def bare(folder: Path, model: nn.Module) -> Path:
    torch.save(model.state_dict(), folder / "w.pth")
    return folder / "w.pth"


def of_before_torch_1_6(folder: Path, model: nn.Module) -> Path:
    torch.save(model.state_dict(), folder / "w.pth", _use_new_zipfile_serialization=False)
    return folder / "w.pth"


def averaged(folder: Path, model: nn.Module) -> Path:
    return bare(folder, torch.optim.swa_utils.AveragedModel(model))


def data_parallel(folder: Path, model: nn.Module) -> Path:
    return bare(folder, nn.DataParallel(model))


def compiled(folder: Path, model: nn.Module) -> Path:
    compiled_model: Any = torch.compile(model, backend="eager")
    return bare(folder, compiled_model)


def safetensors(folder: Path, model: nn.Module) -> Path:
    library = pytest.importorskip("safetensors.torch")
    library.save_model(model, folder / "w.safetensors")
    return folder / "w.safetensors"


def ignite(folder: Path, model: nn.Module) -> Path:
    from ignite.engine import Engine, Events
    from ignite.handlers import Checkpoint, DiskSaver

    trainer = Engine(lambda engine, batch: 0.0)
    to_save = {"model": model, "trainer": trainer, "optimizer": torch.optim.Adam(model.parameters())}
    saver = Checkpoint(to_save, DiskSaver(str(folder), require_empty=False))
    trainer.add_event_handler(Events.COMPLETED, saver)
    trainer.run([0, 1])
    return folder / str(saver.last_checkpoint)


def ours(folder: Path, model: nn.Module) -> Path:
    from ignite.engine import Engine

    from ignite_hooks import attach_hooks

    trainer = Engine(lambda engine, batch: 0.0)
    attach_hooks(trainer, ["EMAHook", "CheckpointHook"], model=model, work_dir=folder)
    trainer.run([0, 1])
    return folder / "last.pth"


def lightning(folder: Path, model: nn.Module) -> Path:
    library = _library("lightning.pytorch")

    class Module(library.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, _: int) -> Any:
            return self.model(batch).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    with _quietly():
        trainer = library.Trainer(
            max_steps=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(Module(), torch.utils.data.DataLoader([torch.randn(4) for _ in range(4)], batch_size=4))
        trainer.save_checkpoint(folder / "w.ckpt")
    return folder / "w.ckpt"


def mmengine(folder: Path, model: nn.Module) -> Path:
    with _quietly():
        runner_of = _library("mmengine.runner")
        base = _library("mmengine.model").BaseModel

        class Module(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.backbone, self.head = model.backbone, model.head

            def forward(self, inputs: Any, mode: str = "loss") -> Any:
                return {"loss": self.head(self.backbone(inputs)).square().mean()}

        runner = runner_of.Runner(
            Module(),
            work_dir=str(folder),
            train_dataloader={
                "batch_size": 4,
                "dataset": [torch.randn(4) for _ in range(4)],
                "sampler": {"type": "DefaultSampler", "shuffle": False},
                "collate_fn": lambda items: {"inputs": torch.stack(items)},
            },
            train_cfg={"by_epoch": True, "max_epochs": 1},
            optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.0}},
            custom_hooks=[{"type": "EMAHook"}],
            default_hooks={"checkpoint": {"type": "CheckpointHook", "interval": 1}},
        )
        runner.train()
    return folder / "epoch_1.pth"


def timm(folder: Path, model: nn.Module) -> Path:
    utils = _library("timm.utils")
    saver = utils.CheckpointSaver(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        model_ema=utils.ModelEmaV3(model),
        checkpoint_dir=str(folder),
        recovery_dir=str(folder),
    )
    with _quietly():
        saver.save_checkpoint(3, metric=0.5)
    return folder / "last.pth.tar"


def transformers(folder: Path, model: nn.Module) -> Path:
    library = _library("transformers")

    class Module(library.PreTrainedModel):  # type: ignore[misc]
        config_class = library.PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.net = model
            self.post_init()

        def _init_weights(self, module: Any) -> None:
            """Keep the weights."""

    with _quietly():
        Module(library.PretrainedConfig()).save_pretrained(folder)
    return folder / "model.safetensors"


REAL: dict[str, tuple[Callable[[Path, nn.Module], Path], str]] = {
    "torch": (bare, "a bare state_dict"),
    "torch before 1.6": (of_before_torch_1_6, "a bare state_dict"),
    "AveragedModel": (averaged, "a bare state_dict"),
    "DataParallel": (data_parallel, "a bare state_dict"),
    "torch.compile": (compiled, "a bare state_dict"),
    "safetensors": (safetensors, "a bare state_dict"),
    "ignite_hooks": (ours, "ignite_hooks"),
    "Ignite": (ignite, "Ignite"),
    "Lightning": (lightning, "Lightning"),
    "MMEngine": (mmengine, "MMEngine"),
    "timm": (timm, "timm"),
    "transformers": (transformers, "a bare state_dict"),
}


@pytest.mark.parametrize("name", list(REAL))
def test_a_real_checkpoint_loads_with_the_right_table(name: str, tmp_path: Path) -> None:
    write, origin = REAL[name]
    source = trained()
    path = write(tmp_path, source)
    wanted = {key: value.clone() for key, value in source.state_dict().items()}
    model = Net()
    words = load_from(model, path)
    assert f"({origin}): 9 of 9 weights of the model are loaded" in words
    left = [line for line in words.splitlines()[2:] if "n_averaged" not in line]
    assert left == [], "nothing is missing and nothing is left over"
    assert all(torch.equal(value, wanted[key]) for key, value in model.state_dict().items())
    other = load_from(Net(classes=8), path)
    assert "7 of 9 weights of the model are loaded" in other
    told = [line.split()[0] for line in other.splitlines() if "in the file and 8" in line]
    assert told == ["head.weight", "head.bias"], "a head of other classes stays as it was"


@pytest.mark.slow
def test_a_checkpoint_of_two_ranks_loads(tmp_path: Path) -> None:
    run_ranks(_save_of_two_ranks, str(tmp_path))
    assert "9 of 9" in load_from(Net(), tmp_path / "w.pth")


def _save_of_two_ranks(folder: str) -> None:
    model = nn.parallel.DistributedDataParallel(trained())
    if torch.distributed.get_rank() == 0:
        bare(Path(folder), model)


def _library(name: str) -> Any:
    with _quietly():
        return pytest.importorskip(name, exc_type=ImportError)


@contextlib.contextmanager
def _quietly() -> Any:
    """Ignore what other libraries warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
