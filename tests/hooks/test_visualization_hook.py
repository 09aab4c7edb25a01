from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, ConfusionMatrix
from PIL import Image
from torch import Tensor, nn

from ignite_hooks import ConfigError, Runner, attach_hooks
from ignite_hooks.drawing import explain
from ignite_hooks.drawing.confusion_matrix import confusion
from ignite_hooks.drawing.theme import MISSED, RIGHT, WRONG
from ignite_hooks.hooks.visualization_hook import DetVisualizationHook, SegVisualizationHook, VisualizationHook
from ignite_hooks.writers.memory import MemoryWriter

Batch = tuple[Tensor, Tensor]


def cnn() -> nn.Sequential:
    """Return a small network with everything that could change: running statistics, dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )


def batches(count: int, size: int = 8) -> list[Batch]:
    generator = torch.Generator().manual_seed(count)
    return [
        (torch.rand(size, 1, 12, 12, generator=generator), torch.randint(0, 3, (size,), generator=generator))
        for _ in range(count)
    ]


class Run:
    """A training of four batches with an evaluation of two, and the pictures drawn of it."""

    def __init__(self, folder: Path, *hooks: Any, output: Callable[..., Any] | None = None, **services: Any) -> None:
        torch.manual_seed(0)
        self.folder, self.sink = folder, MemoryWriter()
        self.model = cnn()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        how: dict[str, Any] = {"output_transform": output} if output else {}
        self.trainer = create_supervised_trainer(self.model, self.optimizer, nn.CrossEntropyLoss(), **how)
        self.evaluator = create_supervised_evaluator(self.model, {"accuracy": Accuracy()})
        cfg = {"hooks": [{"type": "EvalHook"}, *hooks], "writers": [self.sink]}
        self.runner: Runner = attach_hooks(
            self.trainer,
            cfg,
            evaluators=self.evaluator,
            work_dir=folder,
            **{"model": self.model, "optimizer": self.optimizer, "val_loader": batches(2), **services},
        )

        for engine in (self.trainer, self.evaluator):
            engine.add_event_handler(Events.ITERATION_STARTED, self.wait)

    def wait(self) -> None:
        """Wait for the drawing thread, which would drop pictures of iterations this short."""
        for hook in self.runner.hooks.values():
            if getattr(hook, "_thread", None) is not None:
                hook._thread.wait()

    def train(self, data: Any = None, epochs: int = 2) -> Run:
        self.trainer.run(batches(4) if data is None else data, max_epochs=epochs)
        assert self.runner.report().failures == {}
        return self

    @property
    def drawn(self) -> list[tuple[str, int]]:
        return [(name, step) for name, _, step in self.sink.images]

    @property
    def files(self) -> list[str]:
        root = self.folder / "visualization"
        return sorted(str(file.relative_to(root)) for file in root.rglob("*.*"))


def colours_of(picture: Any) -> set[tuple[int, ...]]:
    numbers = np.unique(np.asarray(picture).reshape(-1, 3) @ np.array([1 << 16, 1 << 8, 1])).tolist()
    return {(number >> 16, number >> 8 & 255, number & 255) for number in numbers}


# -- when and where ----------------------------------------------------------------------------------------------


def test_scheduled_iterations_and_first_evaluation_batches_are_drawn(tmp_path: Path) -> None:
    run = Run(tmp_path, {"type": "VisualizationHook", "interval": 3}).train()
    assert run.drawn == [
        ("train/predictions", 3),
        ("val/predictions", 4),
        ("train/predictions", 6),
        ("val/predictions", 8),
    ]
    assert run.files == [
        "train/predictions_000003.png",
        "train/predictions_000006.png",
        "val/predictions_000004.png",
        "val/predictions_000008.png",
    ]


def test_long_evaluations_draw_a_batch_every_interval(tmp_path: Path) -> None:
    run = Run(tmp_path, {"type": "VisualizationHook", "interval": 2}, val_loader=batches(5)).train(epochs=1)
    assert [name for name, _ in run.drawn if name.startswith("val")] == [
        "val/predictions",
        "val/batch_3/predictions",
        "val/batch_5/predictions",
    ]


def test_by_epoch_the_last_batch_of_the_epoch_is_drawn(tmp_path: Path) -> None:
    run = Run(tmp_path, {"type": "VisualizationHook", "every": "2 epoch"}).train(epochs=4)
    assert [step for name, step in run.drawn if name.startswith("train")] == [8, 16]


def test_a_test_is_drawn_like_an_evaluation(tmp_path: Path) -> None:
    test = {"type": "EvalHook", "name": "test", "save_best": False, "metrics": {}}
    run = Run(tmp_path, test, {"type": "VisualizationHook"}, test_loader=batches(2)).train(epochs=1)
    assert ("test/predictions", 4) in run.drawn


@pytest.mark.parametrize("out_dir", ["mine", "absolute"])
def test_files_go_to_out_dir(tmp_path: Path, out_dir: str) -> None:
    wanted = tmp_path / "elsewhere" if out_dir == "absolute" else Path(out_dir)
    Run(tmp_path / "run", VisualizationHook(interval=4, out_dir=wanted)).train(epochs=1)
    assert (tmp_path / "run" / wanted / "train" / "predictions_000004.png").exists()


def test_without_save_only_the_writer_has_the_pictures(tmp_path: Path) -> None:
    run = Run(tmp_path, VisualizationHook(interval=4, save=False)).train(epochs=1)
    assert len(run.drawn) == 2
    assert not (tmp_path / "visualization").exists()


def test_the_plan_says_how_often(tmp_path: Path) -> None:
    plan = str(Run(tmp_path, VisualizationHook(interval=30)).runner.plan)
    assert "every 30 iters" in plan
    assert "first batch, then every 30 iters" in plan


def test_defaults_are_those_of_the_specification() -> None:
    hook = VisualizationHook()
    names = ["interval", "draw_gt", "draw_pred", "show", "save", "out_dir", "max_samples", "score_thr", "backend"]
    assert [getattr(hook, name) for name in names] == [500, True, True, False, True, None, 16, 0.3, "matplotlib"]


# -- what --------------------------------------------------------------------------------------------------------


CONTENTS = ["predictions", "feature_map", "attention", "cam", "gradient"]


class Attending(nn.Module):
    """A network with convolutions behind attention between the rows of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
        self.layers = cnn()

    def forward(self, images: Tensor) -> Tensor:
        rows = images[:, 0]
        seen: Tensor = self.layers(self.attention(rows, rows, rows)[0][:, None])
        return seen


