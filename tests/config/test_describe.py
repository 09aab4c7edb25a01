"""A class is described by its fields or its constructor, and by its docstring."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
import torch
from annotated_types import Ge, Le

from ignite_hooks.config.describe import describe, type_in_words
from ignite_hooks.registry import HOOKS
from tests.config.styles import Config, Data, Fields, None_, Own, Plain, WithMore


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "a whole number"),
        (type(None), "null"),
        (int | float | None, "a whole number, a number or null"),
        (Literal["a"], "'a'"),
        (list[int] | None, "a list of whole numbers or null"),
        (torch.Tensor, "Tensor"),
        (Any, "anything"),
        (Annotated[float, Ge(0), Le(1)], "a number of at least 0 and at most 1"),
        (dict[str, bool], "a mapping of names to true or false"),
    ],
)
def test_a_type_in_words(annotation: Any, words: str) -> None:
    assert type_in_words(annotation) == words


EVERY_HOOK = {"name", "priority", "on_error"}
SCHEDULE = {"interval", "frequency", "by_epoch", "start", "begin", "every"}


@pytest.mark.parametrize(
    ("cls", "style", "closed", "own", "common"),
    [
        (Fields, "settings", True, ["interval", "mode", "size", "must"], SCHEDULE - {"interval"}),
        (Config, "config", False, [], SCHEDULE),
        (Own, "keywords", True, ["interval", "mode"], SCHEDULE - {"interval"}),
        (None_, "keywords", False, [], SCHEDULE),
        (Plain, "keywords", True, [], SCHEDULE),
        (Data, "keywords", True, ["count"], SCHEDULE),
        (WithMore, "keywords", True, ["more"], SCHEDULE),
        (dict, "keywords", False, [], SCHEDULE),
    ],
)
def test_the_settings_of_each_style_of_class(
    cls: Any, style: str, closed: bool, own: list[str], common: set[str]
) -> None:
    known = describe(cls)
    assert (known.style, known.closed) == (style, closed)
    assert [setting.name for setting in known.settings] == own
    assert {setting.name for setting in known.common} == EVERY_HOOK | common


def test_the_docstring_gives_purpose_help_and_notes() -> None:
    known = describe(Fields)
    helps = {setting.name: setting.help for setting in known.settings}
    assert known.purpose == "Does things in two lines."
    assert (helps["interval"], helps["mode"], helps["size"]) == ("How often.", "Which way it goes.", "")
    assert (known.reads, known.writes, known.saves) == ("model", "things", "")
    assert known.points == ("after_train_iter",)
    assert [setting.name for setting in known.settings if setting.required] == ["must"]


def test_every_setting_of_every_hook_has_help() -> None:
    for name in HOOKS._modules:
        for setting in describe(HOOKS.get(name)).settings:
            assert setting.help or setting.name in ("priority", "on_error"), f"{name}.{setting.name}"
