"""`fitting.py`: names of a file find their names in a model, whoever has written the file."""

from __future__ import annotations

import pytest

from ignite_hooks.model.fitting import Fit, Shape, fit

HERE: dict[str, Shape] = {"body.weight": (3, 4), "body.bias": (3,), "head.weight": (2, 3)}


@pytest.mark.parametrize(
    ("off", "on"),
    [("", ""), ("module.", ""), ("model.", ""), ("_orig_mod.model.", ""), ("a.b.", "")],
)
def test_a_prefix_of_the_file_is_taken_off(off: str, on: str) -> None:
    found = fit({off + name: shape for name, shape in HERE.items()}, HERE)
    assert found == Fit({name: off + name for name in HERE})
    assert found.is_whole
    assert found.rows() == []


def test_a_prefix_of_the_model_is_put_before_names() -> None:
    found = fit({"weight": (3, 4), "bias": (3,)}, HERE)
    assert found.loaded == {"body.weight": "weight", "body.bias": "bias"}
    assert found.missing == ("head.weight",)


def test_a_wrapper_in_the_middle_of_a_name_is_seen_through() -> None:
    assert fit({"body.module.weight": (3, 4)}, HERE).loaded == {"body.weight": "body.module.weight"}


def test_a_head_of_another_size_is_skipped_and_told_with_both_shapes() -> None:
    found = fit({**HERE, "head.weight": (1000, 3), "extra": ()}, HERE)
    assert set(found.loaded) == {"body.weight", "body.bias"}
    assert found.other_shape == {"head.weight": ((1000, 3), (2, 3))}
    assert found.unexpected == ("extra",)
    assert [row["is"] for row in found.rows()] == [
        "1000 x 3 in the file and 2 x 3 here, stays as it was",
        "only in the file, left out",
    ]


def test_names_are_changed_by_the_longest_beginning_that_the_user_gives() -> None:
    found = fit({"x.weight": (3, 4), "x.y.bias": (3,)}, HERE, {"x.": "body.", "x.y.": "body."})
    assert found.loaded == {"body.weight": "x.weight", "body.bias": "x.y.bias"}


def test_nothing_is_loaded_twice_or_under_a_name_that_is_not_here() -> None:
    found = fit({"module.body.bias": (3,), "body.bias": (3,), "other": (9,)}, HERE)
    assert found.loaded == {"body.bias": "body.bias"}
    assert found.unexpected == ("module.body.bias", "other")
