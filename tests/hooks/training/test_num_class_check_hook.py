from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch.utils.data import ConcatDataset, DataLoader, Subset

from ignite_hooks import HookError, attach_hooks
from ignite_hooks.hooks.training.num_class_check_hook import counting_modules
from ignite_hooks.model.class_names import class_names


class Head(torch.nn.Module):
    def __init__(self, num_classes: Any) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.weight = torch.nn.Parameter(torch.ones(1))


class VGG(Head):
    """A backbone that counts the classes it was pretrained with."""


def detector(**heads: Any) -> torch.nn.Module:
    return torch.nn.ModuleDict({name: head if isinstance(head, Head) else Head(head) for name, head in heads.items()})


class Shapes(list):  # type: ignore[type-arg]
    """A data set with class names, in one of the places they are found."""

    def __init__(self, **names: Any) -> None:
        super().__init__([1, 2, 3])
        for name, value in names.items():
            setattr(self, name, value)


THREE = ("circle", "square", "star")


def run(model: Any, train: Any, val: Any, tmp_path: Path, **settings: Any) -> None:
    trainer, evaluator = Engine(lambda engine, batch: None), Engine(lambda engine, batch: None)
    hooks = [{"type": "NumClassCheckHook", **settings}, {"type": "EvalHook", "save_best": False}]
    attach_hooks(trainer, hooks, evaluators=evaluator, model=model, val_loader=val, work_dir=tmp_path)
    trainer.run(train, max_epochs=2)


@pytest.mark.parametrize(
    "dataset",
    [
        Shapes(classes=THREE),
        Shapes(CLASSES=list(THREE)),
        Shapes(metainfo={"classes": THREE}),
        Shapes(metainfo={"palette": []}, classes=THREE),
        Shapes(classes={"circle": 0, "square": 1, "star": 2}),
        Subset(Shapes(classes=THREE), [0, 1]),
        ConcatDataset([Subset(Shapes(classes=THREE), [0]), Shapes()]),
    ],
)
def test_names_are_found_where_data_sets_have_them(dataset: Any) -> None:
    names, kind = class_names(DataLoader(dataset))
    assert (tuple(names or ()), kind) == (THREE, type(dataset).__name__)


def compiled(model: Any) -> Any:
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize("wrap", [lambda model: model, torch.nn.DataParallel, compiled])
def test_a_model_that_counts_otherwise_is_refused_however_wrapped(wrap: Any, tmp_path: Path) -> None:
    model = wrap(detector(box=80, mask=3))
    with pytest.raises(HookError) as failed:
        run(model, DataLoader(Shapes(classes=THREE)), [1], tmp_path)
    assert str(failed.value.__cause__) == (
        "the train data (Shapes) has 3 classes (circle, square, star), but box (Head) has num_classes 80: "
        "set num_classes, or name what counts something else in 'ignore'"
    )


def test_the_data_of_each_evaluation_is_compared_too(tmp_path: Path) -> None:
    with pytest.raises(HookError, match=r"NumClassCheckHook\.before_val .*the val data .* has 1 class \(circle\)"):
        run(detector(box=3), DataLoader(Shapes(classes=THREE)), DataLoader(Shapes(classes=["circle"])), tmp_path)


def test_all_other_counts_are_found_at_once() -> None:
    model = detector(box=80, rpn_head=1, backbone=VGG(1000), odd="many", switch=True)
    found = dict(counting_modules(model, ["*rpn_head", "VGG"]))
    assert found == {"box (Head)": 80}


class SSDVGG(VGG):
    """As MMDetection has it: a VGG that counts no classes."""


def test_what_is_made_of_an_ignored_class_is_ignored_too(tmp_path: Path) -> None:
    run(detector(box=3, backbone=SSDVGG(-1)), DataLoader(Shapes(classes=THREE)), [1], tmp_path)


def test_what_counts_something_else_is_named_by_pattern(tmp_path: Path) -> None:
    run(detector(box=3, aux_1=7, aux_2=8), DataLoader(Shapes(classes=THREE)), [1], tmp_path, ignore=["aux_*"])


@pytest.mark.parametrize("place", ["classes", "CLASSES"])
def test_text_as_class_names_is_an_error(place: str, tmp_path: Path) -> None:
    with pytest.raises(HookError, match=r"are the text 'person', .*: write \('person',\)"):
        run(detector(box=6), DataLoader(Shapes(**{place: "person"})), [1], tmp_path)


def test_data_without_names_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run(detector(box=6), DataLoader(Shapes(classes=None)), [1], tmp_path)
    assert [record.message for record in caplog.records] == [
        "the train data (Shapes) has no class names to compare the model with",
        "the val data (list) has no class names to compare the model with",
    ]
