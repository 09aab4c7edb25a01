"""`settings_digest.py`: settings that can be stored and compared, without showing texts."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, ClassVar

from ignite_hooks.plan.settings_digest import comparable_settings, fields_of, settings_of_hooks


class Colour(enum.IntEnum):
    RED = 1


@dataclasses.dataclass
class Settings:
    count: int = 3
    share: float | None = None
    key: str = "a secret"
    colour: Colour = Colour.RED
    steps: tuple[int, ...] = (1, 2)
    function: Any = len
    mixed: tuple[Any, ...] = (1, len)
    state: list[int] = dataclasses.field(init=False, default_factory=list)


def test_numbers_stay_and_texts_become_digests() -> None:
    found = comparable_settings(Settings())
    assert found.keys() == {"count", "share", "key", "colour", "steps"}
    assert (found["count"], found["share"], found["steps"]) == (3, None, [1, 2])
    assert found["key"].startswith("text ")
    assert "secret" not in found["key"]
    assert found["colour"].startswith("text ")
    assert comparable_settings(Settings(key="another"))["key"] != found["key"]


def test_a_hook_that_is_no_dataclass_has_its_configuration() -> None:
    hook = type("Mine", (), {"config": {"count": 3, "function": len}})()
    assert settings_of_hooks({"mine": hook, "other": object()}) == {"mine": {"count": 3}, "other": {}}


def test_fields_are_found_though_the_class_is_no_dataclass_for_others() -> None:
    from ignite_hooks.hooks.base_hook import BaseHook, settings

    @settings
    class Parent(BaseHook):
        interval: int = 3
        kind: ClassVar[str] = "x"

    assert not dataclasses.is_dataclass(Parent)
    assert [field.name for field in fields_of(Parent) or ()] == ["interval"]

    @settings
    class Child(Parent):
        loud: bool = False

    assert not dataclasses.is_dataclass(Parent)
    assert [field.name for field in fields_of(Child) or ()] == ["interval", "loud"]
    assert Child(interval=5, loud=True).given == {"interval", "loud"}

    @dataclasses.dataclass(kw_only=True)
    class Plain(Parent):
        soft: bool = False

    assert [field.name for field in fields_of(Plain) or ()] == ["interval", "soft"]
    assert (Plain(interval=7).interval, Plain().soft) == (7, False)
    assert fields_of(BaseHook) is None


def test_a_setting_that_follows_from_something_else_is_not_compared() -> None:
    hook = Settings()
    hook.derived_settings = ("count",)  # type: ignore[attr-defined]
    assert comparable_settings(hook).keys() == {"share", "key", "colour", "steps"}
