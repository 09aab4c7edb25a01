"""Draws what the model makes of its images: classes, boxes, masks, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Le

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When, scheduled

if TYPE_CHECKING:
    from ignite_hooks.drawing.samples import Samples
    from ignite_hooks.drawing.thread import Studio
    from ignite_hooks.run.runner import Runner

Content = Literal["predictions", "feature_map", "attention", "cam", "gradient"]
Colour = str | Sequence[int]
MOST_LAYERS = 6


@settings
class _Pictures(BaseHook):
    """What the three hooks of this file have in common: when they look, what they take, where pictures go."""

    interval: Annotated[int, Ge(1)] = 500
    draw_gt: bool = True
    draw_pred: bool = True
    show: bool = False
    save: bool = True
    out_dir: Path | None = None
    max_samples: Annotated[int, Ge(1)] = 16
    score_thr: Annotated[float, Ge(0), Le(1)] = 0.3
    backend: Literal["matplotlib", "pillow"] = "matplotlib"
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None
    extract: Callable[..., Mapping[str, Any]] | None = None
    priority: PriorityLike = Priority.NORMAL
    on_error: OnError = "warn"

    def __post_init__(self) -> None:
        self._studio: Studio | None = None

    @scheduled
    def after_train_iter(self, runner: Runner, data_batch: Any, outputs: Any) -> None:
        self._look(runner, "train", data_batch, outputs)

    @scheduled
    def after_train_epoch(self, runner: Runner) -> None:
        self._look(runner, "train", runner.data_batch, runner.outputs)

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any, outputs: Any) -> None:
        if When(self.interval, start=1).due(batch_idx + 1):
            where = runner.state.evaluating or "val"
            self._look(runner, f"{where}/batch_{batch_idx + 1}" if batch_idx else where, data_batch, outputs)

    after_test_iter = after_val_iter

    def cleanup(self) -> None:
        studio, self._studio = self._studio, None
        if studio is not None:
            studio.close()

    def how_often(self, method: str) -> str | None:
        if method not in ("after_val_iter", "after_test_iter"):
            return None
        return f"first batch, then {When(self.interval)}"

    def _look(self, runner: Runner, where: str, batch: Any, outputs: Any) -> None:
        if not is_main_process():
            return
        from ignite_hooks.drawing.samples import samples_of
        from ignite_hooks.drawing.thread import open_studio

        if self._studio is None:
            self._studio = open_studio(self, runner)
        samples = samples_of(batch, outputs, self.extract)
        if samples.problem:
            self._studio.nothing_to_draw(samples.problem)
        elif len(samples):
            title = f"{where}, iteration {runner.global_step}, epoch {runner.trainer.state.epoch}"
            for name, paint in self._paintings(runner, samples, title):
                self._studio.draw(f"{where}/{name}", runner.global_step, paint, look=f"{where} {runner.global_step}")

    def _paintings(self, runner: Runner, samples: Samples, title: str) -> Iterator[tuple[str, Callable[[], Any]]]:
        """The pictures by name, as functions that have all they need and are called in another thread."""
        raise NotImplementedError

    def _answered(self, runner: Runner, samples: Samples) -> Samples:
        """The samples with a prediction, for which the model is asked where the outputs have none."""
        if not self.draw_pred or samples.prediction is not None:
            return samples
        from ignite_hooks.drawing.explain import plain_module, predictions
        from ignite_hooks.drawing.samples import Samples, prediction_of

        inputs = samples.images if samples.inputs is None else samples.inputs
        said = prediction_of(predictions(plain_module(model_of(runner)), inputs), len(samples))
        return Samples(samples.images, samples.truth, said, samples.inputs)

    def _copied(self, samples: Samples, chosen: Any) -> Samples:
        """On the CPU what is to be drawn; this is what the loop waits for."""
        found = samples.copied(chosen)
        if not self.draw_gt:
            found.truth = None
        if not self.draw_pred:
            found.prediction = None
        return found


@settings
class VisualizationHook(_Pictures):
    """Draw images with what a classifier says of them, and what it looks at, in training and in evaluations.

    In evaluations the first batch is drawn, then one every ``interval`` batches. Predictions are taken from the
    outputs where these hold them: ``(y_pred, y)`` or a mapping; else the model is asked, without being disturbed.
    Drawing happens in a thread; the loop waits for the copy to the CPU alone, and for what a model is asked.

    Args:
        interval: How many iterations lie between two looks.
        draw_gt: Whether the true class is shown.
        draw_pred: Whether the predicted class is shown.
        show: Whether pictures are shown as well: in a notebook in line, where there is a display in a window.
        save: Whether pictures become files.
        out_dir: The folder of the files; ``visualization`` in the work directory by default.
        max_samples: How many images a picture has at most.
        score_thr: A class with less probability is shown with a question mark.
        backend: What opens windows: matplotlib, or pillow for the viewer of the system. Pictures look the same.
        mean: What was subtracted from the images, by channel; they are shown in their own colours then.
        std: What the images were divided by.
        extract: A function of batch and outputs that returns images, target, prediction and inputs, by these names.
        contents: What is drawn: predictions, feature_map, attention, cam, gradient.
        class_names: Names of the classes.
        order: Which samples of the batch are drawn: the first, the worst or the most uncertain.
        cam: How class activation is found: grad_cam, or layer_cam for finer maps.
        layer: The layer that cam looks at, by name; the last convolution by default.
        layers: The layers of feature_map by name; by default up to six of the convolutions.
        max_features: How many channels of a layer are drawn at most.
        smooth: The noisy copies whose gradients are averaged (SmoothGrad); 1 draws the plain gradient.

    Reads: data_batch, outputs, model.
    Writes: <train or evaluator>/predictions, /cam, /gradient, /attention, /feature_map/<layer>.
    Saves: pictures in visualization.
    """

    contents: Sequence[Content] = ("predictions",)
    class_names: Sequence[str] | None = None
    order: Literal["first", "worst", "uncertain"] = "first"
    cam: Literal["grad_cam", "layer_cam"] = "grad_cam"
    layer: str | None = None
    layers: Sequence[str] | None = None
    max_features: Annotated[int, Ge(1)] = 16
    smooth: Annotated[int, Ge(1)] = 8

    def _paintings(self, runner: Runner, samples: Samples, title: str) -> Iterator[tuple[str, Callable[[], Any]]]:
        from ignite_hooks.drawing import samples as reading

        if self.order == "first":
            samples = samples.first(self.max_samples)
        asked = self._answered(runner, samples)
        chosen = reading.ranked(asked.prediction, asked.truth, self.order, self.max_samples)
        own = self._copied(asked, chosen)
        note = "" if isinstance(chosen, int) else f"the {'worst' if self.order == 'worst' else 'most uncertain'} first"
        if "predictions" in self.contents:
            yield "predictions", partial(self._paint_predictions, own, title, note)
        if looks := [content for content in self.contents if content != "predictions"]:
            inputs = samples.images if samples.inputs is None else samples.inputs
            few = reading.copy_of(inputs, chosen)
            for content in looks:
                yield from getattr(self, f"_{content}")(model_of(runner), few, own, title)

    def _paint_predictions(self, own: Samples, title: str, note: str) -> Any:
        from ignite_hooks.drawing import figures as sheets

        return sheets.classification(
            self._images(own),
            own.truth,
            own.prediction,
            class_names=self.class_names,
            score_thr=self.score_thr,
            title=title,
            note=note,
        )

    def _images(self, own: Samples) -> Any:
        from ignite_hooks.drawing.images import as_images

        return as_images(own.images, mean=self.mean, std=self.std)

    def _cam(self, model: Any, inputs: Any, own: Samples, title: str) -> Iterator[tuple[str, Callable[[], Any]]]:
        from ignite_hooks.drawing import explain

        maps = getattr(explain, self.cam)(model, inputs, target=predicted(own), layer=self.layer).cpu()
        named = {"grad_cam": "Grad-CAM", "layer_cam": "Layer-CAM"}[self.cam]
        yield "cam", partial(self._paint_heat, own, maps, title, f"{named} of the predicted class")

    def _gradient(self, model: Any, inputs: Any, own: Samples, title: str) -> Iterator[tuple[str, Callable[[], Any]]]:
        from ignite_hooks.drawing.explain import saliency

        maps = saliency(model, inputs, target=predicted(own), samples=self.smooth).cpu()
        note = f"{'SmoothGrad' if self.smooth > 1 else 'gradient'} of the predicted class"
        yield "gradient", partial(self._paint_heat, own, maps, title, note)

    def _paint_heat(self, own: Samples, maps: Any, title: str, note: str) -> Any:
        from ignite_hooks.drawing import figures as sheets

        captions = sheets.said(own.prediction, len(maps), self.class_names) if own.prediction is not None else ()
        return sheets.heats(self._images(own), maps, captions=captions, title=title, note=note)

    def _attention(self, model: Any, inputs: Any, own: Samples, title: str) -> Iterator[tuple[str, Callable[[], Any]]]:
        from ignite_hooks.drawing import explain
        from ignite_hooks.drawing import figures as sheets

        maps = {name: values.cpu() for name, values in explain.attention_maps(model, inputs[:4]).items()}

        def paint() -> Any:
            alike = len({tuple(values.shape[2:]) for values in maps.values()}) == 1
            square = alike and all(values.shape[2] == values.shape[3] for values in maps.values())
            return sheets.attentions(self._images(own), maps, explain.rollout(maps) if square else None, title=title)

        yield "attention", paint

    def _feature_map(
        self, model: Any, inputs: Any, own: Samples, title: str
    ) -> Iterator[tuple[str, Callable[[], Any]]]:
        from ignite_hooks.drawing import explain
        from ignite_hooks.drawing import figures as sheets

        layers = list(self.layers) if self.layers is not None else explain.spread_layers(model, MOST_LAYERS)
        for name, maps in explain.feature_maps(model, inputs[:1], layers).items():
            channels = explain.most_active(maps[0], self.max_features).tolist()
            few = maps[0][channels].cpu()
            note = f"layer {name}: the {len(channels)} most active of {maps.shape[1]} channels"
            yield f"feature_map/{name}", partial(sheets.features, few, channels, title=title, note=note)


@settings
class DetVisualizationHook(_Pictures):
    """Draw images with boxes: the truth beside what a detector found, matched, missed and false told apart.

    Boxes are read in the form of torchvision (``boxes, labels, scores``), of MMDetection (``bboxes``), or as arrays.
    In evaluations the first batch is drawn, then one every ``interval`` batches.

    Args:
        interval: How many iterations lie between two looks.
        draw_gt: Whether true boxes are drawn.
        draw_pred: Whether predicted boxes are drawn.
        show: Whether pictures are shown as well: in a notebook in line, where there is a display in a window.
        save: Whether pictures become files.
        out_dir: The folder of the files; ``visualization`` in the work directory by default.
        max_samples: How many images a picture has at most.
        score_thr: Boxes with a lower score are left out.
        backend: What opens windows: matplotlib, or pillow for the viewer of the system. Pictures look the same.
        mean: What was subtracted from the images, by channel; they are shown in their own colours then.
        std: What the images were divided by.
        extract: A function of batch and outputs that returns images, target, prediction and inputs, by these names.
        class_names: Names of the classes.
        palette: Colours of the classes, as names, #rrggbb or three numbers; by default boxes show whether they match.
        bbox_color: One colour for all boxes.
        text_color: The colour of the labels; what reads best by default.
        thickness: Of the lines, in pixels.
        iou_thr: The overlap from which a box counts as found.

    Reads: data_batch, outputs, model.
    Writes: <train or evaluator>/detections.
    Saves: pictures in visualization.
    """

    class_names: Sequence[str] | None = None
    palette: Sequence[Colour] | None = None
    bbox_color: Colour | None = None
    text_color: Colour | None = None
    thickness: Annotated[int, Ge(1)] = 2
    iou_thr: Annotated[float, Ge(0), Le(1)] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_colours(palette=self.palette, bbox_color=self.bbox_color, text_color=self.text_color)

    def _paintings(self, runner: Runner, samples: Samples, title: str) -> Iterator[tuple[str, Callable[[], Any]]]:
        own = self._copied(self._answered(runner, samples.first(self.max_samples)), self.max_samples)
        yield "detections", partial(self._paint, own, title)

    def _paint(self, own: Samples, title: str) -> Any:
        from ignite_hooks.drawing.boxes import BoxStyle
        from ignite_hooks.drawing.figures import detections
        from ignite_hooks.drawing.images import as_images

        return detections(
            as_images(own.images, mean=self.mean, std=self.std),
            own.truth,
            own.prediction,
            score_thr=self.score_thr,
            at_iou=self.iou_thr,
            style=BoxStyle(self.class_names, self.palette, self.bbox_color, self.text_color, self.thickness),
            title=title,
        )


@settings
class SegVisualizationHook(_Pictures):
    """Draw images with masks: the truth, the prediction, and where they differ.

    Masks are indices, one-hot planes or logits. In evaluations the first batch is drawn, then one every ``interval``.

    Args:
        interval: How many iterations lie between two looks.
        draw_gt: Whether true masks are drawn.
        draw_pred: Whether predicted masks are drawn.
        show: Whether pictures are shown as well: in a notebook in line, where there is a display in a window.
        save: Whether pictures become files.
        out_dir: The folder of the files; ``visualization`` in the work directory by default.
        max_samples: How many images a picture has at most.
        score_thr: Not used: a pixel has the class with the highest score.
        backend: What opens windows: matplotlib, or pillow for the viewer of the system. Pictures look the same.
        mean: What was subtracted from the images, by channel; they are shown in their own colours then.
        std: What the images were divided by.
        extract: A function of batch and outputs that returns images, target, prediction and inputs, by these names.
        class_names: Names of the classes.
        palette: Colours of the classes, as names, #rrggbb or three numbers.
        opacity: How much of the image the colours hide, from 0 to 1.
        show_edge: Whether lines go along the edges of the regions.
        ignore_index: The class that does not count, shown in grey.

    Reads: data_batch, outputs, model.
    Writes: <train or evaluator>/masks.
    Saves: pictures in visualization.
    """

    class_names: Sequence[str] | None = None
    palette: Sequence[Colour] | None = None
    opacity: Annotated[float, Ge(0), Le(1)] = 0.5
    show_edge: bool = True
    ignore_index: int | None = 255

    def __post_init__(self) -> None:
        super().__post_init__()
        check_colours(palette=self.palette)

    def _paintings(self, runner: Runner, samples: Samples, title: str) -> Iterator[tuple[str, Callable[[], Any]]]:
        from ignite_hooks.drawing.samples import Samples

        samples = self._answered(runner, samples.first(self.max_samples))
        prediction = samples.prediction
        if self.draw_pred and prediction is not None:
            # Classes are a small part of their scores, which stay on the device.
            prediction = decided_pixels(prediction, samples.images)
        own = self._copied(Samples(samples.images, samples.truth, prediction), self.max_samples)
        yield "masks", partial(self._paint, own, title)

    def _paint(self, own: Samples, title: str) -> Any:
        from ignite_hooks.drawing.figures import segmentations
        from ignite_hooks.drawing.images import as_images

        return segmentations(
            as_images(own.images, mean=self.mean, std=self.std),
            own.truth,
            own.prediction,
            class_names=self.class_names,
            palette=self.palette,
            opacity=self.opacity,
            show_edge=self.show_edge,
            ignore_index=self.ignore_index,
            title=title,
        )


def predicted(own: Samples) -> Any:
    """The classes that captions name, where the outputs hold scores: those of a step in training mode may be others
    than the model gives when it is asked; None where it has to be asked.
    """
    scores = own.prediction
    if getattr(scores, "ndim", 0) != 2 or scores.shape[1] < 2:
        return None
    return scores.argmax(1)


def model_of(runner: Runner) -> Any:
    """The model, or an error that says how to get on without."""
    if runner.model is None:
        raise ValueError(
            "the outputs hold no predictions, and there is no model to ask: "
            "let the step return (y_pred, y), or give attach_hooks model=..."
        )
    return runner.model


def decided_pixels(prediction: Any, images: Any) -> Any:
    """The class of each pixel for scores N x C x H x W, in the size of the images; of a single class its score."""
    if getattr(prediction, "ndim", 0) != 4 or not hasattr(prediction, "is_floating_point"):
        return prediction
    if prediction.is_floating_point() and getattr(images, "ndim", 0) == 4:
        from torch.nn.functional import interpolate

        from ignite_hooks.drawing.images import layout_of

        size = tuple(images.shape[2:] if layout_of(images.shape[1:]) == "NCHW" else images.shape[1:3])
        if tuple(prediction.shape[2:]) != size:
            prediction = interpolate(prediction.float(), size, mode="bilinear", align_corners=False)
        return prediction if prediction.shape[1] == 1 else prediction.nan_to_num(nan=-1e30).argmax(1)
    return prediction


def check_colours(**given: Any) -> None:
    """Raise a SettingError for the first setting that is no colour."""
    from ignite_hooks.drawing.theme import as_colour

    for name, value in given.items():
        for colour in value if name == "palette" and value is not None else [value]:
            if colour is not None:
                try:
                    as_colour(colour)
                except ValueError as error:
                    raise SettingError(name, str(error)) from error
