"""The same work in MMEngine and Lightning, set up as their documentation does; empty if they are not installed."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import torch

PACKAGES = {"MMEngine": "mmengine", "Lightning": "lightning", "timm": "timm"}


@functools.cache
def peers_there() -> tuple[str, ...]:
    """Return the installed peers."""
    there = tuple(name for name, package in PACKAGES.items() if importlib.util.find_spec(package) is not None)
    missing = [name for name in PACKAGES if name not in there]
    if missing:
        print(f"not installed and not measured: {', '.join(missing)} (make bench installs them)", file=sys.stderr)
    return there


@functools.cache
def nowhere() -> IO[str]:
    """Return a stream that nobody reads, open for as long as loggers may write to it."""
    return open("/dev/null", "w")


# -- MMEngine --------------------------------------------------------------------------------------------------


def mmengine_runner(step: Callable[[Any], Any], data: Any, folder: Path, epochs: int, **given: Any) -> Any:
    """Return a runner whose model only calls a step."""
    from mmengine.model import BaseModel
    from mmengine.runner import Runner

    module, optimizer = given.pop("model", None), given.pop("optimizer", None)

    class Model(BaseModel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = module or torch.nn.Linear(1, 1)

        def train_step(self, batch: Any, optim_wrapper: Any) -> dict[str, Any]:
            loss = step(batch)
            return {} if loss is None else {"loss": loss}

        def val_step(self, batch: Any) -> list[Any]:
            with torch.no_grad():
                return [(self.inner(batch[0]), batch[1])]

        def forward(self, *_: Any, **__: Any) -> None:
            """Never called: the steps are what they are."""

    model = Model()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    settings: dict[str, Any] = {
        "work_dir": str(folder),
        "train_dataloader": data,
        "train_cfg": {"by_epoch": True, "max_epochs": epochs, "val_interval": 1},
        "optim_wrapper": {"optimizer": optimizer},
        "log_level": "INFO",
        "experiment_name": f"run_{folder.name}_{abs(hash(folder))}",
    }
    # What it prints is formatted all the same, and not shown: its handler keeps the stream it finds here.
    with contextlib.redirect_stdout(nowhere()), contextlib.redirect_stderr(nowhere()):
        return Runner(model=model, **{**settings, **given})


def mmengine_metric(criterion: Any) -> Any:
    """Return a metric: the mean loss of an evaluation."""
    from mmengine.evaluator import BaseMetric

    class MeanLoss(BaseMetric):  # type: ignore[misc]
        def process(self, data_batch: Any, data_samples: Any) -> None:
            for predicted, wanted in data_samples:
                self.results.append((criterion(predicted, wanted).item(), len(wanted)))

        def compute_metrics(self, results: list[Any]) -> dict[str, float]:
            return {"val_loss": sum(loss * n for loss, n in results) / sum(n for _, n in results)}

    return MeanLoss()


def mmengine_run(work: Any, folder: Path) -> None:
    """Run the default hooks with EMA, early stopping and validation."""
    from default_set import EPOCHS, INTERVAL, MOMENTUM

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = mmengine_runner(
            work.step,
            work.data,
            folder,
            EPOCHS,
            model=work.model,
            optimizer=work.optimizer,
            val_dataloader=work.val_data,
            val_cfg={},
            val_evaluator=[mmengine_metric(work.criterion)],
            default_hooks={
                "logger": {"type": "LoggerHook", "interval": INTERVAL},
                "checkpoint": {"type": "CheckpointHook", "interval": 1, "max_keep_ckpts": 1},
            },
            custom_hooks=[
                {"type": "EMAHook", "momentum": 1 - MOMENTUM},
                {"type": "EarlyStoppingHook", "monitor": "val_loss", "rule": "less", "patience": 10},
            ],
        )
        runner.train()


def mmengine_follow(
    folder: Path, step: Callable[[Any], Any], hooks: list[Any], **given: Any
) -> Callable[[Iterable[Any]], None]:
    """Return a run over any data it is given, with these hooks and no others."""

    class Endless:
        dataset = ()

        def __init__(self, parts: Iterable[Any]) -> None:
            self._parts = parts

        def __len__(self) -> int:
            return 1 << 40

        def __iter__(self) -> Any:
            return iter(self._parts)

    def follow(data: Iterable[Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runner = mmengine_runner(step, Endless(data), folder, 1, **given)
            if "default_hooks" not in given:
                runner._hooks.clear()
            for hook in hooks:
                runner.register_hook(hook)
            runner.train()

    return follow


# -- Lightning -------------------------------------------------------------------------------------------------


def be_quiet() -> None:
    """Lightning says what hardware it has found and which of it is idle, at each run."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    warnings.filterwarnings("ignore", module="torch")


