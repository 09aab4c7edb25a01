"""Several trainers in one process, with the default hooks and no work directory: none loses anything to another."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy
from torch import nn

from ignite_hooks import Runner, attach_hooks

X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
DATA = [(X[i : i + 4], (X[i : i + 4].sum(1) > 0).long()) for i in range(0, 12, 4)]
EPOCHS = 2


class Run:
    """One trainer with the default hooks; its words are its own."""

    def __init__(self, number: int) -> None:
        self.word = f"trainer-{number}-says-so"
        self.model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1 * (number + 1))
        self.trainer = create_supervised_trainer(self.model, optimizer, nn.CrossEntropyLoss())
        evaluator = create_supervised_evaluator(self.model, {"accuracy": Accuracy()})
        services = {"model": self.model, "optimizer": optimizer, "val_loader": DATA}
        self.runner: Runner = attach_hooks(self.trainer, evaluators=evaluator, **services)
        self.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: self.runner.logger.warning(self.word))

    def train(self, epochs: int = EPOCHS) -> None:
        self.trainer.run(DATA, max_epochs=epochs)


def nested(runs: list[Run]) -> None:
    """Each runs within the first epoch of the one before."""

    def begin(inner: Run) -> Callable[[], None]:
        return lambda: inner.train()

    for outer, inner in itertools.pairwise(runs):
        outer.trainer.add_event_handler(Events.EPOCH_STARTED(once=1), begin(inner))
    runs[0].train()


def interleaved(runs: list[Run]) -> None:
    """They take turns, an epoch each."""
    for epoch in range(EPOCHS):
        for run in runs:
            run.train(epoch + 1)


def in_threads(runs: list[Run]) -> None:
    """All run at once: each epoch begins when all of them have come so far."""
    meet = threading.Barrier(len(runs))
    failed: list[BaseException] = []

    def train(run: Run) -> None:
        try:
            run.train()
        except BaseException as error:
            failed.append(error)
            meet.abort()

    for run in runs:
        run.trainer.add_event_handler(Events.EPOCH_STARTED, lambda: meet.wait(120))
    threads = [threading.Thread(target=train, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not failed, failed


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("way", [nested, interleaved, in_threads], ids=lambda way: way.__name__)
def test_each_has_its_own_folder_files_log_and_best(
    way: Callable[[list[Run]], None], count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [Run(number) for number in range(count)]
    way(runs)
    assert sorted(path.name for path in Path("work_dirs").iterdir()) == sorted(r.runner.work_dir.name for r in runs)
    assert len({run.runner.work_dir for run in runs}) == count
    for run in runs:
        folder = run.runner.work_dir
        assert {"epoch_1.pth", "epoch_2.pth", "last.pth", "manifest.json"} <= {path.name for path in folder.iterdir()}
        assert not list(folder.glob("earlier-*"))
        saved = torch.load(folder / "last.pth", weights_only=True)
        assert all(torch.equal(saved["state_dict"][name], value) for name, value in run.model.state_dict().items())
        best = run.runner.best["accuracy"]
        assert saved["best"]["accuracy"]["record"]["score"] == best.score
        assert torch.load(folder / str(best.file), weights_only=True)["meta"]["epoch"] == best.epoch
        text = "".join(path.read_text() for path in sorted((folder / "logs").glob("*.log")))
        assert text.count(run.word) == EPOCHS
        assert not [other.word for other in runs if other is not run and other.word in text]
        assert text.count(str(folder)) >= 1
        assert not [o for o in runs if o is not run and f"{o.runner.work_dir}\n" in text]
        run.runner.detach()
        assert (folder / "last.pth").exists()
