"""Event files as TensorBoard itself reads them."""

from __future__ import annotations

import io
import math
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

from ignite_hooks import attach_hooks
from ignite_hooks.testing import tiny_run
from ignite_hooks.writers.jsonl import read_jsonl
from ignite_hooks.writers.many import ManyWriters
from ignite_hooks.writers.tensorboard import TensorboardWriter
from tests.writers.results import write_all, write_media


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    everything = dict.fromkeys(("scalars", "images", "histograms", "tensors", "audio"), 0)
    return EventAccumulator(str(folder), size_guidance=everything).Reload()


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the curves; the best values are for the page of hyper-parameters."""
    seen = read(folder)
    tags = [tag for tag in seen.Tags()["scalars"] if not tag.startswith("best/")]
    return {tag: [(event.step, event.value) for event in seen.Scalars(tag)] for tag in tags}


def test_everything_is_read_back(tmp_path: Path) -> None:
    writer = TensorboardWriter(work_dir=tmp_path)
    picture = numpy.arange(4 * 6 * 3, dtype=numpy.uint8).reshape(4, 6, 3)
    writer.write_scalar("loss", torch.tensor(0.5), 7)
    writer.write_scalars({"loss": 0.25}, 7, kind="val")
    writer.write_image("cat", picture, 8)
    writer.write_histogram("weights", numpy.arange(10.0), 9)
    writer.write_text("note", "hello", 10)
    writer.write_text("table", "layer  size\n0      12", 10)
    writer.write_config({"seed": 1})
    writer.write_artifact(tmp_path / "none.pth")
    writer.close()
    seen = read(tmp_path / "tensorboard")
    assert scalars(tmp_path / "tensorboard") == {"loss": [(7, 0.5)], "val/loss": [(7, 0.25)]}
    [image] = seen.Images("cat")
    assert image.step == 8
    assert (numpy.asarray(Image.open(io.BytesIO(image.encoded_image_string))) == picture).all()
    [histogram] = seen.Histograms("weights")
    assert (histogram.step, histogram.histogram_value.num) == (9, 10)
    texts = {tag: seen.Tensors(f"{tag}/text_summary")[0] for tag in ("note", "config", "table")}
    assert (texts["note"].step, texts["note"].tensor_proto.string_val[0]) == (10, b"hello")
    assert texts["table"].tensor_proto.string_val[0] == b"    layer  size\n    0      12", "monospaced"
    assert b'"seed": 1' in texts["config"].tensor_proto.string_val[0]


class Mapped(torch.nn.Sequential):
    """A model that returns a mapping."""

    def forward(self, inputs: torch.Tensor) -> Any:
        return {"logits": super().forward(inputs)}


@pytest.mark.parametrize("kind", [torch.nn.Sequential, Mapped])
def test_a_graph_is_drawn_without_a_warning(kind: Any, tmp_path: Path) -> None:
    model = kind(torch.nn.Linear(4, 3), torch.nn.ReLU())
    writer = TensorboardWriter(tmp_path)
    writer.write_graph(model, torch.zeros(2, 4))
    writer.close()
    assert model.training
    assert any("Linear" in node.name for node in read(tmp_path).Graph().node)


def test_values_that_are_no_numbers_do_not_disturb_the_numbers(tmp_path: Path) -> None:
    writer = TensorboardWriter(tmp_path)
    writer.write_scalars({"loss": 0.5, "note": "text", "vector": torch.zeros(3), "none": None, "bad": math.nan}, 1)
    writer.write_scalars({"note": "text"}, 2)
    writer.write_scalar("count", numpy.int64(3), 3)
    writer.close()
    assert scalars(tmp_path) == {
        "loss": [(1, 0.5)],
        "bad": [(1, pytest.approx(math.nan, nan_ok=True))],
        "count": [(3, 3.0)],
    }


def test_histograms_leave_out_values_that_are_not_finite(tmp_path: Path) -> None:
    """TensorBoard raises an error for a histogram without values, as of gradients that are all NaN."""
    writer = TensorboardWriter(tmp_path)
    writer.write_histogram("some", torch.tensor([1.0, 2.0, math.nan, math.inf]), 1)
    writer.write_histogram("all", torch.full((4,), math.nan), 1)
    writer.write_histogram("none", torch.zeros(0), 1)
    writer.write_histogram("sparse", torch.eye(2).to_sparse(), 1)
    writer.write_histogram("half", torch.ones(3, dtype=torch.bfloat16, requires_grad=True), 1)
    writer.write_histogram("list", [1, 2], 1)
    writer.close()
    seen = read(tmp_path)
    found = {tag: seen.Histograms(tag)[0].histogram_value for tag in seen.Tags()["histograms"]}
    assert {tag: (values.num, values.sum) for tag, values in found.items()} == {
        "some": (2, 3.0),
        "sparse": (4, 2.0),
        "half": (3, 3.0),
        "list": (2, 3.0),
    }


def test_nothing_is_written_before_the_first_write(tmp_path: Path) -> None:
    writer = TensorboardWriter(work_dir=tmp_path)
    writer.flush()
    writer.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("files_before", [0, 9, 99])
def test_a_file_of_the_same_second_is_read_after_the_others(
    files_before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorBoard sorts files by names that end with a number: the tenth would come before the ninth."""
    from tensorboard.summary.writer import event_file_writer

    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(files_before))
    for step in (1, 2, 3):
        writer = TensorboardWriter(tmp_path)
        writer.began_anew() if step == 1 else writer.resumed(step - 1)
        writer.write_scalar("loss", float(step), step)
        writer.close()
    assert scalars(tmp_path) == {"loss": [(1, 1.0), (2, 2.0), (3, 3.0)]}


