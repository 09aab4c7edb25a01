from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ignite_hooks.errors import ExportError
from ignite_hooks.export.example import Example
from ignite_hooks.export.program import read_onnx, read_program, trace, write_onnx, write_program
from ignite_hooks.export.verify import difference, outputs_of
from tests.export.models import MODELS, ByValue

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", list(MODELS))
def test_a_program_returns_what_the_model_does_for_any_number_of_samples(tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    model = make().eval()
    example = Example.of(model, inputs())
    program = trace(model, example, dynamic=True)
    write_program(tmp_path / "m.pt2", program, "{}")
    write_onnx(tmp_path / "m.onnx", program, {"labels": "[]"})
    for run in (read_program(tmp_path / "m.pt2"), read_onnx(tmp_path / "m.onnx")):
        for count in (1, 2, 5):
            batch = example.resized(count)
            assert difference(outputs_of(batch.call(model)), outputs_of(run(batch))) < 1e-6


def test_onnx_names_the_batch_and_says_nothing_of_the_machine(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    make, inputs = MODELS["norms"]
    model = make().eval()
    program = trace(model, Example.of(model, inputs()), dynamic=True)
    write_onnx(tmp_path / "m.onnx", program, {"run": "r1"})
    write_program(tmp_path / "m.pt2", program, "{}")
    found = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(found, full_check=True)
    shape = found.graph.input[0].type.tensor_type.shape
    assert [one.dim_param or one.dim_value for one in shape.dim] == ["batch", 1, 6, 6]
    assert {one.key: one.value for one in found.metadata_props} == {"run": "r1"}
    place = str(Path(__file__).parent).encode()
    assert not [path.name for path in tmp_path.iterdir() if place in path.read_bytes()]


def test_a_model_that_depends_on_values_cannot_be_traced() -> None:
    example = Example.of(torch.nn.Linear(3, 3), torch.randn(4, 3))
    with pytest.raises(ExportError, match=r"torch\.export cannot trace the model: .*; a batch of a fixed size"):
        trace(ByValue(), example, dynamic=True)


def test_a_program_runs_in_a_process_without_the_code_of_the_model(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    make, inputs = MODELS["norms"]
    model = make().eval()
    write_onnx(tmp_path / "m.onnx", trace(model, Example.of(model, inputs()), dynamic=True), {})
    code = (
        "import onnxruntime as o, numpy as n, sys; s = o.InferenceSession(sys.argv[1]);"
        "found = s.run(None, {s.get_inputs()[0].name: n.zeros((4, 1, 6, 6), n.float32)})[0];"
        "print(found.shape, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.onnx")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "(4, 4) False"
