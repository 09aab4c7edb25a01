"""Small trainings in which the examples of hooks run: each takes a fraction of a second on one core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from ignite.engine import Engine, Events, create_supervised_trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = ("top", "middle", "bottom")
BATCH, SIDE = 16, 12


@dataclass
class Scene:
    """A trainer with its data, and what is given to `attach_hooks`."""

    trainer: Engine
    data: Any
    services: dict[str, Any]
    epochs: int = 3
    fails: type[BaseException] | None = None
    """The failure in which the training ends, if it does."""
    names: tuple[str, ...] = field(default=("model", "optimizer", "criterion", "val_loader"))
    """The services that the page shows."""


def stripes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return images with a bright stripe at the top, in the middle or at the bottom, and where it is."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, len(CLASSES), (count,), generator=random)
    images = 0.6 * torch.randn(count, 1, SIDE, SIDE, generator=random)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[0, 4 * label : 4 * label + 4] += 1
    return images, labels


def network(classes: int = len(CLASSES)) -> nn.Sequential:
    """Return a small classifier."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(72, classes),
    )


def weak_augmentation(sample: Any) -> Any:
    """Change nothing."""
    return sample


class Named(TensorDataset):
    """Data that knows the names of its classes, and has a transform."""

    classes = CLASSES
    transform = staticmethod(weak_augmentation)


class Mixed(TensorDataset):
    """Data with augmentations that can be left out."""

    def __init__(self, *tensors: Tensor) -> None:
        super().__init__(*tensors)
        self.skipped: list[str] = []

    def update_skip_type_keys(self, keys: Any) -> None:
        """Leave these augmentations out."""
        self.skipped = list(keys)


def classifier(model: nn.Module | None = None, optimizer: Any = None, data: type[TensorDataset] = Named) -> Scene:
    """Return the training of a classifier of stripes."""
    model = network() if model is None else model
    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1) if optimizer is None else optimizer(trained)
    criterion = nn.CrossEntropyLoss()
    train = DataLoader(data(*stripes(6 * BATCH, 0)), batch_size=BATCH, shuffle=True)
    val = DataLoader(data(*stripes(2 * BATCH, 1)), batch_size=BATCH)
    trainer = create_supervised_trainer(model, optimizer, criterion)
    services = {"model": model, "optimizer": optimizer, "criterion": criterion, "val_loader": val}
    return Scene(trainer, train, {**services, "train_loader": train, "device": torch.device("cpu")})


def with_services(**more: Any) -> Callable[[], Scene]:
    """Return the maker of a scene that has more services."""

    def make() -> Scene:
        scene = classifier()
        scene.services |= more
        scene.names = (*scene.names, *more)
        return scene

    return make


def scheduled() -> Scene:
    """Return a training with a scheduler."""
    scene = classifier()
    scene.services["scheduler"] = torch.optim.lr_scheduler.StepLR(scene.services["optimizer"], 1, gamma=0.5)
    scene.names = (*scene.names, "scheduler")
    return scene


class Counting(nn.Sequential):
    """A model that wants to know the epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Take the epoch."""
        self.epoch = epoch


class Teaching(nn.Module):
    """A student, and a teacher that is its average."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = network(), network().requires_grad_(False)

    def forward(self, images: Tensor) -> Any:
        """Classify by the student."""
        return self.student(images)


class ScheduleFree(torch.optim.SGD):
    """An optimizer with the methods of schedule-free ones."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        for group in self.param_groups:
            group["train_mode"] = True

    def train(self) -> None:
        """Have the training weights."""
        for group in self.param_groups:
            group["train_mode"] = True

    def eval(self) -> None:
        """Have the weights for evaluations."""
        for group in self.param_groups:
            group["train_mode"] = False


class Trial:
    """A trial of a search that is pruned after its second evaluation."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def report(self, value: float, step: int) -> None:
        """Take a value."""
        self.told.append(value)

    def should_prune(self) -> bool:
        """Return whether it is hopeless."""
        return len(self.told) > 1


def short_of_memory() -> Scene:
    """Return a training that fails for want of memory in its second epoch."""
    scene = classifier()
    scene.fails = MemoryError

    def fail() -> None:
        raise MemoryError("no memory is left for a tensor of 3.2 GB")

    scene.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=8), fail)
    return scene


def discs(count: int, seed: int, side: int = 64) -> tuple[Tensor, list[tuple[int, int, int]]]:
    """Return images with a bright disc, and the place and radius of each."""
    random = torch.Generator().manual_seed(seed)
    images = 0.25 * torch.rand(count, 3, side, side, generator=random)
    across = torch.arange(side)
    places = []
    for image in images:
        radius = int(torch.randint(8, 16, (), generator=random))
        x, y = (int(torch.randint(radius, side - radius, (), generator=random)) for _ in range(2))
        image[:, (across[:, None] - y) ** 2 + (across - x) ** 2 < radius**2] += 0.6
        places.append((x, y, radius))
    return images, places


def of_pictures(step: Callable[[Engine, Any], Any], batches: list[Any]) -> Scene:
    """Return a run whose step finds something in images; nothing is learnt, as only the pictures matter."""
    services = {"model": nn.Identity(), "device": torch.device("cpu")}
    return Scene(Engine(step), batches, services, epochs=1, names=("model",))


def detector() -> Scene:
    """Return the run of a detector that finds most discs, and something else besides."""
    images, places = discs(4, 0)
    targets = [
        {"boxes": torch.tensor([[x - r, y - r, x + r, y + r]], dtype=torch.float32), "labels": torch.tensor([1])}
        for x, y, r in places
    ]

    def step(engine: Engine, batch: Any) -> Any:
        found = [
            {
                "boxes": torch.cat([target["boxes"] + (3.0 if index != 2 else 25.0), torch.tensor([[2.0, 2, 16, 14]])]),
                "labels": torch.tensor([1, 1]),
                "scores": torch.tensor([0.93 - 0.1 * index, 0.41]),
            }
            for index, target in enumerate(batch[1])
        ]
        return {"pred": found, "loss": 1 / engine.state.iteration}

    return of_pictures(step, [(list(images), targets)] * 6)


def segmenter() -> Scene:
    """Return the run of a segmenter that finds discs a bit too far to the right."""
    images, _ = discs(4, 0)
    masks = (images.mean(1) > 0.5).long()

    def step(engine: Engine, batch: Any) -> Any:
        moved = batch[1].roll(4, dims=2)
        return {"pred": nn.functional.one_hot(moved, 2).movedim(-1, 1).float(), "loss": 1 / engine.state.iteration}

    return of_pictures(step, [(images, masks)] * 6)


def show_progress(epoch: int) -> None:
    """Print the epoch."""
    print(f"epoch {epoch} is done")


SCENES: dict[str, Callable[[], Scene]] = {
    "DetVisualizationHook": detector,
    "LambdaHook": with_services(show_progress=show_progress),
    "MeanTeacherHook": lambda: classifier(Teaching()),
    "OOMObserverHook": short_of_memory,
    "ParamSchedulerHook": scheduled,
    "PipelineSwitchHook": with_services(weak_augmentation=weak_augmentation),
    "PruningHook": lambda: with_services(trial=Trial())(),
    "ScheduleFreeHook": lambda: classifier(optimizer=ScheduleFree),
    "SegVisualizationHook": segmenter,
    "SetEpochInfoHook": lambda: classifier(Counting(*network())),
    "YOLOXModeSwitchHook": lambda: classifier(data=Mixed),
}
"""The scenes of hooks that need more than a classifier."""


def scene_of(hook: str) -> Scene:
    """Return the scene of a hook; the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return SCENES.get(hook, classifier)()
