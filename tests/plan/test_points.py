"""Points, their aliases and events."""

from __future__ import annotations

import pytest
from ignite.engine import Events

from ignite_hooks import BaseHook, ConfigError, attach_hooks
from ignite_hooks.plan.points import ALIASES, CHECKPOINT_POINTS, POINTS, misspelt_points, point_named
from tests.tools import echo_trainer

TABLE = {
    "before_run": ("train", "STARTED", ()),
    "before_train": ("train", "STARTED", ()),
    "before_epoch": ("train", "EPOCH_STARTED", ()),
    "before_train_epoch": ("train", "EPOCH_STARTED", ()),
    "before_train_iter": ("train", "ITERATION_STARTED", ("batch_idx", "data_batch")),
    "after_train_iter": ("train", "ITERATION_COMPLETED", ("batch_idx", "data_batch", "outputs")),
    "after_train_epoch": ("train", "EPOCH_COMPLETED", ()),
    "after_epoch": ("train", "EPOCH_COMPLETED", ()),
    "after_train": ("train", "COMPLETED", ()),
    "after_run": ("train", "COMPLETED", ()),
    **{
        name: (kind, event, payload)
        for kind in ("val", "test")
        for name, event, payload in (
            (f"before_{kind}", "STARTED", ()),
            (f"before_{kind}_epoch", "EPOCH_STARTED", ()),
            (f"before_{kind}_iter", "ITERATION_STARTED", ("batch_idx", "data_batch")),
            (f"after_{kind}_iter", "ITERATION_COMPLETED", ("batch_idx", "data_batch", "outputs")),
            (f"after_{kind}_epoch", "EPOCH_COMPLETED", ()),
            (f"after_{kind}", "COMPLETED", ()),
        )
    },
    "before_save_checkpoint": (None, None, ("checkpoint",)),
    "after_save_checkpoint": (None, None, ("checkpoint", "path")),
    "after_load_checkpoint": (None, None, ("checkpoint", "path")),
    "on_exception": (None, None, ("exception",)),
    "cleanup": (None, None, ()),
}


def test_the_points_their_engines_events_and_payloads() -> None:
    assert {name: (point.kind, point.event, point.payload) for name, point in POINTS.items()} == TABLE
    assert {event for _, event, _ in TABLE.values() if event} <= set(Events.__members__)
    assert set(CHECKPOINT_POINTS) <= POINTS.keys()


def test_base_hook_has_methods_for_points_but_not_for_aliases() -> None:
    assert all(callable(vars(BaseHook)[point]) for point in POINTS)
    assert not any(hasattr(BaseHook, alias) for alias in ALIASES)


@pytest.mark.parametrize(
    ("alias", "point"),
    [
        ("before_training", "before_train"),
        ("after_training", "after_train"),
        ("before_step", "before_train_iter"),
        ("after_step", "after_train_iter"),
        ("before_train_step", "before_train_iter"),
        ("after_train_step", "after_train_iter"),
    ],
)
def test_aliases_are_the_same_point(alias: str, point: str) -> None:
    assert point_named(alias) is POINTS[point]


@pytest.mark.parametrize("name", [*TABLE, "before_lunch", "after_lunch", "lunch"])
def test_after_points_and_the_last_two_are_descending(name: str) -> None:
    descending = name.startswith("after_") or name in ("on_exception", "cleanup")
    assert point_named(name).ascending is not descending


@pytest.mark.parametrize(
    ("method", "meant"),
    [
        ("after_train_itr", "after_train_iter"),
        ("after_tran_iter", "after_train_iter"),
        ("after_trainiter", "after_train_iter"),
        ("before_epochs", "before_epoch"),
        ("Before_epoch", "before_epoch"),
        ("after_val_epcoh", "after_val_epoch"),
        ("befor_run", "before_run"),
        ("before_save_checkpoints", "before_save_checkpoint"),
        ("clean_up", "cleanup"),
        ("on_exceptions", "on_exception"),
        ("before_stepp", "before_step"),
    ],
)
def test_a_slip_names_the_nearest_point(method: str, meant: str) -> None:
    assert misspelt_points([method]) == {method: meant}


@pytest.mark.parametrize(
    "method",
    [
        *TABLE,
        *ALIASES,
        "after_lunch",
        "before_my_epoch",
        "_after_train_itr",
        "reset",
        "state_dict",
        "my_point",
        "after",
    ],
)
def test_custom_points_are_not_misspellings(method: str) -> None:
    assert misspelt_points([method]) == {}


def test_a_misspelt_point_is_refused_when_the_hook_is_registered() -> None:
    class Slip(BaseHook):
        def after_train_itr(self) -> None: ...

    class Plain:
        def after_epoch(self) -> None: ...

        def befor_epoch(self) -> None: ...

    with pytest.raises(ConfigError) as caught:
        attach_hooks(echo_trainer(), [Slip(), Plain()])
    assert [tuple(problem) for problem in caught.value.problems] == [
        ("hooks[0].after_train_itr", "not a point, did you mean 'after_train_iter'?"),
        ("hooks[1].befor_epoch", "not a point, did you mean 'before_epoch'?"),
    ]
    trainer = echo_trainer()
    runner = attach_hooks(trainer, [])
    with pytest.raises(ConfigError, match="did you mean 'after_train_iter'"):
        runner.register_hook(Slip())
