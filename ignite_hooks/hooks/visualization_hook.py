"""Draws images with the predictions of the model (classes, boxes, masks) and with explanations of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, Situation, settings
from ignite_hooks.model.class_names import class_names_of
from ignite_hooks.model.parts import is_several
from ignite_hooks.plan.priority import Priority
from ignite_hooks.plan.schedule import When, scheduled
from ignite_hooks.run.imports import import_ahead

if TYPE_CHECKING:
    from ignite_hooks.drawing.samples import Samples
    from ignite_hooks.drawing.thread import DrawingThread
    from ignite_hooks.run.runner import Runner

Content = Literal["predictions", "feature_map", "attention", "cam", "gradient", "texts"]
Colour = str | Sequence[int]
Painting = tuple[str, Callable[[], Any]]
"""The name of a picture, and the function that draws it."""
MAX_LAYERS = 6


@settings
class _Pictures(BaseHook):
    """The common part of the three hooks of this file: when they draw, from which data, and where pictures go."""

    draws_matrices: ClassVar[bool] = True
    """Whether metrics that are confusion matrices are drawn after an evaluation."""

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
    draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._thread: DrawingThread | None = None
        self._names: Sequence[str] | None = None

    def before_run(self, runner: Runner) -> None:
        if is_main_process():
            from ignite_hooks.drawing.thread import NEEDED_BY_CURVES, NEEDED_BY_IMAGES

            # The letters of other scripts than Latin are looked up in the fonts by matplotlib.
            words = getattr(self, "class_names", None) or ()
            needed = NEEDED_BY_IMAGES if all(str(word).isascii() for word in words) else NEEDED_BY_CURVES
            import_ahead(needed, self.name or type(self).__name__, runner.logger)

    @scheduled
    def after_train_iter(self, runner: Runner, data_batch: Any, outputs: Any) -> None:
        self._draw(runner, "train", data_batch, outputs)

    @scheduled
    def after_train_epoch(self, runner: Runner) -> None:
        self._draw(runner, "train", runner.data_batch, runner.outputs)

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any, outputs: Any) -> None:
        if When(self.interval, start=1).due(batch_idx + 1):
            where = runner.state.evaluating or "val"
            self._draw(runner, f"{where}/batch_{batch_idx + 1}" if batch_idx else where, data_batch, outputs)

    after_test_iter = after_val_iter

    def after_val_epoch(self, runner: Runner) -> None:
        """Draw the metrics that are confusion matrices."""
        if not self.draws_matrices or not is_main_process():
            return
        for name, counts in runner.evaluators[runner.state.evaluating or "val"].state.metrics.items():
            shape: tuple[int, ...] = tuple(getattr(counts, "shape", ()))
            if len(shape) == 2 and shape[0] == shape[1] > 1:
                self._draw_matrix(runner, name, counts)

    after_test_epoch = after_val_epoch

    def cleanup(self, runner: Runner) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close(runner.writer.seconds_left)

    def how_often(self, method: str) -> str | None:
        if method not in ("after_val_iter", "after_test_iter"):
            return None
        return f"first batch, then {When(self.interval)}"

    def _draw(self, runner: Runner, where: str, batch: Any, outputs: Any) -> None:
        if not is_main_process():
            return
        from ignite_hooks.drawing.samples import samples_of

        thread = self._opened(runner)
        samples = samples_of(batch, outputs, self.extract)
        if samples.problem:
            thread.warn_nothing_to_draw(samples.problem)
        elif len(samples):
            step = runner.global_step
            title = f"{where}, iteration {step}, epoch {runner.trainer_state.epoch}"
            for name, paint in self._paintings(runner, samples, title):
                thread.draw(f"{where}/{name}", step, paint, sample=f"{where} {step}")

    def _draw_matrix(self, runner: Runner, name: str, counts: Any) -> None:
        from ignite_hooks.drawing.confusion_matrix import confusion

        step, where = runner.global_step, runner.state.evaluating or "val"
        title = f"{name} of {where}, iteration {step}, epoch {runner.trainer_state.epoch}"
        # A copy: Ignite goes on counting in the same tensor.
        copied = counts.detach().cpu().clone() if hasattr(counts, "detach") else counts.copy()
        self._opened(runner).draw(f"{where}/{name}", step, partial(confusion, copied, self._names, title=title))

    def _opened(self, runner: Runner) -> DrawingThread:
        if self._thread is None:
            self._thread = self._start_thread(runner)
            given = getattr(self, "class_names", None)
            self._names = class_names_of(runner) if given is None else given
        return self._thread

    def _start_thread(self, runner: Runner) -> DrawingThread:
        from ignite_hooks.drawing.thread import DrawingThread

        folder = None
        if self.save:  # asking for the service makes its folder
            folder = runner.get_service("visualization_dir") if self.out_dir is None else runner.work_dir / self.out_dir
        return DrawingThread(
            self.name or type(self).__name__,
            folder=folder,
            sink=runner.writer,
            show=self.show,
            backend=self.backend,
            logger=runner.logger,
        )

    def _paintings(self, runner: Runner, samples: Samples, title: str) -> Iterator[Painting]:
        """Yield pictures by name, as functions that hold all they need and are called in another thread."""
        raise NotImplementedError

    def _with_prediction(self, runner: Runner, samples: Samples) -> Samples:
        """Return the samples with a prediction; ask the model if the outputs hold none."""
        if not self.draw_pred or samples.prediction is not None:
            return samples
        from ignite_hooks.drawing.explain import plain_module, predictions
        from ignite_hooks.drawing.samples import Samples, prediction_of

        inputs = samples.images if samples.inputs is None else samples.inputs
        found = prediction_of(predictions(plain_module(model_of(runner)), inputs), len(samples))
        return Samples(samples.images, samples.truth, found, samples.inputs)

    def _copied(self, samples: Samples, chosen: Any) -> Samples:
        """Copy the data to draw to the CPU; the training waits for this only."""
        found = samples.copied(chosen)
        if not self.draw_gt:
            found.truth = None
        if not self.draw_pred:
            found.prediction = None
        return found


@settings
class VisualizationHook(_Pictures):
    """Draw images with the prediction of a classifier and explanations of it, in training and in evaluations.

    In evaluations the first batch is drawn, then one every ``interval`` batches. Predictions are taken from the
    outputs if these hold them, as ``(y_pred, y)`` or in a mapping; else the model runs once more, which changes
    nothing in it. A thread draws; the training waits only for the copy to the CPU and for these runs of the model.
    A metric that is a confusion matrix is drawn after the evaluation.

    Args:
        interval: Number of iterations between two pictures.
        draw_gt: Whether to show the true class.
        draw_pred: Whether to show the predicted class.
        show: Whether to show pictures as well: inline in a notebook, in a window if there is a display.
        save: Whether to save pictures as files.
        out_dir: Folder of the files; ``visualization`` in the work directory by default.
        max_samples: Maximum number of images in a picture.
        score_thr: A predicted class with a lower probability gets a question mark.
        backend: What opens windows: matplotlib, or pillow for the viewer of the system. Pictures are the same.
        mean: Mean that was subtracted from the images, by channel; pictures then show the original colours.
        std: Standard deviation the images were divided by, by channel.
        extract: Function of batch and outputs that returns a mapping of images, target, prediction and inputs.
        contents: Pictures to draw: predictions, feature_map, attention, cam, gradient; what a model cannot have is left
            out, with one warning. And texts: a table of the texts of the batch that the model gets most wrong, with
            their classes, or with the tags of their tokens; ``extract`` then returns texts, target and prediction.
        class_names: Names of the classes; by default those of the data set, if it has any.
        order: Samples of the batch to draw: the first, the worst or the most uncertain.
        cam: Method of class activation maps: grad_cam, or layer_cam for finer maps.
        layer: Name of the layer that cam uses; the last convolution by default.
        layers: Names of the layers of feature_map; by default up to six of the convolutions.
        max_features: Maximum number of channels drawn per layer.
        smooth: Number of noisy copies whose gradients are averaged (SmoothGrad); 1 draws the plain gradient.

    Reads: data_batch, outputs, model.
    Writes: <train or evaluator>/predictions, /cam, /gradient, /attention, /feature_map/<layer>, /texts.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._left_out: set[str] = set()
        """Contents that the model cannot have."""

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        asked = [one for one in self.contents if one not in ("predictions", "texts")]
        if "model" in situation.several and asked:
            yield (
                "contents",
                f"{', '.join(asked)}: one model is explained, and this run has several: draw predictions only",
            )

    def before_run(self, runner: Runner) -> None:
        super().before_run(runner)
        self._left_out.clear()

    def _draw(self, runner: Runner, where: str, batch: Any, outputs: Any) -> None:
        if "texts" in self.contents and is_main_process():
            self._write_texts(runner, where, batch, outputs)
        if {*self.contents} != {"texts"}:
            super()._draw(runner, where, batch, outputs)

    def _write_texts(self, runner: Runner, where: str, batch: Any, outputs: Any) -> None:
        from ignite_hooks.drawing.texts import texts_of, worst_texts

        found, name = texts_of(batch, outputs, self.extract), self.name or type(self).__name__
        if found is None or found.prediction is None or found.truth is None:
            missing = "no texts in the batch" if found is None else "no predictions of texts in the outputs"
            runner.note_once(f"{name}: contents: {missing} of {where.partition('/')[0]}")
            return
        names = (class_names_of(runner) or ()) if self.class_names is None else self.class_names
        columns, rows = worst_texts(found, self.max_samples, names)
        runner.writer.write_table(f"{where}/texts", columns, rows, runner.global_step)

    def _paintings(self, runner: Runner, samples: Samples, title: str) -> Iterator[Painting]:
        from ignite_hooks.drawing.samples import copy_of, ranked

        if self.order == "first":
            samples = samples.first(self.max_samples)
        predicted = self._with_prediction(runner, samples)
        chosen = ranked(predicted.prediction, predicted.truth, self.order, self.max_samples)
        own = self._copied(predicted, chosen)
        note = "" if isinstance(chosen, int) else f"the {'worst' if self.order == 'worst' else 'most uncertain'} first"
        if "predictions" in self.contents:
            yield "predictions", partial(self._paint_predictions, own, title, note)
        others = [one for one in self.contents if one not in ("predictions", "texts")]
        if explanations := [one for one in others if one not in self._left_out]:
            inputs = copy_of(samples.images if samples.inputs is None else samples.inputs, chosen)
            painters: Mapping[Content, Callable[[Any, Any, Samples, str], Iterator[Painting]]] = {
                "cam": self._cam,
                "gradient": self._gradient,
                "attention": self._attention,
                "feature_map": self._feature_map,
            }
            for content in explanations:
                yield from self._possible(content, painters[content](model_of(runner), inputs, own, title))

    def _possible(self, content: str, pictures: Iterator[Painting]) -> Iterator[Painting]:
        """Yield the pictures of a content; leave it out from now on, and say so, if the model cannot have it."""
        from ignite_hooks.drawing.explain import ImpossibleError

        try:
            yield from pictures
        except ImpossibleError as error:
            self._left_out.add(content)
            name = self.name or type(self).__name__
            self.runner.logger.warning("%s: contents: no %s from now on: %s", name, content, error)

    def _paint_predictions(self, own: Samples, title: str, note: str) -> Any:
        from ignite_hooks.drawing.figures import classification

        return classification(
            self._images(own),
            own.truth,
            own.prediction,
            class_names=self._names,
            score_thr=self.score_thr,
            title=title,
            note=note,
        )

    def _images(self, own: Samples) -> Any:
        from ignite_hooks.drawing.images import as_images

        return as_images(own.images, mean=self.mean, std=self.std)

    def _cam(self, model: Any, inputs: Any, own: Samples, title: str) -> Iterator[Painting]:
        from ignite_hooks.drawing.explain import grad_cam, layer_cam

        method, its_name = {"grad_cam": (grad_cam, "Grad-CAM"), "layer_cam": (layer_cam, "Layer-CAM")}[self.cam]
        maps = method(model, inputs, target=predicted_classes(own), layer=self.layer).cpu()
        yield "cam", partial(self._paint_heat, own, maps, title, f"{its_name} of the predicted class")

    def _gradient(self, model: Any, inputs: Any, own: Samples, title: str) -> Iterator[Painting]:
        from ignite_hooks.drawing.explain import saliency

        maps = saliency(model, inputs, target=predicted_classes(own), samples=self.smooth).cpu()
        note = f"{'SmoothGrad' if self.smooth > 1 else 'gradient'} of the predicted class"
        yield "gradient", partial(self._paint_heat, own, maps, title, note)

    def _paint_heat(self, own: Samples, maps: Any, title: str, note: str) -> Any:
        from ignite_hooks.drawing.figures import heats, said

        captions = said(own.prediction, len(maps), self._names) if own.prediction is not None else ()
        return heats(self._images(own), maps, captions=captions, title=title, note=note)

    def _attention(self, model: Any, inputs: Any, own: Samples, title: str) -> Iterator[Painting]:
        from ignite_hooks.drawing.explain import ImpossibleError, attention_maps, rollout
        from ignite_hooks.drawing.figures import attentions

        maps = {name: values.cpu() for name, values in attention_maps(model, inputs[:4]).items()}
        if not maps:
            raise ImpossibleError("the model has no attention: leave this content out of the settings")

        def paint() -> Any:
            alike = len({tuple(values.shape[2:]) for values in maps.values()}) == 1
            square = alike and all(values.shape[2] == values.shape[3] for values in maps.values())
            return attentions(self._images(own), maps, rollout(maps) if square else None, title=title)

        yield "attention", paint

    def _feature_map(self, model: Any, inputs: Any, own: Samples, title: str) -> Iterator[Painting]:
        from ignite_hooks.drawing import explain
        from ignite_hooks.drawing.figures import features

        layers = list(self.layers) if self.layers is not None else explain.spread_layers(model, MAX_LAYERS)
        for name, maps in explain.feature_maps(model, inputs[:1], layers).items():
            channels = explain.most_active(maps[0], self.max_features).tolist()
            few = maps[0][channels].cpu()
            note = f"layer {name}: the {len(channels)} most active of {maps.shape[1]} channels"
            yield f"feature_map/{name}", partial(features, few, channels, title=title, note=note)


