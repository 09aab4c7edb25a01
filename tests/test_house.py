"""What the package promises those who read it: counted by `house.py`, which `make check` runs too."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from ignite_hooks.run.state import RunState
from tests.house import count, goals, rings

ROOT = Path(__file__).parents[1]


def test_the_house_keeps_its_goals() -> None:
    assert [words for reached, words in goals(count(ROOT), ROOT) if not reached] == []


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": set()}, []),
        ({"a": {"b"}, "b": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"b", "a"}, "d": {"a"}}, [["a", "b", "c"]]),
    ],
)
def test_rings_are_found(graph: dict[str, set[str]], found: list[list[str]]) -> None:
    assert rings(graph, list(graph)) == found


def test_each_fault_is_counted(tmp_path: Path) -> None:
    package = tmp_path / "ignite_hooks"
    for folder in ("", "run", "plan"):
        (package / folder).mkdir(exist_ok=True)
        (package / folder / "__init__.py").write_text("")
    methods = "".join(f"    def m{n}(self):\n        x = 1\n        return x\n" for n in range(26))
    (package / "run" / "runner.py").write_text(f"class Rich:\n{methods}")
    (package / "plan" / "long.py").write_text("from ignite_hooks.run.runner import Rich\n" + "x = 1\n" * 351)
    (package / "plan" / "a.py").write_text('import ignite_hooks.plan.b\ndef f():\n    """What it is."""\n')
    (package / "plan" / "b.py").write_text("import ignite_hooks.plan.a\n")
    (tmp_path / "README.md").write_text("\n" * 171)
    reached = [done for done, _ in goals(count(tmp_path), tmp_path)]
    assert reached == [True, True, False, False, False, False, False, False, False]


def test_only_engine_and_checkpoint_assign_the_state_of_a_run() -> None:
    fields = {field.name for field in dataclasses.fields(RunState)}
    others = []
    for path in (ROOT / "ignite_hooks").rglob("*.py"):
        place = path.relative_to(ROOT / "ignite_hooks")
        if place.parts[0] in ("engine", "checkpoint"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in fields:
                others += [f"{place}:{node.lineno}"] if ast.unparse(node.value).endswith("state") else []
    assert others == []
