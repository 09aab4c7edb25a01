from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ignite_hooks import drawing
from ignite_hooks.drawing import thread as module
from ignite_hooks.drawing.thread import MAX_WAITING, DrawingThread, PictureDisplay, file_name
from ignite_hooks.writers.many import ManyWriters
from ignite_hooks.writers.memory import MemoryWriter

PICTURE = np.full((4, 6, 3), 7, np.uint8)


def paint() -> Any:
    return PICTURE


class Gate:
    """A drawing that waits until it is opened."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self) -> Any:
        self.begun.set()
        assert self.open.wait(60)
        return PICTURE


def test_pictures_are_saved_and_sent_in_another_thread(tmp_path: Path) -> None:
    sink, threads = MemoryWriter(), []
    drawer = DrawingThread("test", folder=tmp_path, sink=sink)

    def who() -> Any:
        threads.append(threading.current_thread())
        return PICTURE

    assert drawer.draw("val/cam", 5, who)
    drawer.close()
    assert threads != [threading.main_thread()]
    assert not threads[0].is_alive(), "joined"
    assert np.array_equal(np.asarray(Image.open(tmp_path / "val" / "cam_000005.png")), PICTURE)
    assert [(name, step) for name, _, step in sink.images] == [("val/cam", 5)]


def test_figures_are_sent_as_figures(tmp_path: Path) -> None:
    from ignite_hooks.writers.interface import Writer

    figures: list[Any] = []

    class Sink(Writer):
        def write_figure(self, name: str, figure: Any, step: int) -> None:
            figures.append((name, type(figure).__name__, step))

    drawer = DrawingThread("test", folder=tmp_path, sink=Sink())
    drawer.draw("history", 3, lambda: drawing.curves({"loss": [(1, 1.0)]}), replace=True)
    drawer.close()
    assert figures == [("history", "Figure", 3)]
    assert np.asarray(Image.open(tmp_path / "history.png")).shape[1] > 300


def test_a_figure_is_drawn_once_for_its_file_and_all_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    draws, draw = [], FigureCanvasAgg.draw
    monkeypatch.setattr(FigureCanvasAgg, "draw", lambda canvas: draws.append(canvas) or draw(canvas))
    sinks = MemoryWriter(), MemoryWriter()
    drawer = DrawingThread("test", folder=tmp_path, sink=ManyWriters(sinks))
    drawer.draw("history", 3, lambda: drawing.curves({"loss": [(1, 1.0)]}), replace=True)
    drawer.close()
    [(_, one, _)], [(_, other, _)] = (sink.images for sink in sinks)
    assert len(draws) == 1
    assert np.array_equal(one[:, :, :3], np.asarray(Image.open(tmp_path / "history.png")))
    assert np.array_equal(one, other)
    assert not np.shares_memory(one, other), "a writer may draw into its picture"


def test_a_full_queue_drops_pictures_and_never_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gate, drawer = Gate(), DrawingThread("test", folder=tmp_path)
    drawer.draw("gate", 0, gate)
    assert gate.begun.wait(60)
    taken = [drawer.draw("a", step, paint) for step in range(1, MAX_WAITING + 3)]
    assert taken == [True] * MAX_WAITING + [False, False]
    gate.open.set()
    drawer.close()
    assert len(list(tmp_path.iterdir())) == 1 + MAX_WAITING
    assert [record.getMessage() for record in caplog.records] == [
        f"test drops pictures, first a of step {MAX_WAITING + 1}: they arrive faster than they can be drawn",
        "test dropped 2 pictures",
    ]


def test_what_is_not_drawn_in_time_is_counted_and_never_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate, sink, drawer = Gate(), MemoryWriter(), DrawingThread("test", folder=tmp_path)
    drawer.sink = sink
    drawer.draw("gate", 0, gate)
    assert gate.begun.wait(60)
    drawer.draw("a", 1, paint)
    for step in range(2, 5):
        drawer.draw("history", step, paint, replace=True)
    worker = drawer._thread
    drawer.close(within=0.01)
    gate.open.set()
    assert worker is not None
    worker.join(60)
    said = "test: 3 pictures are not drawn after 0 s at the end of the run, so they are left out"
    assert [record.getMessage() for record in caplog.records] == [said]
    assert sink.images == [*tmp_path.iterdir()] == []


def test_pictures_of_a_sample_are_all_drawn_or_all_dropped(tmp_path: Path) -> None:
    gate, drawer = Gate(), DrawingThread("test", folder=tmp_path)
    drawer.draw("gate", 0, gate)
    assert gate.begun.wait(60)
    for sample in range(1, MAX_WAITING + 1):
        assert all(drawer.draw(f"layer_{n}", sample, paint, sample=f"train {sample}") for n in range(6))
    dropped = [drawer.draw(f"layer_{n}", 9, paint, sample="train 9") for n in range(6)]
    gate.open.set()
    drawer.wait()
    assert not any(dropped)
    assert not drawer.draw("late", 9, paint, sample="train 9"), "though there is room by now"
    assert drawer.draw("layer_0", 10, paint, sample="train 10")
    drawer.wait()
    assert drawer.draw("layer_1", 10, paint, sample="train 10")
    drawer.close()
    assert len(list(tmp_path.iterdir())) == 1 + 6 * MAX_WAITING + 2


def test_only_the_newest_of_replacing_pictures_is_drawn(tmp_path: Path) -> None:
    gate, sink = Gate(), MemoryWriter()
    drawer = DrawingThread("test", folder=tmp_path, sink=sink)
    drawer.draw("gate", 0, gate)
    assert gate.begun.wait(60)
    assert all(drawer.draw("history", step, paint, replace=True) for step in range(100))
    gate.open.set()
    drawer.close()
    assert [(name, step) for name, _, step in sink.images] == [("gate", 0), ("history", 99)]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["gate_000000.png", "history.png"]


def test_the_last_of_many_replacements_is_never_lost() -> None:
    sink = MemoryWriter()
    for _ in range(20):
        drawer = DrawingThread("test", sink=sink)
        for step in range(50):
            drawer.draw("history", step, paint, replace=True)
        drawer.close()
        assert sink.images[-1][2] == 49


@pytest.mark.parametrize("where", ["draw", "close"])
def test_exceptions_of_drawings_are_raised_in_the_loop(where: str) -> None:
    def fail() -> Any:
        raise ValueError("boom")

    drawer = DrawingThread("test")
    drawer.draw("a", 1, fail)
    if where == "draw":
        drawer.wait()
        with pytest.raises(ValueError, match="boom"):
            drawer.draw("a", 2, paint)
    else:
        with pytest.raises(ValueError, match="boom"):
            drawer.close()
    drawer.close()
    assert "test draws" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
def test_only_the_drawing_thread_yields_to_others() -> None:
    seen: list[int] = []
    before = os.sched_getscheduler(0)
    drawer = DrawingThread("test")
    drawer.draw("a", 1, lambda: seen.append(os.sched_getscheduler(0)) or PICTURE)
    drawer.close()
    assert seen == [os.SCHED_BATCH]
    assert os.sched_getscheduler(0) == before


def test_without_a_picture_there_is_no_thread() -> None:
    before = threading.active_count()
    drawer = DrawingThread("test")
    assert threading.active_count() == before
    drawer.close()
    drawer.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train/predictions", "train/predictions_000007.png"),
        ("../../etc/passwd", "etc/passwd_000007.png"),
        ("/absolute", "absolute_000007.png"),
        ("feature_map/layer1.0.conv", "feature_map/layer1.0.conv_000007.png"),
        ("..", "picture_000007.png"),
        ("猫 1", "猫_1_000007.png"),
    ],
)
def test_no_name_leaves_the_folder(name: str, expected: str) -> None:
    assert str(file_name(name, 7)) == expected


def test_without_display_it_warns_once_and_saves_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    drawer = DrawingThread("test", folder=tmp_path, show=True)
    for step in (1, 2):
        drawer.draw("a", step, paint)
    drawer.close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "pictures are not shown: there is neither a display nor a notebook" in caplog.text
    assert len(list(tmp_path.iterdir())) == 2


WINDOW = """
import sys, time
import numpy as np
from PIL import ImageGrab
from ignite_hooks.drawing.thread import DrawingThread