def lightning_run(work: Any, folder: Path) -> None:
    """Run the trainer with its callbacks that do the same."""
    import lightning
    from default_set import EPOCHS, INTERVAL, MOMENTUM
    from lightning.pytorch import callbacks
    from lightning.pytorch.loggers import CSVLogger

    be_quiet()

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = work.model

        def training_step(self, batch: Any, _: int) -> Any:
            x, y = batch
            loss = work.criterion(self.inner(x), y)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            x, y = batch
            self.log("val_loss", work.criterion(self.inner(x), y), batch_size=len(y))

        def configure_optimizers(self) -> Any:
            return work.optimizer

    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=1,
        default_root_dir=folder,
        logger=CSVLogger(str(folder)),
        log_every_n_steps=INTERVAL,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[
            callbacks.ModelCheckpoint(str(folder / "saved"), save_top_k=1),
            callbacks.EarlyStopping("val_loss", patience=10),
            callbacks.EMAWeightAveraging(decay=MOMENTUM),
            callbacks.LearningRateMonitor(),
            callbacks.Timer(),
        ],
    )
    trainer.fit(Module(), work.data, work.val_data)


def lightning_follow(
    folder: Path, step: Callable[[Any], Any], hooks: list[Any], **given: Any
) -> Callable[[Iterable[Any]], None]:
    """Return a run over any data it is given, with these callbacks and no others."""
    import lightning

    module, logs = given.pop("model", None), given.pop("logs", False)

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = module or torch.nn.Linear(1, 1)
            self.automatic_optimization = False

        def training_step(self, batch: Any, _: int) -> None:
            loss = step(batch)
            if logs:
                self.log("loss", loss)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Parts(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __init__(self, data: Iterable[Any]) -> None:
            self._data = data

        def __iter__(self) -> Any:
            return iter(self._data)

    plain = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "log_every_n_steps": 50}

    def follow(data: Iterable[Any]) -> None:
        be_quiet()
        trainer = lightning.Trainer(
            max_epochs=1,
            accelerator="cpu",
            devices=1,
            default_root_dir=folder,
            enable_model_summary=False,
            callbacks=hooks,
            **{**plain, **given},
        )
        trainer.fit(Module(), torch.utils.data.DataLoader(Parts(data), batch_size=None))

    return follow


# -- EMA and saving --------------------------------------------------------------------------------------------


def timm_ema() -> Any:
    """Return ``ModelEmaV3`` of timm, whose file is loaded alone: the package needs a torchvision for this torch."""
    found = importlib.util.find_spec("timm")
    assert found is not None
    assert found.submodule_search_locations
    path = Path(next(iter(found.submodule_search_locations))) / "utils" / "model_ema.py"
    spec = importlib.util.spec_from_file_location("timm_model_ema", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelEmaV3


class Saver:
    """Saves a state by a function that may only begin to; ``finish`` waits until all of it is written."""

    def __init__(self, begin: Callable[[], Callable[[], object] | None]) -> None:
        self._begin = begin
        self._wait: Callable[[], object] | None = None

    def __call__(self) -> None:
        self._wait = self._begin()

    def finish(self) -> None:
        """Wait until every save has finished."""
        if self._wait is not None:
            self._wait()


def torch_async_saver(state: Callable[[], Any], folder: Path) -> Saver:
    """Return a saver that uses ``torch.distributed.checkpoint.async_save``."""
    import torch.distributed.checkpoint as dcp

    def begin() -> Callable[[], object]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dcp.async_save(state(), checkpoint_id=str(folder), no_dist=True).result

    return Saver(begin)


def lightning_savers(state: Callable[[], Any], folder: Path) -> dict[str, Saver]:
    """Return what its trainer saves with, alone: synchronous and asynchronous."""
    if "Lightning" not in peers_there():
        return {}
    from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

    plainly, beside = TorchCheckpointIO(), AsyncCheckpointIO(TorchCheckpointIO())
    waiting: Any = beside

    def begin() -> Callable[[], object]:
        beside.save_checkpoint(state(), folder / "async.ckpt")
        executor = waiting._executor
        return lambda: executor.submit(int).result()

    return {
        "Lightning": Saver(lambda: plainly.save_checkpoint(state(), folder / "sync.ckpt")),
        "Lightning async": Saver(begin),
    }
