"""`python.py`: annotations that are evaluated late, by what Python 3.14 documents; where it is, by itself."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from pathlib import Path
from typing import Any, ForwardRef

import pytest

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.config.describe import describe
from ignite_hooks.hooks.base_hook import settings
from ignite_hooks.system import python
from tests import warm
from tests.tools import echo_trainer

REAL = inspect.signature


class Fields(BaseHook):
    """A hook with a name that only type checkers import.

    Args:
        often: A setting that can be checked.
        other: One whose type is unknown here.
    """

    often: int = 3
    other: Later | None = None  # type: ignore[name-defined]  # noqa: F821

    def after_train_epoch(self, runner: Later, epoch: Later) -> None:  # type: ignore[name-defined]  # noqa: F821
        runner.logger.info("epoch %d", epoch)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behave as Python 3.14 where a file has no ``from __future__ import annotations``."""
    if python.annotationlib is not None:
        return

    def signature(function: Any, *, annotation_format: Any = None, **more: Any) -> inspect.Signature:
        if annotation_format != "FORWARDREF" and "Later" in str(getattr(function, "__annotations__", "")):
            raise NameError("name 'Later' is not defined")
        return REAL(function, **more)

    def get_annotations(thing: Any, *, format: Any) -> dict[str, Any]:
        assert format == "FORWARDREF"
        found = {}
        for name, text in vars(thing).get("__annotations__", {}).items() if isinstance(thing, type) else ():
            found[name] = list[ForwardRef(text)] if "Later" in str(text) else text  # type: ignore[misc]
        return found

    library = types.SimpleNamespace(Format=types.SimpleNamespace(FORWARDREF="FORWARDREF"))
    library.get_annotations = get_annotations
    monkeypatch.setattr(python, "annotationlib", library)
    monkeypatch.setattr(inspect, "signature", signature)


@pytest.mark.usefixtures("late")
def test_a_method_may_be_annotated_with_a_name_for_type_checkers(caplog: pytest.LogCaptureFixture) -> None:
    class Mine(Fields):
        pass

    trainer = echo_trainer()
    with caplog.at_level("INFO", logger="ignite_hooks"):
        attach_hooks(trainer, [Mine()])
        trainer.run([1.0], max_epochs=2)
    assert {"epoch 0", "epoch 1"} <= set(caplog.messages)


@pytest.mark.usefixtures("late")
def test_a_setting_may_be_annotated_with_a_name_for_type_checkers() -> None:
    made: Any = settings(type("Made", (Fields,), {**vars(Fields), "__module__": __name__}))
    found = {one.name: one.annotation for one in describe(made).settings}
    assert found["other"] is Any
    assert made(often=2, other=[1]).often == 2


@pytest.mark.parametrize(
    ("annotation", "known"),
    [
        (int, True),
        (ForwardRef("Later"), False),
        (list[ForwardRef("Later")], False),  # type: ignore[misc]
        (dict[str, int] | None, True),
    ],
    ids=str,
)
def test_annotations_with_unknown_names_are_known_for_that(annotation: Any, known: bool) -> None:
    assert python.is_known(annotation) is known


LATE = """
from typing import TYPE_CHECKING
from ignite.engine import Engine
from ignite_hooks import BaseHook, attach_hooks, settings

if TYPE_CHECKING:
    from ignite_hooks import Runner

@settings
class Mine(BaseHook):
    often: int = 3
    other: "Runner | None" = None
    those: list[Runner] | None = None

    def after_epoch(self, runner: Runner, epoch: Runner) -> None:
        print("epoch", epoch)

class Plain(BaseHook):
    def __init__(self, thing: Runner = None, **more) -> None:
        super().__init__(**more)

    def after_train_iter(self, runner: Runner) -> Runner:
        print("iteration", runner.global_step)

trainer = Engine(lambda engine, batch: batch)
attach_hooks(trainer, [Mine(often=2), {"type": Plain}], default_hooks={})
trainer.run([1.0], max_epochs=2)
"""


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated late from Python 3.14 on")
def test_python_itself_evaluates_them_late(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    done = warm.run([sys.executable, str(tmp_path / "late.py")], capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if line.startswith("epoch")] == ["epoch 0", "epoch 1"], done


class Several:
    """Methods of all kinds of parameters."""

    def plain(self, runner: Any, loss: float = 0.5) -> None: ...
    def apart(self, runner: Any, /, *more: Any, every: int = 1, needed: Any, **others: Any) -> None: ...
    def alone(self) -> None: ...
    def gathered(*everything: Any) -> None: ...  # type: ignore[misc]
    @classmethod
    def of_class(cls, runner: Any = None) -> None: ...
    @staticmethod
    def of_none(runner: Any, *, late: Any = None) -> None: ...
    @functools.wraps(plain)
    def wrapped(self, *given: Any) -> None: ...
    def __call__(self, batch: Any) -> None: ...


def signed(first: Any, *more: Any) -> None: ...


signed.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
METHODS = {name: getattr(Several(), name) for name in vars(Several) if not name.startswith("__")}
FUNCTIONS = {
    **METHODS,
    **{f"Several.{name}": getattr(Several, name) for name in METHODS},
    "signed": signed,
    "an object": Several(),
    "a class": Fields,
    "a part": functools.partial(Several().plain, loss=1.0),
    "by C": len,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_are_those_that_inspect_finds(name: str) -> None:
    expected = inspect.signature(FUNCTIONS[name]).parameters.values()
    found = python.parameters_of(FUNCTIONS[name])
    assert found == tuple((one.name, one.kind, one.default) for one in expected)
