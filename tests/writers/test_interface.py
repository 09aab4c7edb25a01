from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from matplotlib.figure import Figure

import ignite_hooks
from ignite_hooks.writers import Writer
from ignite_hooks.writers.memory import MemoryWriter


class ThirdSeedWriter(Writer):
    """Has only the three methods of the specification."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self.calls.append(("scalar", name, value, step))

    def write_image(self, name: str, image: Any, step: int) -> None:
        self.calls.append(("image", name, image, step))

    def write_config(self, config: Any) -> None:
        self.calls.append(("config", config))


@pytest.mark.parametrize(
    ("method", "arguments"),
    [("write_scalar", ("loss", 0.5, 1)), ("write_image", ("cat", None, 1)), ("write_config", ({},))],
)
def test_the_three_required_methods_name_class_and_method(method: str, arguments: tuple[Any, ...]) -> None:
    class Unfinished(Writer):
        pass

    with pytest.raises(NotImplementedError, match=f"^Unfinished.{method}: "):
        getattr(Unfinished(), method)(*arguments)


def test_three_methods_are_enough(tmp_path: Path) -> None:
    writer = ThirdSeedWriter()
    writer.write_scalars({"loss": 0.5, "lr": 0.1}, 7, kind="val", epoch=2)
    writer.write_config({"seed": 1})
    writer.write_figure("not a figure", object(), 7)
    writer.write_histogram("weights", [1, 2], 7)
    writer.write_text("note", "hello", 7)
    writer.write_graph(None, None)
    writer.write_artifact(tmp_path)
    writer.flush()
    writer.close()
    writer.close()
    assert writer.calls == [("scalar", "val/loss", 0.5, 7), ("scalar", "val/lr", 0.1, 7), ("config", {"seed": 1})]


def test_rendering_a_figure_does_not_change_it() -> None:
    figure = Figure(figsize=(2, 1), dpi=50, facecolor="red")
    canvas = figure.canvas
    writer = MemoryWriter()
    writer.write_figure("red", figure, 3)
    [(name, image, step)] = writer.images
    assert (name, step, image.shape, image.dtype) == ("red", 3, (50, 100, 4), numpy.uint8)
    assert (image == [255, 0, 0, 255]).all()
    assert figure.canvas is canvas


def test_importing_loads_no_backend() -> None:
    package = Path(ignite_hooks.__file__).parent
    code = f"""
import sys, types
package = types.ModuleType("ignite_hooks")
package.__path__ = [{str(package)!r}]
sys.modules["ignite_hooks"] = package
import ignite_hooks.run.best, ignite_hooks.run.metrics, ignite_hooks.writers
import ignite_hooks.writers.jsonl, ignite_hooks.writers.many, ignite_hooks.writers.memory
print(sorted({{"torch", "numpy", "matplotlib", "ignite"}} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
