"""Shows what a model gets wrong in words, sounds and moving pictures: a table, a WAV and a GIF in the report.

    python examples/words_sounds_videos.py text|sound|video

Each trains a small model on data that is made here, within seconds. Everything is in the work directory: `media` has
the files, `metrics.jsonl` the tables, and `report.html` plays and shows them. A tracker gets them too: add
`--tracker TensorBoardHook`, `MLflowHook`, `WandbHook` or `ClearMLHook`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Events, create_supervised_trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ignite_hooks import Runner, attach_hooks

HOOKS: list[Any] = [{"type": "LoggerHook", "interval": 20}, {"type": "ReportHook"}]
RATE = 8000
"""Samples of a sound in a second."""

GOOD = ("lovely", "bright", "warm", "splendid")
BAD = ("dull", "cold", "grey", "dreadful")
THINGS = ("morning", "soup", "film", "song", "walk", "book")


def text(runner_of: Callable[..., Runner], epochs: int) -> None:
    """Tell praise from blame, and write a table of the sentences that the model gets most wrong."""
    torch.manual_seed(0)
    sentences, labels = [], []
    for place in range(240):
        praised = place % 2
        word = (GOOD if praised else BAD)[place // 2 % 4]
        sentences.append(f"what a {word} {THINGS[place % 6]}")
        # A few are meant the other way round, which no model can know.
        labels.append(1 - praised if place % 17 == 0 else praised)
    words = sorted({word for sentence in sentences for word in sentence.split()})
    bags = torch.tensor([[float(word in sentence.split()) for word in words] for sentence in sentences])
    data = TensorDataset(bags, torch.tensor(labels))
    model = nn.Linear(len(words), 2)
    trainer, runner = training(model, runner_of)

    @trainer.on(Events.COMPLETED)
    def write_the_worst() -> None:
        losses = nn.functional.cross_entropy(model(bags), data.tensors[1], reduction="none")
        rows = [[sentences[i], ("blame", "praise")[labels[i]], float(losses[i])] for i in losses.argsort()[-8:].flip(0)]
        runner.writer.write_table("worst", ["sentence", "true", "loss"], rows, runner.global_step)

    trainer.run(DataLoader(data, 16, shuffle=True), max_epochs=epochs)


def tone(pitch: float, seconds: float = 1.0) -> Tensor:
    """Return a tone with a little noise, which fades out."""
    time = torch.arange(int(RATE * seconds)) / RATE
    return torch.sin(2 * math.pi * pitch * time) * (1 - time / seconds) * 0.5 + 0.05 * torch.randn(len(time))


def sound(runner_of: Callable[..., Runner], epochs: int) -> None:
    """Tell low tones from high ones, and write the sound that the model is least sure of."""
    torch.manual_seed(0)
    pitches = torch.linspace(180, 720, 96)
    sounds = torch.stack([tone(float(pitch)) for pitch in pitches])
    spectra = torch.fft.rfft(sounds).abs()[:, :1024].log1p()
    data = TensorDataset(spectra, (pitches > 440).long())
    model = nn.Sequential(nn.Linear(1024, 16), nn.ReLU(), nn.Linear(16, 2))
    trainer, runner = training(model, runner_of)

    @trainer.on(Events.EPOCH_COMPLETED)
    def write_the_hardest() -> None:
        losses = nn.functional.cross_entropy(model(spectra), data.tensors[1], reduction="none")
        runner.writer.write_audio("hardest", sounds[losses.argmax()], runner.global_step, rate=RATE)

    trainer.run(DataLoader(data, 16, shuffle=True), max_epochs=epochs)


def spirals(count: int) -> tuple[Tensor, Tensor]:
    """Return points of two spirals, and which of them each is of."""
    turn = torch.linspace(0.4, 3.2, count)
    arms = [torch.stack([turn * torch.cos(2 * turn + a), turn * torch.sin(2 * turn + a)], 1) for a in (0.0, math.pi)]
    points = torch.cat(arms) + 0.06 * torch.randn(2 * count, 2)
    return points / 3.4, torch.arange(2).repeat_interleave(count)


def drawn(model: nn.Module, points: Tensor, labels: Tensor, side: int = 160) -> Tensor:
    """Return a picture of what the model says of each place of the plane, with the points."""
    across = torch.linspace(-1, 1, side)
    grid = torch.cartesian_prod(across, across)
    with torch.no_grad():
        share = model(grid).softmax(1)[:, 1].reshape(side, side).T.flip(0)
    blue, red = torch.tensor([0.25, 0.47, 0.85]), torch.tensor([0.86, 0.36, 0.30])
    picture = 1 - 0.45 * (1 - (share[..., None] * red + (1 - share[..., None]) * blue))
    for (x, y), label in zip(points.clamp(-0.97, 0.97).tolist(), labels.tolist(), strict=True):
        row, column = round((1 - y) / 2 * (side - 1)), round((1 + x) / 2 * (side - 1))
        picture[row - 1 : row + 2, column - 1 : column + 2] = (red if label else blue) * 0.8
    return picture


def video(runner_of: Callable[..., Runner], epochs: int) -> None:
    """Tell two spirals apart, and write how the border between them comes to its place."""
    torch.manual_seed(0)
    points, labels = spirals(80)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    trainer, runner = training(model, runner_of)
    frames: list[Tensor] = []

    @trainer.on(Events.EPOCH_COMPLETED)
    def draw() -> None:
        frames.append(drawn(model, points, labels))

    @trainer.on(Events.COMPLETED)
    def write() -> None:
        runner.writer.write_video("border", torch.stack(frames), runner.global_step, fps=10)

    trainer.run(DataLoader(TensorDataset(points, labels), 24, shuffle=True), max_epochs=8 * epochs)


def training(model: nn.Module, runner_of: Callable[..., Runner]) -> tuple[Any, Runner]:
    """Return the trainer of a classifier with hooks."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss())
    return trainer, runner_of(trainer, model=model, optimizer=optimizer)


EXAMPLES = {"text": text, "sound": sound, "video": video}


def main() -> None:
    """Run one of the examples."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("which", choices=EXAMPLES)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--tracker", help="a hook, such as TensorBoardHook")
    parser.add_argument("--work-dir", type=Path)
    given = parser.parse_args()
    folder = given.work_dir or Path("work_dirs") / given.which
    hooks = [*HOOKS, *([{"type": given.tracker, "interval": 20}] if given.tracker else [])]

    def runner_of(trainer: Any, **services: Any) -> Runner:
        return attach_hooks(trainer, hooks, work_dir=folder, **services)

    torch.set_num_threads(1)
    EXAMPLES[given.which](runner_of, given.epochs)
    print(f"look at it: {folder / 'report.html'}")


if __name__ == "__main__":
    main()
