"""Checks of every hook of ours: files, promises, documentation, configurations, and runs that match their plans."""

from __future__ import annotations

import importlib
import importlib.util
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.metrics import Loss

from ignite_hooks import HOOKS, BaseHook, attach_hooks
from ignite_hooks.config.describe import describe
from ignite_hooks.hooks.base_hook import COMMON_SETTINGS
from ignite_hooks.plan.points import POINTS
from ignite_hooks.plan.schedule import SCHEDULE_WORDS
from ignite_hooks.plan.simulate import Step
from ignite_hooks.testing import RecordingHook, check_hook, tiny_run
from tests.conftest import EVERYTHING
from tests.tools import trackers_at

pytestmark = pytest.mark.usefixtures("few_objects")

ROOT = Path(__file__).parent.parent
CONFIGS = sorted((ROOT / "configs").glob("**/*.yaml"))
# Those that also name model and data are tested beside the trainer.
OF_HOOKS = [path for path in CONFIGS if "\ndataset:" not in path.read_text()]
NAMES = list(HOOKS)

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("CheckInvalidLossHook", {"interval": 1, "keys": ["loss"], "save_batch": True}),
    ("CheckInvalidLossHook", {"action": "skip"}),
    ("CheckpointHook", {"by_epoch": False, "interval": 2, "max_keep_ckpts": 1, "best_metric": "loss"}),
    (
        "DetVisualizationHook",
        {"interval": 2, "extract": lambda *given: as_boxes(*given), "palette": ["red", "#00ff00"]},
    ),
    ("EarlyStoppingHook", {"monitor": "accuracy", "restore_best_weights": False}),
    ("EMAHook", {"interval": 2, "update_buffers": True, "evaluate": "raw"}),
    ("EMAHook", {"overlap": True, "evaluate": "both", "accumulate": 2, "begin_iter": 2, "warm_up": 0}),
    ("DeterminismHook", {"seed": None, "interval": 1, "warn_only": True}),
    ("EmptyCacheHook", {"before_epoch": True, "after_iter": True}),
    ("EvalHook", {"interval": 5}),
    ("EvalHook", {"every": "2 iter", "efficient_test": True}),
    ("GradientFlowHook", {"frequency": 5, "layers": ["*"]}),
    ("FeatureMapHook", {"frequency": 3, "save": False}),
    ("HistoryPlotHook", {"interval": 1, "metrics": ["loss", "val_loss"]}),
    ("IterTimerHook", {"interval": 2, "log_eta": False}),
    ("IterTimerHook", {"every": "1 epoch", "phases": False}),
    ("LRFinderHook", {"num_iter": 10, "apply": True}),
    ("LambdaHook", {"after_epoch": lambda epoch: None}),
    ("LoggerHook", {"interval": 2, "by_epoch": False, "ignore_last": False}),
    ("MemoryProfilerHook", {"interval": 1, "warn_threshold": 0.001, "dump_snapshot_on_oom": True}),
    ("ProfilerHook", {"schedule": {"wait": 1, "active": 1, "repeat": 2}, "export_tensorboard": False}),
    ("ParamSchedulerHook", {"by_epoch": False, "scheduler": []}),
    ("SyncRandomSizeHook", {"by_epoch": False, "interval": 2, "resize": lambda batch, size: batch}),
    ("PruningHook", {"monitor": "loss", "report": dict}),
    ("ReportHook", {"interval": 1, "max_share": 1.0, "pictures": 0}),
    ("SWAHook", {"start_epoch": 0, "swa_lr": 0.01, "annealing_epochs": 1}),
    ("SystemMonitorHook", {"frequency": 1, "interval": 0.01}),
    ("ThroughputHook", {"interval": 2, "peak_tflops": 1.0}),
    ("TimeTrackingHook", {"frequency": 2, "log_path": "times/all.log"}),
    ("SegVisualizationHook", {"every": "1 epoch", "extract": lambda *given: as_masks(*given), "show_edge": False}),
    ("YOLOXLrUpdaterHook", {"num_last_epochs": 1, "by_epoch": False, "warmup_iters": 1, "min_lr": 0.01}),
    ("YOLOXModeSwitchHook", {"num_last_epochs": 1, "skip_type_keys": ["Mosaic"]}),
    ("VisualizationHook", {"interval": 1, "extract": lambda *given: as_images(*given), "order": "worst"}),
]
"""What hooks are checked with besides their defaults."""


def as_images(batch: Any, outputs: Any) -> dict[str, Any]:
    """Return the vectors of the tiny run as images of 2 x 2, with made-up scores."""
    x, y = batch
    return {"images": x.view(-1, 1, 2, 2), "target": y, "prediction": x[:, :3], "inputs": x}


