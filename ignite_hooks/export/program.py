"""A model as a program that needs none of its code: ``torch.export`` and ONNX."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from ignite_hooks.errors import ExportError
from ignite_hooks.export.example import Example
from ignite_hooks.text import one_line, shortened

BATCH: Final = "batch"
TRACED: Final = 2
"""The samples in the batch that is traced: torch takes 0 and 1 for numbers that never change."""


def trace(model: torch.nn.Module, example: Example, *, dynamic: bool) -> Any:
    """Return the program of a model in evaluation mode, as `torch.export` finds it.

    Raises:
        ExportError: If there is none, as with control flow that depends on values.
    """
    batch = example.resized(TRACED) if dynamic else example
    shapes = batch.dynamic_shapes(torch.export.Dim(BATCH, min=1)) if dynamic else None
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(model, batch.args, dict(batch.kwargs), dynamic_shapes=shapes)
    except Exception as error:  # foreign code is traced
        remedy = "; a batch of a fixed size may be possible: batch fixed" if dynamic else ""
        raise ExportError(f"torch.export cannot trace the model: {shortened(one_line(error), 300)}{remedy}") from error
    for node in program.graph.nodes:
        # Where the code of the model lies on this machine.
        node.meta.pop("stack_trace", None)
    return program


def write_program(path: Path, program: Any, facts: str) -> None:
    """Write a program of `torch.export`."""
    with _quiet():
        torch.export.save(program, path, extra_files={"metadata.json": facts})


def read_program(path: Path) -> Callable[[Example], Any]:
    """Return what runs a file that was just written: it is a pickle, which must never be opened if others had it."""
    with _quiet():
        module = torch.export.load(path).module()
    return lambda example: example.call(module)


def write_onnx(path: Path, program: Any, facts: Mapping[str, str]) -> None:
    """Write a program as ONNX, with its weights in a file beside it where they are too large for one."""
    try:
        with _quiet():
            found = torch.onnx.export(program, dynamo=True, verbose=False)
    except Exception as error:  # it converts every operator of a foreign model
        raise ExportError(f"torch.onnx cannot convert the model: {shortened(one_line(error), 300)}") from error
    assert found is not None
    _name_dimension(found.model)
    for node in found.model.graph:
        node.metadata_props.clear()
    found.model.metadata_props.update(facts)
    with _quiet():
        found.save(str(path))


def read_onnx(path: Path) -> Callable[[Example], Any]:
    """Return what runs a file of ONNX on a batch, with onnxruntime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ExportError(f"onnxruntime cannot load it: {shortened(one_line(error), 300)}") from error
    names = [each.name for each in session.get_inputs()]

    def run(example: Example) -> Any:
        given = example.tensors()
        if len(given) != len(names):
            raise ExportError(f"it has the inputs {', '.join(names)}, and a batch has {len(given)} tensors")
        try:
            found = session.run(None, {name: each.numpy() for name, each in zip(names, given, strict=True)})
        except Exception as error:
            raise ExportError(f"onnxruntime cannot run it: {shortened(one_line(error), 300)}") from error
        return [torch.from_numpy(each) for each in found]

    return run


def _name_dimension(model: Any) -> None:
    """Name the only symbol among the dimensions of a model of ONNX, which the converter numbers."""
    inputs = list(model.graph.inputs)
    symbols = {str(one.shape[0]) for one in inputs if one.shape and not isinstance(one.shape[0], int)}
    if len(symbols) != 1 or symbols == {BATCH}:
        return
    (old,) = symbols
    values = [*inputs, *(output for node in model.graph for output in node.outputs)]
    for value in values:
        for place, dimension in enumerate(value.shape or ()):
            if not isinstance(dimension, int) and dimension.value is not None:
                value.shape[place] = re.sub(rf"\b{re.escape(old)}\b", BATCH, str(dimension.value))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what torch says of its own parts while it traces and converts."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
