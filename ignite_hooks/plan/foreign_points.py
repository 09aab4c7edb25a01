"""The points of other frameworks under their names there, and the nearest point here."""

from __future__ import annotations

from collections.abc import Mapping


def _both(before: str, after: str, *names: str) -> dict[str, str]:
    """Return the names of the beginning and the end of one thing."""
    begins, ends = ("begin", "start", "started"), ("end", "completed")
    found = {f"{name}_{word}": before for name in names for word in begins}
    return found | {f"{name}_{word}": after for name in names for word in ends}


def _evaluation(kind: str, *names: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        found |= _both(f"before_{kind}", f"after_{kind}", name)
        found |= _both(f"before_{kind}_epoch", f"after_{kind}_epoch", f"{name}_epoch")
        found |= _both(
            f"before_{kind}_iter", f"after_{kind}_iter", f"{name}_batch", f"{name}_step", f"{name}_iteration"
        )
    return found


_STARTS_AND_ENDS = {
    **_both("before_run", "after_run", "fit", "run"),
    **_both("before_train", "after_train", "train", "training"),
    **_both("before_epoch", "after_epoch", "epoch"),
    **_both("before_train_epoch", "after_train_epoch", "train_epoch", "training_epoch"),
    **_both("before_train_iter", "after_train_iter", "batch", "step", "iteration", "iter", "train_batch", "train_step"),
    **_both("before_train_iter", "after_train_iter", "train_iteration", "train_iter", "training_step"),
    **_evaluation("val", "val", "validation", "eval", "evaluation"),
    **_evaluation("test", "test", "predict", "prediction"),
}

_ITERATION = ("before_train_iter", "after_train_iter")

FOREIGN_POINTS: Mapping[str, str] = {
    # Keras, Lightning, Transformers, torchtnt, Catalyst.
    **{f"on_{name}": point for name, point in _STARTS_AND_ENDS.items()},
    "on_evaluate": "after_val",
    "on_predict": "after_test",
    "on_save": "after_save_checkpoint",
    "on_save_checkpoint": "before_save_checkpoint",
    "on_load_checkpoint": "after_load_checkpoint",
    "on_keyboard_interrupt": "on_exception",
    "on_error": "on_exception",
    "on_teardown": "cleanup",
    "on_log": "after_train_iter",
    # Ignite's events and Composer's, as methods.
    **{
        name: point
        for name, point in _STARTS_AND_ENDS.items()
        if name.split("_")[0] in ("fit", "epoch", "batch", "iteration", "eval") and name.count("_") == 1
    },
    # MMCV.
    "before_iter": _ITERATION[0],
    "after_iter": _ITERATION[1],
    # fastai.
    "before_fit": "before_run",
    "after_fit": "after_run",
    "before_batch": _ITERATION[0],
    "after_batch": _ITERATION[1],
    "before_validate": "before_val",
    "after_validate": "after_val",
}
"""The nearest point here of the points of other frameworks."""


def is_foreign(name: str) -> bool:
    """Return whether a method has the name of a point of another framework, where alone it would be called.

    Example:
        >>> (
        ...     is_foreign("on_epoch_end"),
        ...     is_foreign("on_anything"),
        ...     is_foreign("before_lunch"),
        ...     is_foreign("on_exception"),
        ... )
        (True, True, False, False)
    """
    return name in FOREIGN_POINTS or (name.startswith("on_") and name != "on_exception")