def as_boxes(batch: Any, outputs: Any) -> dict[str, Any]:
    """Return empty boxes."""
    return {
        "images": batch[0].view(-1, 1, 2, 2),
        "target": [torch.zeros(0, 4)] * 8,
        "prediction": [torch.zeros(0, 4)] * 8,
    }


def as_masks(batch: Any, outputs: Any) -> dict[str, Any]:
    """Return masks of the signs of the pixels."""
    x = batch[0].view(-1, 1, 2, 2)
    return {"images": x, "target": x[:, 0] > 0, "prediction": x}


class Asks:
    """A trial that is never pruned."""

    def report(self, value: float, step: int) -> None:
        pass

    def should_prune(self) -> bool:
        return False


def weak_augmentation(sample: Any) -> Any:
    return sample


NEEDED: dict[str, dict[str, Any]] = {
    "ExportHook": {"formats": ["pth"]},
    "FreezeHook": {"patterns": ["bias"], "unfreeze_epoch": 1},
    "GradClipHook": {"max_norm": 0.1},
    "NotifyHook": {"command": ["true"]},
    "PipelineSwitchHook": {"switch_epoch": 1, "switch_pipeline": weak_augmentation},
    "PrepareTTAHook": {"tta_cfg": {"flips": [[-1]]}},
    "PruningHook": {"monitor": "accuracy"},
    "TimeLimitHook": {"limit": "1 day"},
}
"""The settings of hooks that cannot do without."""


def services_for(name: str) -> dict[str, Any]:
    """Return the services that a hook or its configuration needs and the tiny run does not have."""
    if name == "PipelineSwitchHook":
        return {"weak_augmentation": weak_augmentation}
    if name == "PruningHook":
        return {"trial": Asks()}
    if name == "LambdaHook":
        return {"show_progress": lambda epoch: None}
    if name != "MeanTeacherHook":
        return {}
    teacher = torch.nn.Linear(4, 3).requires_grad_(False)
    return {"model": torch.nn.ModuleDict({"student": torch.nn.Linear(4, 3), "teacher": teacher})}


@pytest.fixture(autouse=True, scope="module")
def _trackers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let trackers work offline in one folder, with one database for all tests."""
    with trackers_at(tmp_path_factory.mktemp("trackers")):
        yield


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Import what check_hook and many hooks would: the first of them would collect its garbage in vain, many times."""
    for module in ("matplotlib.figure", "matplotlib.backends.backend_agg", "torch._subclasses.fake_tensor"):
        importlib.import_module(module)


@pytest.fixture
def cls(name: str) -> Any:
    """Return the class of this name, if it is ours and not an alias."""
    found: Any = HOOKS.get(name)
    if not found.__module__.startswith("ignite_hooks."):
        pytest.skip("registered by another test")
    if found.__name__ != name:
        pytest.skip(f"another name of {found.__name__}")
    return found


PACKAGES = {"ClearMLHook": "clearml", "MLflowHook": "mlflow", "WandbHook": "wandb"}


def needs_its_own_environment(name: str) -> None:
    """Skip where a hook needs what collides with our versions, or an extra that is not installed."""
    if name in ("TrackioHook", "trackio_hook"):
        pytest.importorskip("trackio", reason="Trackio is not installed: make trackio")
    package = PACKAGES.get(name)
    if package is not None and EVERYTHING not in os.environ and importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}: pip install -e '.[dev]'")


def snake(name: str) -> str:
    for word in ("TensorBoard", "MLflow", "ClearML"):
        name = name.replace(word, word.capitalize())
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def test_names_of_files_follow_from_names_of_classes() -> None:
    assert snake("CheckpointHook") == "checkpoint_hook"
    assert snake("EMAHook") == "ema_hook"
    assert snake("DistSamplerSeedHook") == "dist_sampler_seed_hook"
    assert snake("MLflowHook") == "mlflow_hook"


# -- every hook ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_one_name_leads_to_five_places(name: str, cls: Any) -> None:
    folder, _, module = cls.__module__.rpartition(".")
    home = Path(*folder.split("."))
    places = [ROOT / home / f"{module}.py", ROOT / "tests" / home.relative_to("ignite_hooks") / f"test_{module}.py"]
    found = [path for path in CONFIGS if path.stem == snake(name)]
    places += found or [ROOT / "configs" / f"{snake(name)}.yaml"]
    assert re.search(rf"type: {name}\b", places[-1].read_text() if places[-1].exists() else f"type: {name}")
    assert [str(place) for place in places if not place.exists()] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_keeps_the_promises_of_every_hook(name: str, cls: Any) -> None:
    needs_its_own_environment(name)
    check_hook(cls, services_for(name), **NEEDED.get(name, {}))


