"""Runs as the reader, the server and the page of TensorBoard show them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

from ignite_hooks import attach_hooks
from ignite_hooks.hooks.trackers.tensorboard_hook import inputs_of
from ignite_hooks.testing import tiny_run
from tests.browser import chromium, near, photographed
from tests.hooks.trackers.tracked import PICTURE, as_written, holding_the_canary, train
from tests.writers.test_tensorboard import read, scalars

ALL = {
    "type": "TensorBoardHook",
    "log_graph": True,
    "log_images": True,
    "log_histograms": True,
    "histogram_interval": 4,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the work directory of a run that wrote everything it can."""
    folder = tmp_path_factory.mktemp("tensorboard")
    train(folder, ALL)
    return folder


@pytest.fixture(scope="module")
def seen(folder: Path) -> Any:
    return read(folder / "tensorboard")


def test_names_steps_and_values_match_metrics_jsonl(folder: Path) -> None:
    written = as_written(folder)
    assert {"loss", "lr", "val/accuracy", "val/loss"} == written.keys()
    assert [step for step, _ in written["loss"]] == [2, 4, 6, 8, 10, 12]
    found = scalars(folder / "tensorboard")
    assert found == {name: [(step, pytest.approx(value)) for step, value in rows] for name, rows in written.items()}


def test_the_page_of_hyper_parameters_compares_best_values(folder: Path, seen: Any) -> None:
    from tensorboard.plugins.hparams.metadata import PLUGIN_NAME
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found = {}
    for tag in seen.PluginTagToContent(PLUGIN_NAME):
        found[tag] = HParamsPluginData.FromString(seen.SummaryMetadata(tag).plugin_data.content)
    [begun] = [one.session_start_info for one in found.values() if one.HasField("session_start_info")]
    assert begun.hparams["default_hooks.checkpoint.best_metric"].string_value == "accuracy"
    assert begun.hparams["tracker.api_key"].string_value == "***"
    best = max(value for _, value in as_written(folder)["val/accuracy"])
    assert [(one.step, one.value) for one in seen.Scalars("best/accuracy")] == [(12, pytest.approx(best))]
    [page] = [one.experiment for one in found.values() if one.HasField("experiment")]
    assert [metric.name.tag for metric in page.metric_infos] == ["best/accuracy"]


def test_pictures_keep_their_pixels_and_their_distance(seen: Any) -> None:
    images = seen.Images("predictions/cat")
    assert [image.step for image in images] == [4, 12], "at least 8 iterations lie between them"
    assert (numpy.asarray(Image.open(io.BytesIO(images[0].encoded_image_string))) == PICTURE).all()


def test_histograms_texts_and_the_graph_are_recorded(seen: Any) -> None:
    assert sorted(seen.Tags()["histograms"]) == [
        "gradients/bias",
        "gradients/weight",
        "weights/bias",
        "weights/weight",
    ]
    assert [histogram.step for histogram in seen.Histograms("weights/weight")] == [4, 8, 12]
    texts = {tag: seen.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in seen.Tags()["tensors"]}
    assert '"best_metric": "accuracy"' in texts["config/text_summary"]
    assert "after_train_iter" in texts["plan/text_summary"]
    assert "iterations: 12" in texts["summary/text_summary"]
    assert seen.Graph().node


def test_the_secret_of_the_configuration_is_not_recorded(folder: Path) -> None:
    assert holding_the_canary(folder) == []


def test_drawing_the_graph_changes_nothing(tmp_path: Path) -> None:
    weights = []
    for number, hook in enumerate([{"type": "TensorBoardHook"}, {"type": "TensorBoardHook", "log_graph": True}]):
        torch.manual_seed(0)
        run = tiny_run()
        run.model.register_forward_hook(lambda module, args, output: output * torch.rand(1))
        attach_hooks(run.trainer, [{"interval": 1, **hook}], work_dir=tmp_path / str(number), **run.services)
        run.trainer.run(run.data, max_epochs=2)
        weights.append(run.model.weight.detach())
    assert torch.equal(*weights)


def test_the_interval_of_the_hook_decides(tmp_path: Path) -> None:
    train(tmp_path, {"type": "TensorBoardHook", "interval": 4, "log_dir": "elsewhere"})
    found = scalars(tmp_path / "elsewhere")
    assert [step for step, _ in found["loss"]] == [4, 8, 12]
    assert [step for step, _ in as_written(tmp_path)["loss"]] == [2, 4, 6, 8, 10, 12]


def test_pictures_are_left_out_by_default(tmp_path: Path) -> None:
    train(tmp_path, {"type": "TensorBoardHook"})
    assert read(tmp_path / "tensorboard").Tags()["images"] == []


def test_a_resume_hides_repeated_steps(tmp_path: Path) -> None:
    train(tmp_path, {"type": "TensorBoardHook"}, epochs=3, fail=True)
    train(tmp_path, {"type": "TensorBoardHook"}, epochs=4, resume="epoch_2.pth")
    found = scalars(tmp_path / "tensorboard")
    written = as_written(tmp_path)
    assert [step for step, _ in written["loss"]] == list(range(2, 17, 2))
    assert found == {name: [(step, pytest.approx(value)) for step, value in rows] for name, rows in written.items()}


def test_a_new_run_in_a_folder_hides_the_earlier_one(tmp_path: Path) -> None:
    train(tmp_path, {"type": "TensorBoardHook"}, epochs=3)
    train(tmp_path, {"type": "TensorBoardHook"}, epochs=2)
    assert [step for step, _ in as_written(tmp_path)["loss"]] == [2, 4, 6, 8]
    found = scalars(tmp_path / "tensorboard")
    assert found["loss"] == [(step, pytest.approx(value)) for step, value in as_written(tmp_path)["loss"]]


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        (torch.ones(1), True),
        ((torch.ones(1), torch.zeros(1)), True),
        ({"id": ["a"], "x": torch.ones(1)}, True),
        ([["text", 3]], False),
        (None, False),
    ],
)
def test_the_input_of_a_model_is_the_first_tensor(batch: Any, found: bool) -> None:
    inputs = inputs_of(batch)
    assert (inputs is not None) == found
    assert inputs is None or inputs.item() == 1


# -- its own page ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run the server of TensorBoard on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--host", "127.0.0.1"]
    server = subprocess.Popen(
        [*command, "--port", str(port), "--load_fast", "false"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def until_it_has(url: str, wanted: set[str]) -> None:
    """Wait for a server that is starting and has not read all of its files yet."""
    until, found = time.monotonic() + 120, set()
    while found != wanted:
        assert time.monotonic() < until, f"{url} has {found}"
        signal.sigtimedwait([], 0.2)
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as got:
            found = set(json.load(got).get("tensorboard", {}))


@pytest.mark.slow
def test_its_page_shows_scalars_and_a_picture(folder: Path, tmp_path: Path) -> None:
    chromium()
    with served(folder) as url:
        until_it_has(f"{url}/data/plugin/scalars/tags", {*as_written(folder), "best/accuracy"})
        until_it_has(f"{url}/data/plugin/images/tags", {"predictions/cat"})
        curves, images = (photographed(f"{url}/#{tab}", tmp_path / f"{tab}.png") for tab in TABS)
    # Curves and mountains are drawn in dark blue, and the page around them is white and grey.
    assert near(curves, (66, 80, 102)) > 500
    # Of the picture's random colours nearly all are there, and each fills more than a few pixels.
    colours = [tuple(pixel) for pixel in PICTURE.reshape(-1, 3).tolist()]
    assert sum(near(images, colour) > 20 for colour in colours) > 0.9 * len(colours)


TABS = ("timeseries", "images")