@settings
class DetVisualizationHook(_Pictures):
    """Draw images with boxes: the truth beside the detections; matched, missed and false boxes differ in colour.

    Boxes are read in the form of torchvision (``boxes, labels, scores``), of MMDetection (``bboxes``), or as arrays.
    In evaluations the first batch is drawn, then one every ``interval`` batches.

    Args:
        interval: Number of iterations between two pictures.
        draw_gt: Whether to draw true boxes.
        draw_pred: Whether to draw predicted boxes.
        show: Whether to show pictures as well: inline in a notebook, in a window if there is a display.
        save: Whether to save pictures as files.
        out_dir: Folder of the files; ``visualization`` in the work directory by default.
        max_samples: Maximum number of images in a picture.
        score_thr: Boxes with a lower score are not drawn.
        backend: What opens windows: matplotlib, or pillow for the viewer of the system. Pictures are the same.
        mean: Mean that was subtracted from the images, by channel; pictures then show the original colours.
        std: Standard deviation the images were divided by, by channel.
        extract: Function of batch and outputs that returns a mapping of images, target, prediction and inputs.
        class_names: Names of the classes; by default those of the data set, if it has any.
        palette: Colours of the classes, as names, #rrggbb or three numbers; by default colours show matches.
        bbox_color: One colour for all boxes.
        text_color: Colour of the labels; by default the one that is easiest to read.
        thickness: Thickness of the lines, in pixels.
        iou_thr: Minimum intersection over union of a box that counts as found.

    Reads: data_batch, outputs, model.
    Writes: <train or evaluator>/detections.
    Saves: pictures in visualization.
    """

    draws_matrices: ClassVar[bool] = False

    class_names: Sequence[str] | None = None
    palette: Sequence[Colour] | None = None
    bbox_color: Colour | None = None
    text_color: Colour | None = None
    thickness: Annotated[int, Ge(1)] = 2
    iou_thr: Annotated[float, Ge(0), Le(1)] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_colours(palette=self.palette, bbox_color=self.bbox_color, text_color=self.text_color)

    def _paintings(self, runner: Runner, samples: Samples, title: str) -> Iterator[Painting]:
        own = self._copied(self._with_prediction(runner, samples.first(self.max_samples)), self.max_samples)
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
            style=BoxStyle(self._names, self.palette, self.bbox_color, self.text_color, self.thickness),
            title=title,
        )


