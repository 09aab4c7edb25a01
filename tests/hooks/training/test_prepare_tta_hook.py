from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import ConfigError, Runner, attach_hooks

INPUTS = torch.tensor([[1.0, 2.0], [3.0, 5.0]])


class First(torch.nn.Module):
    """Sees the first number of each row alone."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :1] * self.scale


def attached(folder: Path, tta_cfg: Any, model: Any = None, **services: Any) -> tuple[Runner, list[Any], Engine]:
    """Return a runner with a validation and a test, what these see of the model, and the trainer."""
    trainer = Engine(lambda *_: None)
    model, seen = First() if model is None else model, []
    engines = {name: Engine(lambda engine, batch: seen.append(model(batch).tolist())) for name in ("val", "test")}
    runner = attach_hooks(
        trainer,
        [{"type": "PrepareTTAHook", "tta_cfg": tta_cfg}],
        evaluators=engines,
        work_dir=folder,
        model=model,
        val_loader=[INPUTS],
        test_loader=[INPUTS],
        **services,
    )
    return runner, seen, trainer


class Twice:
    """A view of our own: the model asked twice, and a bonus."""

    def __init__(self, module: Any, bonus: float = 0.0) -> None:
        self.module, self.bonus = module, bonus

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x) + self.module(x) + self.bonus


@pytest.mark.parametrize(
    ("tta_cfg", "services", "expected"),
    [
        ({"flips": [[-1]]}, {}, [[1.5], [4.0]]),
        ({"flips": [[0]]}, {}, [[2.0], [2.0]]),
        ({"flips": [[0]], "flip_back": True}, {}, [[1.0], [3.0]]),
        ({"flips": [[-1], [0]]}, {}, [[2.0], [3.0]]),
        (Twice, {}, [[2.0], [6.0]]),
        ({"type": Twice, "bonus": 1.0}, {}, [[3.0], [7.0]]),
        ({"type": "@tta", "bonus": 1.0}, {"tta": Twice}, [[3.0], [7.0]]),
        ("@tta", {"tta": Twice}, [[2.0], [6.0]]),
    ],
    ids=str,
)
def test_a_test_sees_the_views_and_nothing_else_does(
    tta_cfg: Any, services: dict[str, Any], expected: Any, tmp_path: Path
) -> None:
    runner, seen, _trainer = attached(tmp_path, tta_cfg, **services)
    runner.validate()
    runner.test()
    runner.validate()
    assert [seen[0], seen[2]] == [[[1.0], [3.0]]] * 2
    assert seen[1] == [pytest.approx(row) for row in expected]
    assert "forward" not in vars(runner.model)


def test_model_with_its_own_forward_gets_it_back(tmp_path: Path) -> None:
    model = First()
    mine = model.forward = lambda x: x[:, 1:]
    runner, seen, _trainer = attached(tmp_path, {"flips": [[-1]]}, model)
    runner.test()
    assert seen == [[[1.5], [4.0]]]
    assert model.forward is mine


def test_a_test_that_fails_is_undone_too(tmp_path: Path) -> None:
    def broken(model: Any) -> Any:
        return lambda x: model(x) + torch.zeros(7, 7)

    runner, _, _trainer = attached(tmp_path, broken)
    with pytest.raises(RuntimeError, match="size of tensor"):
        runner.test()
    assert runner.model(INPUTS).tolist() == [[1.0], [3.0]]


@pytest.mark.parametrize(
    ("pack", "unpack", "message"),
    [
        (lambda x: {"logits": x}, lambda x: x, "the model returns a dict: give a function that makes and merges views"),
        (lambda x: x, lambda x: x[0], "the model takes a tuple: give a function"),
    ],
)
def test_flips_of_other_than_one_tensor_are_refused_with_remedy(
    pack: Any, unpack: Any, message: str, tmp_path: Path
) -> None:
    class Packed(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return pack(unpack(x))

    trainer, model, takes_tuple = Engine(lambda *_: None), Packed(), "takes" in message
    test = Engine(lambda engine, batch: model((batch,) if takes_tuple else batch))
    hook = {"type": "PrepareTTAHook", "tta_cfg": {"flips": [[-1]]}}
    runner = attach_hooks(
        trainer, [hook], evaluators={"test": test}, work_dir=tmp_path, model=model, test_loader=[INPUTS]
    )
    with pytest.raises(TypeError, match=message):
        runner.test()


def test_what_torch_compile_has_made_sees_the_views_too(tmp_path: Path) -> None:
    model = torch.compile(First(), backend="eager")
    model(INPUTS)
    runner, seen, _trainer = attached(tmp_path, {"flips": [[-1]]}, model)
    for run in (runner.validate, runner.test, runner.validate):
        run()
    assert seen == [[[1.0], [3.0]], [[1.5], [4.0]], [[1.0], [3.0]]]


@pytest.mark.parametrize(
    ("tta_cfg", "message"),
    [
        ({"flips": [-1]}, r"flips is a list of lists of dimensions, as \[\[-1\]\]"),
        ({"flips": []}, "flips is a list of lists"),
        ({"type": "mmseg.SegTTAModel"}, "type is a function or a class, not 'mmseg.SegTTAModel'.*name it '@tta'"),
        ({"flip": [[-1]]}, "unexpected keyword argument 'flip'"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_anything_runs(tta_cfg: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        attached(tmp_path, tta_cfg)