picture = np.zeros((120, 200, 3), np.uint8) + np.uint8([213, 94, 0])
drawer = DrawingThread("test", show=True)
drawer.draw("a", 1, lambda: picture)
end, seen = time.monotonic() + 60, 0
while seen < picture.shape[0] * picture.shape[1] // 2 and time.monotonic() < end:
    drawer.draw("a", 2, lambda: picture)
    drawer.wait()
    screen = np.asarray(ImageGrab.grab(xdisplay="").convert("RGB"))
    seen = int((screen == [213, 94, 0]).all(2).sum())
drawer.close()
print(seen)
"""


@pytest.mark.slow
def test_a_window_on_a_display_shows_the_picture() -> None:
    if shutil.which("xvfb-run") is None:
        pytest.skip("needs xvfb for a screen")
    pytest.importorskip("tkinter")
    command = ["xvfb-run", "-a", "-s", "-screen 0 800x600x24", sys.executable, "-c", WINDOW]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 12_000, "half of the picture is on the screen"


def test_a_notebook_shows_a_picture_inline_and_updates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    class Handle:
        def update(self, picture: Any) -> None:
            shown.append(("update", picture.data[:4]))

    def display(picture: Any, display_id: bool) -> Handle:
        shown.append(("new", picture.data[:4]))
        return Handle()

    import IPython.display

    monkeypatch.setattr(module, "in_notebook", lambda: True)
    monkeypatch.setattr(IPython.display, "display", display)
    drawer = DrawingThread("test", show=True)
    drawer.draw("a", 1, paint)
    drawer.draw("a", 2, paint)
    drawer.draw("b", 2, paint)
    assert shown == [("new", b"\x89PNG"), ("update", b"\x89PNG"), ("new", b"\x89PNG")]


def test_without_windows_in_matplotlib_it_warns_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from matplotlib import pyplot

    monkeypatch.setenv("DISPLAY", ":99")
    before = pyplot.get_backend()
    pyplot.switch_backend("agg")
    drawer = DrawingThread("test", folder=tmp_path, show=True)
    for step in (1, 2):
        drawer.draw("a", step, paint)
    drawer.close()
    assert not pyplot.get_fignums(), "a window that did not open leaves nothing behind"
    pyplot.switch_backend(before)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == (
        "show: pictures are not shown: "
        "matplotlib cannot open a window (FigureCanvasAgg is non-interactive, and thus cannot be shown)"
    )
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("backend", ["matplotlib", "pillow"])
def test_with_a_display_a_window_opens(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setattr(PictureDisplay, "_in_viewer", lambda _, name, pixels: opened.append(f"pillow {name}"))
    monkeypatch.setattr(
        module.PictureDisplay, "_in_window", lambda _, name, pixels: opened.append(f"matplotlib {name}")
    )
    drawer = DrawingThread("test", show=True, backend=backend)
    drawer.draw("a", 1, paint)
    assert opened == [f"{backend} a"]