@pytest.mark.parametrize(
    ("name", "settings"), VARIANTS, ids=lambda value: value if isinstance(value, str) else ", ".join(value)
)
def test_it_keeps_them_with_other_settings_too(name: str, cls: Any, settings: dict[str, Any]) -> None:
    check_hook(cls, services_for(name), **NEEDED.get(name, {}) | settings)


@pytest.mark.parametrize("name", NAMES)
def test_every_hook_documents_its_purpose_and_its_settings(name: str, cls: Any) -> None:
    described = describe(cls)
    assert described.purpose.endswith("."), "the docstring begins with a sentence"
    by_itself = set(COMMON_SETTINGS) - set(SCHEDULE_WORDS)
    assert [s.name for s in described.settings if not s.help and s.name not in by_itself] == []


# -- every configuration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", OF_HOOKS, ids=lambda path: path.stem)
def test_every_configuration_is_built_planned_and_run(path: Path, tmp_path: Path) -> None:
    needs_its_own_environment(path.stem)
    # The window of a profile has to come.
    batches = 11 if "type: ProfilerHook" in path.read_text() else 2
    run = tiny_run(batches=batches)
    evaluators = {} if "EvalHook" in path.read_text() else {"val": run.evaluator}
    services = run.services | next(
        (found for name in NAMES if snake(name) == path.stem and (found := services_for(name))), {}
    )
    if path.stem == "gan":
        services |= {"model": {"g": run.model, "d": torch.nn.Linear(1, 1)}, "optimizer": {"g": run.optimizer}}
        Loss(run.criterion).attach(run.evaluator, "distance")
    runner = attach_hooks(run.trainer, path, evaluators=evaluators, work_dir=tmp_path, **services)
    assert len(runner.plan) > 0
    assert all(name in str(runner.plan) for name in runner.hooks)
    run.trainer.run(run.data, max_epochs=2)
    assert run.trainer.state.iteration == 2 * batches
    assert runner.report().failures == {}
    assert list(tmp_path.rglob("*.spool")) == [], "a tracker could not be given everything"


def test_there_are_configurations() -> None:
    assert CONFIGS


# -- what is planned happens -----------------------------------------------------------------------------------


class EveryThird(BaseHook):
    """Decides by itself, and is seen by the recorders at the points it leads to."""

    def should_trigger(self, step: int) -> bool:
        return step % 3 == 0

    def after_train_iter(self, runner: Any) -> None:
        runner.call_hook("before_save_checkpoint", checkpoint={})

    def leads_to(self, method: str, simulation: Any) -> tuple[str, ...]:
        return ("before_save_checkpoint",)


def assert_it_happens_as_planned(hooks: list[dict[str, Any]], recorders: list[dict[str, Any]], tmp_path: Path) -> None:
    """Check every call of the recorders against the plan: hook, point and iteration, in order."""
    run = tiny_run(batches=3, val_batches=2)
    log: list[tuple[str, str, int, int]] = []
    seen = [RecordingHook(log=log, **settings) for settings in recorders]
    services = run.services | {"test_loader": run.val_data}
    # Hooks stand among the recorders, so that ties of priority matter.
    mixed = [thing for pair in zip([*hooks, *[None] * len(seen)], [*seen, *[None] * len(hooks)]) for thing in pair]  # noqa: B905
    given = [thing for thing in mixed if thing is not None]
    runner = attach_hooks(run.trainer, given, work_dir=tmp_path, **services)
    names = [settings["name"] for settings in recorders]
    planned = [step for step in runner.plan.timeline(2, 3, 2) if step.hook in names]
    run.trainer.run(run.data, max_epochs=2)
    happened = [Step(point, name, epoch, iteration) for name, point, epoch, iteration in log]
    assert happened == planned
    assert {step.hook for step in happened} == set(names)


RECORDERS: list[dict[str, Any]] = [{"name": "a"}, {"name": "b", "priority": 10}, {"name": "c", "priority": "LOWEST"}]
EVAL: dict[str, Any] = {"type": "EvalHook"}
CHECKPOINT: dict[str, Any] = {"type": "CheckpointHook", "save_best": False, "async_save": False}
CASES: dict[str, list[dict[str, Any]]] = {
    "nothing else": [],
    "evaluation every epoch": [EVAL],
    "evaluation every second epoch": [EVAL | {"interval": 2}],
    "evaluation by iteration": [EVAL | {"by_epoch": False, "interval": 2}],
    "evaluation by iteration, with a rest": [EVAL | {"by_epoch": False, "interval": 4}],
    "evaluation from the second epoch on": [EVAL | {"start": 2}],
    "evaluation that never begins": [EVAL | {"start": 3}],
    "evaluation only at the end": [EVAL | {"interval": 5}],
    "evaluation by another word": [EVAL | {"every": "2 iter"}],
    "a test": [EVAL | {"name": "test", "save_best": False}],
    "a test beside the evaluation": [EVAL, EVAL | {"name": "test", "interval": 2, "save_best": False}],
    "the evaluation beside a test": [EVAL | {"name": "test", "save_best": False}, EVAL | {"interval": 5}],
    "checkpoints every epoch": [CHECKPOINT],
    "checkpoints every second epoch, none at the end": [CHECKPOINT | {"interval": 2, "save_last": False}],
    "checkpoints by iteration": [CHECKPOINT | {"by_epoch": False, "interval": 2, "start": 1}],
    "checkpoints and evaluation": [CHECKPOINT | {"every": "2 iter"}, EVAL],
    "evaluation and checkpoints at one iteration": [EVAL | {"every": "3 iter"}, CHECKPOINT | {"every": "3 iter"}],
    "a hook that decides by itself": [{"type": EveryThird}],
    "all of ours": [EVAL, CHECKPOINT, {"type": "LoggerHook"}, {"type": "IterTimerHook"}, {"type": "RuntimeInfoHook"}],
}