def test_a_resume_hides_the_steps_that_are_repeated(tmp_path: Path) -> None:
    first = TensorboardWriter(tmp_path)
    for step in range(1, 7):
        first.write_scalar("loss", float(step), step)
    first.close()
    second = TensorboardWriter(tmp_path)
    second.resumed(4)
    for step in range(5, 9):
        second.write_scalar("loss", 10.0 * step, step)
    second.close()
    assert scalars(tmp_path) == {
        "loss": [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 50.0), (6, 60.0), (7, 70.0), (8, 80.0)]
    }


def test_a_resumed_run_has_each_step_once_everywhere(tmp_path: Path) -> None:
    """The second run repeats the first one from a checkpoint before its end."""

    def train(epochs: int, **more: Any) -> None:
        run = tiny_run()
        hooks = [{"type": "LoggerHook", "interval": 1}, {"type": "CheckpointHook", "save_best": False}]
        cfg = {"hooks": hooks, "writers": ["TensorboardWriter"]}
        attach_hooks(run.trainer, cfg, work_dir=tmp_path, **run.services, **more)
        run.trainer.run(run.data, max_epochs=epochs)

    train(3)
    train(4, resume=str(tmp_path / "epoch_2.pth"))
    lines = [line for line in read_jsonl(tmp_path / "metrics.jsonl") if line["kind"] == "train"]
    assert [line["step"] for line in lines] == list(range(1, 13))
    seen = scalars(tmp_path / "tensorboard")
    for name in ("loss", "lr"):
        expected = [(line["step"], pytest.approx(line["scalars"][name])) for line in lines]
        assert seen[name] == expected


def test_two_threads_that_write_first_open_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread draws a picture while the loop writes the first numbers."""
    import torch.utils.tensorboard as tensorboard

    class Slow(tensorboard.SummaryWriter):
        def __init__(self, *args: Any, **more: Any) -> None:
            opened.append(threading.current_thread().name)
            if len(opened) == 1:
                begun.set()
                second.join(0.3)
            super().__init__(*args, **more)

    def draw() -> None:
        begun.wait(30)
        writer.write_image("cat", numpy.zeros((4, 4, 3), numpy.uint8), 1)

    opened: list[str] = []
    begun = threading.Event()
    writer = TensorboardWriter(tmp_path)
    monkeypatch.setattr(tensorboard, "SummaryWriter", Slow)
    second = threading.Thread(target=draw)
    second.start()
    writer.write_scalar("loss", 0.5, 1)
    second.join()
    writer.close()
    assert len(opened) == 1
    seen = read(tmp_path).Tags()
    assert (seen["scalars"], seen["images"]) == (["loss"], ["cat"])


def test_a_resumed_run_goes_on_in_the_folder_of_its_checkpoint(tmp_path: Path) -> None:
    first = TensorboardWriter(work_dir=tmp_path)
    first.write_scalar("loss", 1.0, 1)
    first.close()
    for number, on_resume in ((2, "new"), (3, "new"), (3, "same")):
        again = TensorboardWriter(on_resume=on_resume, work_dir=tmp_path)  # type: ignore[arg-type]
        again.load_state_dict(first.state_dict())
        again.resumed(1)
        again.write_scalar("loss", 1.0, 2)
        again.close()
        assert again.log_dir == tmp_path / f"tensorboard_{number}"
        first = again
    again.load_state_dict({"folder": "../elsewhere"})
    assert again.log_dir.parent == tmp_path
    again.began_anew()
    assert again.log_dir == tmp_path / "tensorboard"


def test_results_are_pictures_tables_and_curves_of_precision(tmp_path: Path) -> None:
    writer = TensorboardWriter(work_dir=tmp_path)
    write_all(writer)
    writer.close()
    found = read(tmp_path / "tensorboard")
    assert sorted(found.Tags()["images"]) == ["val/confusion", "val/pr"]
    assert sorted(found.Tags()["tensors"]) == ["val/pr/cat", "val/worst/text_summary"]
    (curve,) = found.Tensors("val/pr/cat")
    rows = numpy.array(curve.tensor_proto.float_val).reshape(6, 2)
    # True and false positives, true and false negatives, precision, recall.
    assert rows.tolist() == [[2, 1], [2, 0], [0, 2], [0, 1], [0.5, 1], [1, 0.5]]
    (table,) = found.Tensors("val/worst/text_summary")
    text = table.tensor_proto.string_val[0].decode()
    assert text.splitlines()[0] == "| sample | loss |"
    assert "(picture)" in text


def test_sounds_and_videos_are_played_by_tensorboard(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = TensorboardWriter(work_dir=tmp_path)
    write_media(writer)
    (tmp_path / "episode.mp4").write_bytes(b"a film")
    ManyWriters([writer]).write_video("episode", tmp_path / "episode.mp4", 4)
    writer.close()
    found = read(tmp_path / "tensorboard")
    [(sound,), (film,)] = found.Audio("val/tone"), found.Images("val/film")
    assert (sound.sample_rate, sound.length_frames, sound.content_type, sound.step) == (8000, 800, "audio/wav", 4)
    with Image.open(io.BytesIO(film.encoded_image_string)) as shown:
        assert (shown.format, shown.n_frames, shown.size) == ("GIF", 3, (24, 16))
    assert caplog.messages == [
        "TensorboardWriter does not get video 'episode': TensorBoard plays WAV and GIF, and this is mp4"
    ]