def test_every_content_is_drawn_in_training_and_evaluation(tmp_path: Path) -> None:
    model, pictures = Attending(), VisualizationHook(interval=4, contents=CONTENTS, smooth=2)
    run = Run(tmp_path, pictures, model=model).train(epochs=1)
    names = ["predictions", "feature_map/layers.0", "feature_map/layers.4", "attention", "cam", "gradient"]
    assert {name for name, _ in run.drawn} == {f"{where}/{name}" for where in ("train", "val") for name in names}
    for content in CONTENTS:
        alone = VisualizationHook(interval=4, contents=[content], smooth=2)
        one = Run(tmp_path / content, alone, model=model).train(epochs=1)
        seen = {name for name, _ in one.drawn}
        assert seen == {f"{where}/{n}" for where in ("train", "val") for n in names if n.startswith(content)}


class Rounded(nn.Module):
    """A network whose scores have no gradient."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :3].round().detach()


@pytest.mark.parametrize(
    ("model", "wanted", "impossible"),
    [
        (cnn, ["attention", "cam"], {"attention": "no attention"}),
        (
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 3)),
            ["cam", "feature_map", "attention", "gradient"],
            {"cam": "no convolution", "feature_map": "no convolution", "attention": "no attention"},
        ),
        (Rounded, ["gradient", "predictions"], {"gradient": "have no gradient"}),
    ],
)
def test_an_impossible_content_is_left_out_and_said_once(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    model: Callable[[], nn.Module],
    wanted: list[str],
    impossible: dict[str, str],
) -> None:
    run = Run(tmp_path, VisualizationHook(interval=1, contents=wanted), model=model())  # type: ignore[arg-type]
    run.train()
    drawn = {name.split("/")[1] for name, step in run.drawn if name.startswith("train/") and step == 8}
    assert drawn == set(wanted) - set(impossible), "the others are drawn to the end"
    for content, reason in impossible.items():
        said = [message for message in caplog.messages if f"contents: no {content} " in message]
        assert len(said) == 1
        assert reason in said[0]


@pytest.mark.parametrize("content", ["cam", "gradient"])
def test_explanations_are_of_the_class_in_the_caption(
    tmp_path: Path, content: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    name = {"cam": "grad_cam", "gradient": "saliency"}[content]
    plain = getattr(explain, name)

    def recorded(*given: Any, **named: Any) -> Any:
        asked.append(named["target"])
        return plain(*given, **named)

    monkeypatch.setattr(explain, name, recorded)
    scores = torch.eye(3)[[2, 0, 1, 1, 2, 2, 0, 1]]
    hook = VisualizationHook(interval=4, contents=[content], max_samples=5, smooth=1)
    Run(tmp_path / "scores", hook, output=lambda *_: scores).train(epochs=1)
    assert asked[0].tolist() == [2, 0, 1, 1, 2]
    hook = VisualizationHook(interval=4, contents=[content], draw_pred=False, smooth=1)
    Run(tmp_path / "nothing", hook, output=lambda *_: scores).train(epochs=1)
    assert asked[-1] is None, "the class that the model predicts"


@pytest.mark.parametrize(
    ("settings", "images"),
    [
        ({}, {"first": 8}),
        ({"max_samples": 3}, {"first": 3}),
        ({"max_samples": 100}, {"first": 8}),
    ],
)
def test_a_picture_has_at_most_max_samples_images(
    tmp_path: Path, settings: dict[str, Any], images: dict[str, int]
) -> None:
    run = Run(tmp_path, VisualizationHook(interval=4, **settings)).train(epochs=1)
    _, picture, _ = run.sink.images[0]
    frames = {RIGHT, WRONG} & colours_of(picture)
    assert frames
    # Images of 12 x 12 are shown as 132 x 132 with a frame, side by side.
    columns = {3: 3, 8: 4}[images["first"]]  # rows are full
    assert picture.shape[1] == 24 + columns * (132 + 6) + (columns - 1) * 8


@pytest.mark.parametrize(
    "output",
    [
        lambda x, y, y_pred, loss: (y_pred, y),
        lambda x, y, y_pred, loss: {"y_pred": y_pred, "y": y, "loss": loss.item()},
        lambda x, y, y_pred, loss: y_pred,
    ],
)
def test_predictions_in_the_outputs_spare_a_model_run(tmp_path: Path, output: Callable[..., Any]) -> None:
    run = Run(tmp_path, VisualizationHook(interval=4), output=output)
    asked: list[int] = []
    run.model.register_forward_hook(lambda *_: asked.append(1))
    run.train(epochs=1)
    assert len(asked) == 4 + 2, "four batches of the training and two of the evaluation"
    assert len(run.drawn) == 2


def test_without_predictions_the_model_runs_once_when_due(tmp_path: Path) -> None:
    run = Run(tmp_path, VisualizationHook(interval=4, max_samples=5))
    asked: list[int] = []
    run.model.register_forward_hook(lambda module, inputs, output: asked.append(len(inputs[0])))
    run.train(epochs=1)
    assert asked == [8, 8, 8, 8, 5, 8, 8], "only images that are drawn"


def test_the_worst_of_the_batch_come_first(tmp_path: Path) -> None:
    scores = torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    levels = torch.linspace(0, 1, 4)
    data = [(torch.ones(4, 1, 12, 12) * levels[:, None, None, None], torch.zeros(4, dtype=torch.long))]

    def greys(order: str) -> list[int]:
        hook = VisualizationHook(interval=1, order=order, max_samples=2)
        run = Run(tmp_path / order, hook, output=lambda *_: scores, val_loader=data).train(data, epochs=1)
        picture = next(picture for name, picture, _ in run.sink.images if name == "train/predictions")
        y = picture.shape[0] // 2
        return [int(picture[y, x, 0]) for x in (12 + 70, 12 + 138 + 8 + 70)]

    assert greys("first") == [0, 85]
    assert greys("worst") == [85, 170], "confident in another class, then less so"
    assert greys("uncertain") == [170, 255]


def test_truth_and_prediction_can_be_omitted(tmp_path: Path) -> None:
    for settings in ({"draw_gt": False}, {"draw_pred": False}):
        run = Run(tmp_path / str(settings), VisualizationHook(interval=4, **settings)).train(epochs=1)
        assert not {RIGHT, WRONG} & colours_of(run.sink.images[0][1]), "nothing to compare"


def test_mean_and_std_restore_the_original_colours(tmp_path: Path) -> None:
    data = [((torch.full((1, 1, 12, 12), 0.25) - 0.5) / 0.1, torch.tensor([1]))]
    hook = VisualizationHook(interval=1, mean=0.5, std=0.1)
    run = Run(tmp_path, hook, val_loader=data).train(data, epochs=1)
    assert (64, 64, 64) in colours_of(run.sink.images[0][1])


def test_extract_of_the_script_finds_the_samples(tmp_path: Path) -> None:
    def extract(batch: Any, outputs: Any) -> dict[str, Any]:
        return {"images": batch["photo"], "target": batch["kind"], "prediction": [0] * len(batch["kind"])}

    trainer = Engine(lambda engine, batch: 0.5)
    sink = MemoryWriter()
    hook = VisualizationHook(interval=1, extract=extract)
    attach_hooks(trainer, {"hooks": [hook], "writers": [sink]}, work_dir=tmp_path)
    trainer.run([{"photo": np.zeros((2, 9, 9), np.uint8), "kind": [0, 1]}])
    assert {RIGHT, WRONG} <= colours_of(sink.images[0][1])


# -- no side effects ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: VisualizationHook(interval=1, contents=CONTENTS, smooth=2, order="uncertain"),
        lambda: VisualizationHook(interval=1, cam="layer_cam", contents=["cam"], layer="4"),
    ],
)
def test_pictures_do_not_change_the_training_by_a_bit(tmp_path: Path, make: Callable[[], Any]) -> None:
    results = []
    for hooks in ((), (make(),)):
        random.seed(0), np.random.seed(0)
        run = Run(tmp_path / str(len(hooks)), *hooks).train()
        state = copy.deepcopy({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict()})
        modes = [module.training for module in run.model.modules()]
        grads = [parameter.grad.clone() for parameter in run.model.parameters() if parameter.grad is not None]
        results.append((state, modes, grads, torch.get_rng_state(), random.random(), np.random.random()))
        left = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in run.model.modules()]
        assert set(left) == {0}
    (plain, *others), (drawn, *same) = results
    for name, value in plain["model"].items():
        assert torch.equal(value, drawn["model"][name]), name
    assert str(plain["optimizer"]) == str(drawn["optimizer"])
    assert others[0] == same[0]
    assert all(torch.equal(a, b) for a, b in zip(others[1], same[1], strict=True))
    assert torch.equal(others[2], same[2])
    assert others[3:] == same[3:]


def test_later_changes_of_the_batch_are_not_drawn(tmp_path: Path) -> None:
    images = torch.zeros(1, 1, 12, 12)
    trainer, sink = Engine(lambda engine, batch: torch.tensor([[0.1, 0.9]])), MemoryWriter()
    hook = VisualizationHook(interval=1)
    runner = attach_hooks(trainer, {"hooks": [hook], "writers": [sink]}, work_dir=tmp_path)

    def data() -> Any:
        yield images, torch.tensor([1])
        images.fill_(1.0)
        yield images, torch.tensor([1])

    trainer.run(data(), max_epochs=1, epoch_length=2)
    first, second = (colours_of(picture) for _, picture, _ in sink.images)
    assert ((0, 0, 0) in first, (0, 0, 0) in second) == (True, False)
    assert runner.report().failures == {}


def test_only_the_first_rank_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, VisualizationHook(interval=1))
    import ignite.distributed as idist

    hook = run.runner.hooks["VisualizationHook"]
    monkeypatch.setattr(idist, "get_rank", lambda: 1)
    hook.after_train_iter(run.runner, batches(1)[0], None)
    assert run.drawn == []


# -- failing -------------------------------------------------------------------------------------------------------


def test_drawing_failures_warn_and_three_disable_the_hook(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = VisualizationHook(interval=1, mean=[0.5, 0.5])

    def step(engine: Engine, batch: Batch) -> Tensor:
        if hook._thread is not None:
            hook._thread.wait()
        return torch.zeros(8, 3)

    trainer = Engine(step)
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path)
    trainer.run(batches(7), max_epochs=1)
    failures = runner.report().failures["VisualizationHook"]
    assert (failures.off, failures.count) == (True, 4), "three in training, and the one still in the queue"
    assert "mean has 2 values for images of 1 channels: give 1 or 1" in caplog.text
    assert trainer.state.iteration == 7


def test_a_failure_can_end_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, VisualizationHook(interval=1, mean=[0.5, 0.5], on_error="raise"))
    with pytest.raises(Exception, match="mean has 2 values"):
        run.trainer.run(batches(4), max_epochs=1)


def test_batches_of_vectors_warn_once_without_failing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = Engine(lambda engine, batch: 0.5)
    runner = attach_hooks(trainer, [VisualizationHook(interval=1)], work_dir=tmp_path)
    trainer.run([(torch.rand(8, 4), torch.zeros(8))] * 3)
    assert runner.report().failures == {}
    assert caplog.text.count("VisualizationHook draws nothing: a batch of (8, 4) holds no images") == 1


def test_without_model_and_predictions_the_error_names_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = Engine(lambda engine, batch: 0.5)
    attach_hooks(trainer, [VisualizationHook(interval=1)], work_dir=tmp_path)
    trainer.run(batches(1))
    assert "let the step return (y_pred, y), or pass model=... to attach_hooks()" in caplog.text


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"type": "VisualizationHook", "backend": "tensorboard"}, "backend: 'matplotlib' or 'pillow' is needed"),
        ({"type": "VisualizationHook", "contents": ["cams"]}, "contents: .* is needed, not"),
        ({"type": "VisualizationHook", "max_samples": 0}, "max_samples: a whole number of at least 1"),
        ({"type": "DetVisualizationHook", "palette": ["blurple"]}, "palette: 'blurple' is not a colour: write 'red'"),
        ({"type": "DetVisualizationHook", "bbox_color": [1, 2]}, "bbox_color: .* is not a colour"),
        ({"type": "SegVisualizationHook", "opacity": 1.5}, "opacity: a number"),
    ],
)
def test_wrong_settings_are_rejected_before_the_run(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        attach_hooks(Engine(lambda engine, batch: None), [entry], work_dir=tmp_path)


# -- detection -----------------------------------------------------------------------------------------------------

TRUTH = [{"boxes": torch.tensor([[5.0, 5.0, 25.0, 25.0], [30.0, 30.0, 39.0, 39.0]]), "labels": torch.tensor([1, 1])}]
GUESS = [
    {
        "boxes": torch.tensor([[5.0, 5.0, 25.0, 24.0], [0.0, 28.0, 10.0, 38.0], [1.0, 1.0, 2.0, 2.0]]),
        "labels": torch.tensor([1, 1, 1]),
        "scores": torch.tensor([0.9, 0.8, 0.1]),
    }
]


class Detector(nn.Module):
    """A detector like those of torchvision: takes a list of images, and returns losses in training mode."""

    def forward(self, images: list[Tensor], targets: Any = None) -> Any:
        return {"loss": torch.tensor(0.5)} if self.training else [GUESS[0] for _ in images]


def detected(folder: Path, hook: Any, step: Callable[..., Any], batch: Any, **services: Any) -> Any:
    trainer, sink = Engine(step), MemoryWriter()
    runner = attach_hooks(trainer, {"hooks": [hook], "writers": [sink]}, work_dir=folder, **services)
    trainer.run([batch])
    assert runner.report().failures == {}, runner.report().failures
    ((name, picture, _),) = sink.images
    return name, picture


IMAGES = [torch.zeros(3, 40, 40)]


@pytest.mark.parametrize(
    ("batch", "outputs", "services"),
    [
        ((IMAGES, TRUTH), 0.5, {"model": Detector()}),
        ((IMAGES, TRUTH), GUESS, {}),
        ((torch.stack(IMAGES), TRUTH), (GUESS, TRUTH), {}),
        ([(IMAGES[0], TRUTH[0])], GUESS, {}),
        ((IMAGES, [{"bboxes": TRUTH[0]["boxes"], "labels": [1, 1]}]), GUESS, {}),
    ],
    ids=["asked", "outputs", "pairs of outputs", "pairs of the batch", "bboxes"],
)
def test_boxes_of_every_usual_form_are_drawn(
    tmp_path: Path, batch: Any, outputs: Any, services: dict[str, Any]
) -> None:
    hook = DetVisualizationHook(interval=1, class_names=["background", "thing"])
    name, picture = detected(tmp_path, hook, lambda *_: outputs, batch, **services)
    assert name == "train/detections"
    assert {RIGHT, WRONG, MISSED} <= colours_of(picture)


def test_names_of_classes_come_from_the_run_unless_the_hook_has_its_own(tmp_path: Path) -> None:
    def drawn(own: Any, **services: Any) -> Any:
        hook = DetVisualizationHook(interval=1, class_names=own)
        return detected(tmp_path, hook, lambda *_: GUESS, (IMAGES, TRUTH), **services)[1]

    cats, dogs = ["nothing", "cat"], ["nothing", "dog"]
    expected = drawn(cats)
    assert np.array_equal(drawn(None, class_names=cats), expected)
    assert np.array_equal(drawn(cats, class_names=dogs), expected)
    assert not np.array_equal(drawn(None, class_names=dogs), expected)


@pytest.mark.parametrize(("kind", "drawn"), [(VisualizationHook, True), (DetVisualizationHook, False)])
def test_a_metric_that_is_a_confusion_matrix_is_drawn(kind: Any, drawn: bool, tmp_path: Path) -> None:
    sink, model = MemoryWriter(), nn.Linear(4, 3)
    evaluator = create_supervised_evaluator(model, {"confusion": ConfusionMatrix(3), "accuracy": Accuracy()})
    config = {"hooks": [kind(interval=1), {"type": "EvalHook", "save_best": False}], "writers": [sink]}
    services = {"evaluators": evaluator, "model": model, "val_loader": [(torch.rand(8, 4), torch.arange(8) % 3)]}
    names = ["ant", "bee", "cat"]
    trainer = Engine(lambda *_: 0.5)
    runner = attach_hooks(trainer, config, work_dir=tmp_path, class_names=names, **services)
    trainer.run([(torch.rand(2, 4), torch.zeros(2))])
    counts = evaluator.state.metrics["confusion"]
    pictures = [picture for name, picture, _ in sink.images if "confusion" in name]
    assert [name for name, *_ in sink.images if "confusion" in name] == ["val/confusion"] * drawn
    if drawn:
        title = "confusion of val, iteration 1, epoch 1"
        assert np.array_equal(pictures[0], confusion(counts, names, title=title))
    assert runner.report().failures == {}


def test_a_detector_returns_to_training_mode_after_predicting(tmp_path: Path) -> None:
    model = Detector()
    detected(tmp_path, DetVisualizationHook(interval=1), lambda *_: 0.5, (IMAGES, TRUTH), model=model)
    assert model.training


def test_boxes_have_the_wanted_colours_and_thresholds(tmp_path: Path) -> None:
    pink = (255, 0, 128)
    hook = DetVisualizationHook(interval=1, bbox_color=list(pink), score_thr=0.95, thickness=3, text_color="black")
    _, picture = detected(tmp_path, hook, lambda *_: GUESS, (IMAGES, TRUTH))
    assert pink in colours_of(picture)
    assert RIGHT not in colours_of(picture)
    half = picture.shape[1] // 2
    assert pink not in colours_of(picture[60:, half + 20 :]), "no prediction has this score"


@pytest.mark.parametrize(("settings", "absent"), [({"draw_gt": False}, MISSED), ({"draw_pred": False}, WRONG)])
def test_truth_or_prediction_alone_can_be_drawn(tmp_path: Path, settings: dict[str, Any], absent: Any) -> None:
    _, picture = detected(tmp_path, DetVisualizationHook(interval=1, **settings), lambda *_: GUESS, (IMAGES, TRUTH))
    assert absent not in colours_of(picture)


# -- segmentation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("low_resolution", [False, True])
@pytest.mark.parametrize("form", ["index", "one-hot", "a channel"])
def test_masks_of_every_usual_form_are_drawn_beside_each_other(tmp_path: Path, form: str, low_resolution: bool) -> None:
    mask = torch.zeros(2, 40, 40, dtype=torch.long)
    mask[:, 10:30, 10:30] = 1
    mask[:, :5] = 255
    logits = torch.stack([torch.zeros(2, 40, 40), torch.roll((mask == 1).float(), 6, 2) * 2 - 1], 1)
    if low_resolution:
        logits = logits[:, :, ::4, ::4]
    truth = {
        "index": mask,
        "one-hot": nn.functional.one_hot(mask.clamp(max=1)).permute(0, 3, 1, 2),
        "a channel": mask[:, None],
    }
    hook = SegVisualizationHook(interval=1, class_names=["ground", "thing"], palette=["#102030", "white"], opacity=1.0)
    name, picture = detected(tmp_path, hook, lambda *_: {"out": logits}, (torch.rand(2, 3, 40, 40), truth[form]))
    assert name == "train/masks"
    assert {WRONG, (16, 32, 48), (255, 255, 255)} <= colours_of(picture)
    assert form == "one-hot" or (128, 128, 128) in colours_of(picture), "the ignored class"


@pytest.mark.parametrize("classes", [1, 4])
@pytest.mark.parametrize("shape", [(7, 32, 32), (32, 32, 7), (1, 32, 32), (32, 32, 3), (12, 32, 48), (32, 48, 12)])
def test_masks_of_any_resolution_fit_images_of_any_layout(
    tmp_path: Path, shape: tuple[int, int, int], classes: int
) -> None:
    size = shape[1:] if shape[0] < shape[2] or shape[1] == shape[2] else shape[:2]
    truth = torch.zeros(2, *size, dtype=torch.long)
    scores = torch.randn(2, classes, size[0] // 4, size[1] // 4)
    name, _ = detected(tmp_path, SegVisualizationHook(interval=1), lambda *_: scores, (torch.rand(2, *shape), truth))
    assert name == "train/masks"


def test_without_predictions_the_segmentation_model_runs(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1))
    batch = torch.rand(2, 3, 16, 16), torch.zeros(2, 16, 16, dtype=torch.long)
    name, _ = detected(tmp_path, SegVisualizationHook(interval=1), lambda *_: 0.5, batch, model=model)
    assert name == "train/masks"


def test_files_are_pictures(tmp_path: Path) -> None:
    run = Run(tmp_path, VisualizationHook(interval=4)).train(epochs=1)
    for file, (_, picture, _) in zip(run.files, run.sink.images, strict=True):
        assert np.array_equal(np.asarray(Image.open(tmp_path / "visualization" / file)), picture)
