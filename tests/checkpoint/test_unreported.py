"""`unreported.py`: files that hooks have yet to be told of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ignite_hooks.checkpoint.unreported import Unreported

FOLDER = Path("run")
LISTED: Any = [SimpleNamespace(name=name) for name in ("a.pth", "b.pth", "c.pth")]


def all_but_the_newest(entries: list[Any]) -> list[Any]:
    return entries[:-1]


def test_a_file_stays_until_it_is_reported_and_goes_then() -> None:
    unreported = Unreported()
    told, waiting = SimpleNamespace(path=FOLDER / "a.pth"), SimpleNamespace(path=FOLDER / "b.pth")
    unreported.files += [told, waiting]
    rule = unreported.spare(all_but_the_newest, FOLDER)
    unreported.files.remove(told)
    assert [entry.name for entry in rule(LISTED)] == ["a.pth"]
    assert unreported.spared() == []
    unreported.files.remove(waiting)
    assert unreported.spared() == [(FOLDER, all_but_the_newest)]
    assert unreported.spared() == []


def test_a_file_of_the_same_name_elsewhere_is_another_file() -> None:
    unreported = Unreported()
    unreported.files.append(SimpleNamespace(path=Path("other") / "a.pth"))
    rule = unreported.spare(all_but_the_newest, FOLDER)
    assert [entry.name for entry in rule(LISTED)] == ["a.pth", "b.pth"]
    unreported.files.clear()
    assert unreported.spared() == []
