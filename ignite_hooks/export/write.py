"""Write a model into a folder in every format that is wanted, and check each file against the model."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

import torch
from torch.nn import Module

from ignite_hooks.errors import ExportError
from ignite_hooks.export import card, program, weights
from ignite_hooks.export.card import Facts
from ignite_hooks.export.example import Example
from ignite_hooks.export.verify import TOLERANCES, difference, outputs_of
from ignite_hooks.model.wrapping import is_sharded, plain_state, unwrapped
from ignite_hooks.store.files import explain, make_folder, open_regular, temporary_path, write_whole
from ignite_hooks.system import host
from ignite_hooks.text import number, one_line, size
from ignite_hooks.writers.interface import missing

Format = Literal["safetensors", "pth", "pt2", "onnx"]
DType = Literal["float32", "float16", "bfloat16"]

FORMATS: Final[Mapping[Format, str]] = {
    "safetensors": "model.safetensors",
    "pth": "model.pth",
    "pt2": "model.pt2",
    "onnx": "model.onnx",
}
"""The formats and their files: no name of a run becomes one."""
RECORD: Final = "export.json"
NEEDED: Final[Mapping[Format, Sequence[str]]] = {
    "safetensors": ("safetensors",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}
"""The packages that a format needs beside torch; they are those of the extra of its name."""
OTHER_SIZE: Final = 5
"""The size of the second batch, besides one sample, with which every file is checked."""


@dataclass(frozen=True)
class Wanted:
    """What to export, and how.

    Args:
        formats: The formats; None for all that are possible here, and the others are told.
        dtype: The type of floating point numbers; None for that of the model.
        batch: Whether the number of samples may be another in each call, or is always that of the example.
        tolerance: The largest difference from an output of the model, relative to its largest value above 1; None for
            the usual one of the type.
        card: Whether to write ``README.md`` and ``config.json`` as hubs of models take them.
    """

    formats: Sequence[Format] | None = None
    dtype: DType | None = None
    batch: Literal["dynamic", "fixed"] = "dynamic"
    tolerance: float | None = None
    card: bool = True


@dataclass(frozen=True)
class ExportedFile:
    """A file that was written and checked."""

    name: str
    size: int
    sha256: str
    difference: float | None = None
    """The largest difference from the outputs of the model; None where nothing is computed."""


@dataclass
class Exported:
    """What was written, and what was not."""

    folder: Path
    tolerance: float
    samples: Sequence[int]
    """The sizes of the batches with which the files were checked."""
    files: list[ExportedFile] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """What is not written, and why."""
    stays: list[str] = field(default_factory=list)
    """The files of an earlier export that are still there."""

    def rows(self) -> list[dict[str, str]]:
        """Return a row for every file."""
        return [
            {
                "file": one.name,
                "size": size(one.size),
                "largest difference": ""
                if one.difference is None
                else number(float(one.difference))
                if one.difference
                else "none",
            }
            for one in self.files
        ]

    def lines(self) -> Iterator[str]:
        """Yield how the files were checked, and what was left out."""
        sizes = " and ".join(map(str, self.samples))
        yield f"checked with batches of {sizes}; allowed is a difference of {number(float(self.tolerance))}"
        for name, reason in self.left_out.items():
            yield f"{name}: left out: {reason}"
        if self.stays:
            yield f"{', '.join(self.stays)}: of an earlier export, and still there"


def export_model(model: Any, inputs: Any, folder: Path, wanted: Wanted, facts: Facts) -> Exported:
    """Write a model into a folder; every file is checked before the first is put in place.

    Args:
        model: The model, which stays as it is.
        inputs: The inputs of a batch, as the model takes them.
        folder: Where the files go; those of an earlier export are replaced, all others stay.
        wanted: The formats, and how.
        facts: What is known of the model and its run.

    Raises:
        ExportError: If something that is asked for is not possible, or does not return what the model does.
    """
    formats, left_out = _possible(wanted)
    original = _copy_of(model)
    example = Example.of(original, inputs)
    dynamic = wanted.batch == "dynamic"
    sizes = (1, OTHER_SIZE) if dynamic else (example.samples,)
    batches = [example.resized(count) for count in sizes]
    expected = [_called(original, batch) for batch in batches]
    dtype = None if wanted.dtype is None else getattr(torch, wanted.dtype)
    tolerance = wanted.tolerance if wanted.tolerance is not None else _usual_tolerance(original, dtype)
    state = plain_state(original)
    if lost := weights.left_out_of(state):
        left_out["state"] = f"{', '.join(lost[:5])}: no tensors, which no file of weights holds"
    cast = original if dtype is None else copy.deepcopy(original).to(dtype)
    exported = Exported(folder, tolerance, sizes, left_out=left_out)
    make_folder(folder)
    staging = temporary_path(folder, "export")
    os.mkdir(staging)
    try:
        writer = _FormatWriter(staging, cast, example.cast(dtype), dynamic, facts.metadata(example.described()), dtype)
        for name in formats:
            try:
                run = writer.write(name)
                found = _largest(run, [batch.cast(dtype) for batch in batches], expected)
                if not found <= tolerance:
                    message = f"its outputs differ by {number(float(found))}, and {number(float(tolerance))} is allowed"
                    raise ExportError(message)
            except ExportError as error:
                if wanted.formats is not None:
                    raise ExportError(f"{name}: {error}") from error
                left_out[name] = str(error)
                for path in staging.glob(f"{FORMATS[name]}*"):
                    path.unlink()
                continue
            exported.files += [_described(path, found) for path in sorted(staging.glob(f"{FORMATS[name]}*"))]
        if not exported.files:
            raise ExportError("; ".join(exported.lines()))
        if wanted.card:
            exported.files += _write_card(staging, folder, original, exported, facts, example)
        _record(staging, exported, facts, wanted, example)
        written = {one.name for one in exported.files}
        exported.stays = [name for name in FORMATS.values() if name not in written and (folder / name).exists()]
        _put_in_place(staging, folder, [*(one.name for one in exported.files), RECORD])
    except OSError as error:
        raise ExportError(f"{folder} cannot be written: {explain(error, folder)}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return exported


def _possible(wanted: Wanted) -> tuple[list[Format], dict[str, str]]:
    """Return the formats to write, and why others are left out."""
    chosen: list[Format] = list(dict.fromkeys(wanted.formats if wanted.formats is not None else FORMATS))
    left_out: dict[str, str] = {}
    for name in list(chosen):
        reason = problem_of_format(name, wanted.dtype)
        if reason and wanted.formats is not None:
            raise ExportError(f"{name}: {reason}")
        if reason:
            left_out[name] = reason
            chosen.remove(name)
    return chosen, left_out


def problem_of_format(name: str, dtype: str | None) -> str:
    """Return why a format cannot be written here, or nothing.

    Example:
        >>> problem_of_format("onnx", "bfloat16")
        'onnxruntime computes no bfloat16 here: write float16 or float32'
        >>> problem_of_format("pth", None)
        ''
    """
    if name not in get_args(Format):
        return f"not a format: there are {', '.join(FORMATS)}"
    for package in NEEDED.get(name, ()):  # type: ignore[call-overload]
        if problem := missing(package, name):
            return problem
    if name == "onnx" and dtype == "bfloat16":
        return "onnxruntime computes no bfloat16 here: write float16 or float32"
    return ""


def _copy_of(model: Any) -> Module:
    """Return an independent copy of a model on the CPU, in evaluation mode."""
    inner = unwrapped(model)
    if not isinstance(inner, Module):
        raise ExportError(f"a torch.nn.Module is needed, not {type(inner).__name__}")
    if is_sharded(inner):
        raise ExportError("its weights are shared out among the ranks: export a checkpoint with `ignite-hooks export`")
    try:
        found = copy.deepcopy(inner)
    except Exception as error:  # whatever a module of a user holds
        raise ExportError(f"the model cannot be copied: {one_line(error)}") from error
    return found.requires_grad_(False).cpu().eval()


def _called(model: Module, batch: Example) -> list[torch.Tensor]:
    try:
        with torch.no_grad():
            return outputs_of(batch.call(model))
    except ExportError:
        raise
    except Exception as error:  # foreign code
        raise ExportError(f"the model fails with a batch of {batch.samples}: {one_line(error)}") from error


def _usual_tolerance(model: Module, dtype: torch.dtype | None) -> float:
    own = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
    return max(TOLERANCES.get(own, 1e-4), TOLERANCES.get(own if dtype is None else dtype, 1e-4))


def _largest(
    run: Callable[[Example], Any], batches: Sequence[Example], expected: Sequence[list[torch.Tensor]]
) -> float:
    """Return the largest difference in the outputs of some batches."""
    found = []
    for batch, wanted in zip(batches, expected, strict=True):
        try:
            with torch.no_grad():
                outputs = outputs_of(run(batch))
        except ExportError:
            raise
        except Exception as error:  # what was exported is foreign code
            raise ExportError(f"it fails with a batch of {batch.samples}: {one_line(error)}") from error
        found.append(difference(wanted, outputs))
    return max(found)


class _FormatWriter:
    """Writes one model in several formats; it is traced once."""

    def __init__(
        self,
        folder: Path,
        model: Module,
        example: Example,
        dynamic: bool,
        facts: Mapping[str, Any],
        dtype: torch.dtype | None,
    ) -> None:
        self._folder, self._model, self._example, self._dynamic = folder, model, example, dynamic
        self._facts, self._dtype = facts, dtype
        self._program: Any = None

    def write(self, name: Format) -> Callable[[Example], Any]:
        """Write a file, and return what runs it as it was read back."""
        path = self._folder / FORMATS[name]
        if name in ("safetensors", "pth"):
            return self._write_weights(name, path)
        if self._program is None:
            self._program = program.trace(self._model, self._example, dynamic=self._dynamic)
        if name == "pt2":
            program.write_program(path, self._program, json.dumps(self._facts))
            return program.read_program(path)
        texts = {key: one if isinstance(one, str) else json.dumps(one) for key, one in self._facts.items()}
        program.write_onnx(path, self._program, texts)
        return program.read_onnx(path)

    def _write_weights(self, name: Format, path: Path) -> Callable[[Example], Any]:
        state = plain_state(self._model)
        tensors, tied = weights.weights_of(state, self._dtype)
        if name == "safetensors":
            weights.write_safetensors(path, tensors, tied, self._facts)
            found = weights.read_safetensors(path)
        else:
            weights.write_slim(path, tensors, tied, self._facts)
            found = weights.read_slim(path)
        other = copy.deepcopy(self._model)
        for weight in (*other.parameters(), *other.buffers()):
            # Nothing of the model may be left, so that what is missing in the file is seen.
            weight.data.zero_()
        others = {key: value for key, value in state.items() if not isinstance(value, torch.Tensor)}
        other.load_state_dict({**found, **others})
        return lambda batch: batch.call(other)


def _described(path: Path, found: float | None) -> ExportedFile:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return ExportedFile(path.name, path.stat().st_size, digest.hexdigest(), found)


def _write_card(
    staging: Path, folder: Path, model: Module, exported: Exported, facts: Facts, example: Example
) -> list[ExportedFile]:
    """Write the files that a hub of models reads; a page that somebody has edited stays, with the new one beside it."""
    name = card.PAGE if _is_ours(folder / card.PAGE, folder) else card.NEW_PAGE
    if name == card.NEW_PAGE:
        exported.left_out[card.PAGE] = f"it was edited, and stays; what would be in it now is in {card.NEW_PAGE}"
    if facts.curves is not None:
        write_whole(staging / card.CURVES, facts.curves)
    rows = [{**row, "sha256": one.sha256[:12]} for row, one in zip(exported.rows(), exported.files, strict=True)]
    page = card.page(model, facts, example.described(), rows, next(exported.lines()))
    write_whole(staging / name, page.encode("utf-8", "replace"))
    write_whole(staging / card.CONFIG, card.config(model, facts, example.described()).encode("utf-8", "replace"))
    names = [name, card.CONFIG, *([card.CURVES] if facts.curves is not None else [])]
    return [_described(staging / each, None) for each in names]


def _is_ours(path: Path, folder: Path) -> bool:
    """Return whether a file is not there, or is as an earlier export has written it."""
    if not os.path.lexists(path):
        return True
    try:
        with open_regular(folder / RECORD) as file:
            known = {one["name"]: one["sha256"] for one in json.load(file)["files"]}
        return known.get(path.name) == _described(path, None).sha256
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _record(staging: Path, exported: Exported, facts: Facts, wanted: Wanted, example: Example) -> None:
    content = {
        "format": 1,
        **facts.metadata(example.described()),
        "batch": wanted.batch,
        "tolerance": exported.tolerance,
        "checked_with_batches_of": list(exported.samples),
        "files": [asdict(one) for one in exported.files],
        "left_out": exported.left_out,
    }
    text = json.dumps(content, ensure_ascii=False, indent=1)
    write_whole(staging / RECORD, text.encode("utf-8", "backslashreplace"))


def _put_in_place(staging: Path, folder: Path, names: Sequence[str]) -> None:
    """Give the files their final names, the record last: while it is missing, an export is not complete."""
    for name in names:
        with (staging / name).open("r+b") as file:  # Windows flushes no file that is open to read
            host.sync(file.fileno())
    (folder / RECORD).unlink(missing_ok=True)
    for name in names:
        host.replace(staging / name, folder / name)
    host.sync_folder(folder)
