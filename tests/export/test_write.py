from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.errors import ExportError
from ignite_hooks.export import program, weights, write
from ignite_hooks.export.card import Facts
from ignite_hooks.export.write import RECORD, Wanted, export_model
from tests.export.models import MODELS, ByValue, Norms, Tied

WEIGHTS = Wanted(("safetensors", "pth"))


def export(folder: Path, wanted: Wanted = WEIGHTS, name: str = "norms", **facts: Any) -> write.Exported:
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    return export_model(make(), inputs(), folder, wanted, Facts("a run", **facts))


def test_every_file_is_listed_with_its_checksum_and_difference(tmp_path: Path) -> None:
    exported = export(tmp_path, weights="the last weights", class_names=["cat", "dog"])
    assert {path.name for path in tmp_path.iterdir()} == {*(one.name for one in exported.files), RECORD}
    record = json.loads((tmp_path / RECORD).read_text())
    assert record["labels"] == ["cat", "dog"]
    assert record["checked_with_batches_of"] == [1, 5]
    assert [(one["name"], one["difference"]) for one in record["files"]] == [
        ("model.safetensors", 0.0),
        ("model.pth", 0.0),
        ("README.md", None),
        ("config.json", None),
    ]
    assert json.loads((tmp_path / "config.json").read_text())["id2label"] == {"0": "cat", "1": "dog"}


def test_the_model_stays_as_it_is(tmp_path: Path) -> None:
    model = Norms().train()
    before = copy.deepcopy(model.state_dict())
    export_model(model, torch.randn(3, 1, 6, 6), tmp_path, Wanted(("pth",), "float16"), Facts("a run"))
    assert model.training
    assert all(one.requires_grad for one in model.parameters())
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_a_file_that_computes_something_else_is_not_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    right = weights.read_slim
    monkeypatch.setattr(weights, "read_slim", lambda path: {n: one + 1 for n, one in right(path).items()})
    with pytest.raises(ExportError, match=r"pth: its outputs differ by .*, and 1.00e-04 is allowed"):
        export(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_checked_with_a_tolerance_of_its_own(tmp_path: Path, dtype: Any) -> None:
    exported = export(tmp_path, Wanted(("safetensors",), dtype))
    assert 0 < (exported.files[0].difference or 0) <= exported.tolerance
    assert next(exported.lines()).startswith("checked with batches of 1 and 5; allowed is a difference of 0.0")
    with pytest.raises(ExportError, match="safetensors: its outputs differ"):
        export(tmp_path / "strict", Wanted(("safetensors",), dtype, tolerance=1e-9))
    assert not list((tmp_path / "strict").iterdir())


def test_what_is_not_possible_is_told_unless_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "missing", lambda package, extra: f"{package} is missing" if extra == "onnx" else "")
    monkeypatch.setattr(program, "trace", _fails)
    exported = export_model(ByValue(), torch.randn(3, 3), tmp_path, Wanted(), Facts("a run"))
    assert exported.left_out == {"onnx": "onnx is missing", "pt2": "no trace"}
    assert [one.name for one in exported.files[:2]] == ["model.safetensors", "model.pth"]
    for name, reason in (("onnx", "onnx: onnx is missing"), ("pt2", "pt2: no trace")):
        with pytest.raises(ExportError, match=reason):
            export_model(ByValue(), torch.randn(3, 3), tmp_path, Wanted((name,)), Facts("a run"))  # type: ignore[arg-type]


def _fails(*_: Any, **__: Any) -> None:
    raise ExportError("no trace")


def test_a_page_that_somebody_edited_stays(tmp_path: Path) -> None:
    export(tmp_path)
    export(tmp_path, weights="others")
    page = tmp_path / "README.md"
    assert "others" in page.read_text()
    page.write_text(page.read_text().replace("To be written by the author", "Cats only"))
    edited = page.read_text()
    exported = export(tmp_path, weights="third")
    assert page.read_text() == edited
    assert "third" in (tmp_path / "README.new.md").read_text()
    assert any("README.md: left out: it was edited" in line for line in exported.lines())


def test_names_of_a_run_are_no_paths(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    export(folder, weights="../../x", class_names=["../evil", "/etc/x"], run="../y")
    assert {path.name for path in tmp_path.iterdir()} == {"export"}
    assert all(path.is_file() for path in folder.iterdir())


def test_files_of_an_earlier_export_are_told_of(tmp_path: Path) -> None:
    export(tmp_path, Wanted(("pth",)))
    exported = export(tmp_path, Wanted(("safetensors",)))
    assert list(exported.lines())[-1] == "model.pth: of an earlier export, and still there"


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "export", tmp_path / "outside"
    folder.mkdir()
    outside.write_text("mine")
    (folder / "model.pth").symlink_to(outside)
    export(folder)
    assert outside.read_text() == "mine"
    assert not (folder / "model.pth").is_symlink()


def test_what_is_no_module_and_a_batch_that_does_not_fit_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    with pytest.raises(ExportError, match=r"a torch\.nn\.Module is needed, not int"):
        export_model(3, torch.zeros(2, 2), tmp_path, WEIGHTS, Facts("a run"))
    with pytest.raises(ExportError, match="the model fails with a batch of 1"):
        export_model(Tied(), torch.full((2, 2), 99), tmp_path, WEIGHTS, Facts("a run"))


@pytest.mark.slow
def test_all_formats_are_written_and_checked(tmp_path: Path) -> None:
    for module in ("safetensors", "onnxscript", "onnxruntime"):
        pytest.importorskip(module)
    exported = export(tmp_path, Wanted())
    assert [one.name for one in exported.files[:4]] == ["model.safetensors", "model.pth", "model.pt2", "model.onnx"]
    assert not exported.left_out
    assert all(one.difference is not None and one.difference < 1e-6 for one in exported.files[:4])


@pytest.mark.slow
def test_a_fixed_batch_is_that_of_the_example(tmp_path: Path) -> None:
    exported = export(tmp_path, Wanted(("pt2",), batch="fixed"))
    assert list(exported.samples) == [3]
    model = torch.export.load(tmp_path / "model.pt2").module()
    with pytest.raises(AssertionError):
        model(torch.randn(4, 1, 6, 6))
