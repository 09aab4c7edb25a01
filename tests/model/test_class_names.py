"""The names of classes are those of a service, or of the data set in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ignite.engine import Engine
from torch.utils.data import DataLoader

from ignite_hooks import attach_hooks
from ignite_hooks.model.class_names import class_names, class_names_of


class Words(list[int]):
    """A data set with names."""

    def __init__(self, **places: Any) -> None:
        super().__init__([0, 1])
        vars(self).update(places)


@pytest.mark.parametrize(
    "places", [{"classes": ("a", "b")}, {"CLASSES": ["a", "b"]}, {"metainfo": {"classes": ["a", "b"]}}]
)
def test_a_data_set_may_name_its_classes_in_several_places(places: Any) -> None:
    assert class_names(DataLoader(Words(**places))) == (["a", "b"], "Words")


@pytest.mark.parametrize(("service", "found"), [(["x", "y"], ["x", "y"]), (None, ["a", "b"])])
def test_a_service_goes_before_the_data_set(service: Any, found: list[str], tmp_path: Path) -> None:
    trainer = Engine(lambda *_: None)
    services = {} if service is None else {"class_names": service}
    runner = attach_hooks(trainer, [], work_dir=tmp_path, **services)
    assert class_names_of(runner) == service
    trainer.run(DataLoader(Words(classes=("a", "b"))), max_epochs=1)
    assert class_names_of(runner) == found