def test_background_checkpoints_happen_as_planned_and_all_are_reported(tmp_path: Path) -> None:
    points = [point for point in POINTS if point != "after_save_checkpoint"]
    hook = {"type": "CheckpointHook", "save_best": False, "every": "2 iter"}
    assert_it_happens_as_planned([EVAL, hook], [{"name": "a", "points": points}], tmp_path / "one")
    run, log = tiny_run(batches=3), []
    heard = RecordingHook(log=log, name="a", points=["after_save_checkpoint"])
    attach_hooks(run.trainer, [hook, heard], work_dir=tmp_path / "two", **run.services)
    run.trainer.run(run.data, max_epochs=2)
    assert len(log) == 4, "iterations 2, 4 and 6, and the last"


@pytest.mark.parametrize("hooks", [pytest.param(hooks, id=name) for name, hooks in CASES.items()])
def test_a_run_happens_as_planned(hooks: list[dict[str, Any]], tmp_path: Path) -> None:
    assert_it_happens_as_planned(hooks, RECORDERS, tmp_path)


SCHEDULES: list[dict[str, Any]] = [
    {"interval": 2},
    {"interval": 2, "start": 1},
    {"interval": 2, "begin": 5},
    {"interval": 4, "start": 2},
    {"frequency": 3},
    {"every": "2 iter"},
    {"every": "2 epoch"},
    {"by_epoch": True},
    {"by_epoch": True, "interval": 2},
    {"by_epoch": True, "interval": 2, "start": 1},
    {"by_epoch": False, "start": 6},
    {"start": 7},
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_schedules_happen_as_planned(schedule: dict[str, Any], tmp_path: Path) -> None:
    assert_it_happens_as_planned([EVAL], [{"name": "scheduled", **schedule}, {"name": "always"}], tmp_path)


@pytest.mark.parametrize("schedule", [{}, {"interval": 2}, {"by_epoch": True, "interval": 2}], ids=str)
def test_hooks_of_epochs_alone_happen_as_planned(schedule: dict[str, Any], tmp_path: Path) -> None:
    points = ["before_run", "before_epoch", "after_train_epoch", "after_val_epoch", "after_epoch"]
    assert_it_happens_as_planned([EVAL], [{"name": "of epochs", "points": points, **schedule}], tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_any_mixture_happens_as_planned(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    ours: list[dict[str, Any]] = [EVAL | {"save_best": False}, CHECKPOINT, {"type": EveryThird}, {"type": "LoggerHook"}]
    hooks = [
        {**hook, "priority": draw.randrange(101), **({} if hook["type"] is EveryThird else draw.choice(SCHEDULES))}
        for hook in draw.sample(ours, draw.randint(1, 4))
    ]
    hooks = [{word: value for word, value in hook.items() if understands(hook["type"], word)} for hook in hooks]
    recorders: list[dict[str, Any]] = [
        {
            "name": name,
            "priority": draw.choice([10, 50, 50, 90, {"after_train_iter": 5, "before_val": 80}]),
            "points": ["before_run", *draw.sample(list(POINTS), 8)],
            **draw.choice([{}, *SCHEDULES]),
        }
        for name in ("a", "b", "c")
    ]
    assert_it_happens_as_planned(
        hooks,
        [recorder | {"priority": understood_priority(recorder)} for recorder in recorders],
        tmp_path,
    )


def understands(type_: Any, word: str) -> bool:
    described = describe(HOOKS.get(type_) if isinstance(type_, str) else type_)
    return word == "type" or word in {setting.name for setting in (*described.settings, *described.common)}


def understood_priority(recorder: dict[str, Any]) -> Any:
    """A mapping names only points that the hook answers."""
    priority = recorder["priority"]
    if not isinstance(priority, dict):
        return priority
    return {point: value for point, value in priority.items() if point in recorder["points"]}
