"""`outline.py`: the settings of a class from its source are those of the class."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_hooks.config.describe import describe
from ignite_hooks.config.outline import UNREAD, outline
from ignite_hooks.registry import Registry
from ignite_hooks.trainer.registries import CRITERIA, DATASETS, METRICS, MODELS, OPTIMIZERS, SCHEDULERS

EVERY = [
    pytest.param(registry, name, id=f"{registry.kind} {name}")
    for registry in (CRITERIA, DATASETS, METRICS, MODELS, OPTIMIZERS, SCHEDULERS)
    for name in registry
]


@pytest.mark.parametrize(("registry", "name"), EVERY)
def test_the_outline_has_the_settings_of_the_class(registry: Registry, name: str) -> None:
    where = registry.source_of(name)
    assert where is not None
    made = outline(*where)
    assert made is not None
    real, read = describe(registry.get(name)), describe(made)
    assert [setting.name for setting in read.settings] == [setting.name for setting in real.settings]
    assert read.closed == real.closed
    # Torch puts the docstrings of its optimizers together when it is loaded.
    assert registry is OPTIMIZERS or read.purpose == real.purpose
    for ours, theirs in zip(read.settings, real.settings, strict=True):
        assert ours.required == theirs.required
        assert ours.default in (UNREAD, theirs.default)


def test_nothing_of_the_source_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "grim_package.py").write_text("1 / 0\n\ndef make(size: int = 3, how: open('x', 'w') = exit()): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    made = outline("grim_package", "make")
    assert made is not None
    assert [(setting.name, setting.default) for setting in describe(made).settings] == [("size", 3), ("how", UNREAD)]
    assert [path.name for path in tmp_path.iterdir()] == ["grim_package.py"]


def test_classes_that_import_each_other_in_a_ring_are_not_found_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ring_a.py").write_text("from ring_b import *\nclass A(A): ...\n")
    (tmp_path / "ring_b.py").write_text("from ring_a import *\nfrom ring_a import B\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert outline("ring_a", "A") is None
    assert outline("ring_a", "B") is None
