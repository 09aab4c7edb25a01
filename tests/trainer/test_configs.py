"""Every configuration that trains by itself: built, planned, and run for a few iterations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import BaseTrainer, load_config
from ignite_hooks.trainer.commands import DEMO
from ignite_hooks.trainer.dry_run import dry_run_config
from tests.tools import trackers_at

pytest.importorskip("sklearn")

ROOT = Path(__file__).parent.parent.parent
COMPLETE = [path for path in sorted((ROOT / "configs").glob("**/*.yaml")) if "\ndataset:" in path.read_text()]
OF_THE_SPECIFICATION = ("full", "distributed", "profiling")


def test_the_specification_and_every_task_have_a_configuration() -> None:
    names = {path.stem for path in COMPLETE}
    assert names >= {*OF_THE_SPECIFICATION, "classification", "detection", "segmentation", "clearml"}


def listed(content: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield section, place and content of each entry of a hook."""
    for key in ("hooks", "custom_hooks"):
        for place, entry in enumerate(content.get(key) or []):
            yield key, place, entry if isinstance(entry, dict) else {"type": entry}


@pytest.mark.slow
@pytest.mark.parametrize("path", [*COMPLETE, DEMO], ids=lambda path: path.stem)
def test_it_is_built_planned_and_run_unchanged(path: Path, tmp_path: Path) -> None:
    content = load_config(path)
    hooks = {entry["type"]: (f"{key}.{place}", entry) for key, place, entry in listed(content)}
    # A profiler that waits until after the end of the run would be an error.
    schedule = hooks["ProfilerHook"][1]["schedule"] if "ProfilerHook" in hooks else {"wait": 0, "warmup": 1}
    length = schedule["wait"] + schedule["warmup"] + 1
    short = ["training.epochs=1", f"training.epoch_length={length}", "training.batch_size=32"]
    short += ["dataset.count=60"] if content["dataset"]["type"].startswith("digits_") else []
    # The demo, as a command, exports to every format.
    short += [f"{hooks['ExportHook'][0]}.formats=[safetensors]"] if path == DEMO else []
    with trackers_at(tmp_path):
        trainer = BaseTrainer(path, work_dir=tmp_path / "run", overrides=short)
        assert all(name in str(trainer.runner.plan) for name in trainer.runner.hooks)
        metrics = trainer.train()
    assert trainer.trainer.state.iteration == length
    assert trainer.runner.report().failures == {}
    assert any(name.startswith("val_") for name in metrics)
    assert any(name.startswith("test_") for name in metrics)


@pytest.mark.slow
@pytest.mark.parametrize("path", [ROOT / "configs" / "full.yaml", DEMO], ids=lambda path: path.stem)
def test_all_its_hooks_act_in_a_dry_run(path: Path, tmp_path: Path) -> None:
    content = dry_run_config(load_config(path), evaluates=True)
    content["training"]["batch_size"] = 16
    with trackers_at(tmp_path):
        trainer = BaseTrainer(content, work_dir=tmp_path / "run")
        trainer.train()
    report = trainer.runner.report()
    assert report.failures == {}
    called = {row["hook"] for row in report.rows()}
    assert [name for name in trainer.runner.hooks if name not in called] == []