@settings
class SegVisualizationHook(_Pictures):
    """Draw images with masks: the truth, the prediction, and where they differ.

    Masks are indices, one-hot planes or logits. In evaluations the first batch is drawn, then one every ``interval``.
    A metric that is a confusion matrix is drawn after the evaluation.

    Args:
        interval: Number of iterations between two pictures.
        draw_gt: Whether to draw true masks.
        draw_pred: Whether to draw predicted masks.
        show: Whether to show pictures as well: inline in a notebook, in a window if there is a display.
        save: Whether to save pictures as files.
        out_dir: Folder of the files; ``visualization`` in the work directory by default.
        max_samples: Maximum number of images in a picture.
        score_thr: Not used: a pixel has the class with the highest score.
        backend: What opens windows: matplotlib, or pillow for the viewer of the system. Pictures are the same.
        mean: Mean that was subtracted from the images, by channel; pictures then show the original colours.
        std: Standard deviation the images were divided by, by channel.
        extract: Function of batch and outputs that returns a mapping of images, target, prediction and inputs.
        class_names: Names of the classes; by default those of the data set, if it has any.
        palette: Colours of the classes, as names, #rrggbb or three numbers.
        opacity: Opacity of the colours over the image, from 0 to 1.
        show_edge: Whether to draw lines along the edges of regions.
        ignore_index: Class that is ignored and shown in grey.

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

    def _paintings(self, runner: Runner, samples: Samples, title: str) -> Iterator[Painting]:
        from ignite_hooks.drawing.samples import Samples

        samples = self._with_prediction(runner, samples.first(self.max_samples))
        prediction = samples.prediction
        if self.draw_pred and prediction is not None:
            # Classes take a fraction of the memory of their scores, so only classes are copied to the CPU.
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
            class_names=self._names,
            palette=self.palette,
            opacity=self.opacity,
            show_edge=self.show_edge,
            ignore_index=self.ignore_index,
            title=title,
        )


def predicted_classes(own: Samples) -> Any:
    """Return the classes of the captions, so that explanations are of the same classes; None if there are no scores.

    The outputs of a step in training mode may name other classes than the model in evaluation mode.
    """
    scores = own.prediction
    if getattr(scores, "ndim", 0) != 2 or scores.shape[1] < 2:
        return None
    return scores.argmax(1)


def model_of(runner: Runner) -> Any:
    """Return the model, or raise an error with the remedy."""
    if runner.model is None:
        raise ValueError(
            "the outputs hold no predictions, and there is no model to predict: "
            "let the step return (y_pred, y), or pass model=... to attach_hooks()"
        )
    if is_several(runner.model):
        raise ValueError(
            "the outputs hold no predictions, and there are several models: let the step return (y_pred, y)"
        )
    return runner.model


def decided_pixels(prediction: Any, images: Any) -> Any:
    """Return the class of each pixel of N x C x H x W scores, in the size of the images; one class keeps its scores."""
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
    """Raise a SettingError for the first setting that is not a colour."""
    from ignite_hooks.drawing.theme import as_colour

    for name, value in given.items():
        for colour in value if name == "palette" and value is not None else [value]:
            if colour is not None:
                try:
                    as_colour(colour)
                except ValueError as error:
                    raise SettingError(name, str(error)) from error
