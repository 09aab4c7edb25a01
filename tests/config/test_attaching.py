"""What ``attach_hooks`` takes besides a configuration, and where its files go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from ignite_hooks import BaseHook, ConfigError, attach_hooks
from ignite_hooks.testing import tiny_run
from tests.config.tools import attach, problems, state_of
from tests.tools import echo_trainer

pytestmark = pytest.mark.usefixtures("_elsewhere")


@pytest.mark.parametrize("trainer", [None, 3, "a.yaml", Engine, lambda: None])
def test_only_an_engine_can_have_hooks(trainer: Any) -> None:
    with pytest.raises(TypeError, match="attach_hooks needs an Ignite Engine to attach to, not "):
        attach_hooks(trainer, [])


@pytest.mark.parametrize("evaluators", [3, "val", [echo_trainer()], True])
def test_evaluators_are_an_engine_or_a_mapping(evaluators: Any) -> None:
    with pytest.raises(TypeError, match="evaluators is an Ignite Engine or a mapping of names to these, not "):
        attach([], evaluators=evaluators)


def test_what_is_wrong_with_evaluators() -> None:
    trainer, other = echo_trainer(), echo_trainer()
    assert problems([], trainer=trainer, evaluators=trainer) == [
        ("evaluators.val", "is the trainer: pass a separate engine to evaluate with")
    ]
    assert problems([], evaluators={"a": other, "b": other, "c": 3, 4: echo_trainer(), "d e": echo_trainer()}) == [
        ("evaluators.a", "is the engine of another name too: pass a separate engine for each name"),
        ("evaluators.b", "is the engine of another name too: pass a separate engine for each name"),
        ("evaluators.c", "an Ignite Engine is needed, not int"),
        ("evaluators[4]", "a name of letters, digits and _ is needed, not 4"),
        ("evaluators['d e']", "a name of letters, digits and _ is needed, not 'd e'"),
    ]
    assert list(attach([], evaluators={}).evaluators) == []
    assert list(attach([], evaluators=other).evaluators) == ["val"]


@pytest.mark.parametrize("name", ["runner", "experiment_dir", "checkpoints_dir", "logs_dir", "visualization_dir"])
def test_a_service_of_ours_cannot_be_given(name: str) -> None:
    assert problems([], **{name: 3}) == [(name, "is a service of every run: choose another name")]


def test_any_other_service_can_be_given() -> None:
    runner = attach([], mlflow="m", config={"mine": 1}, model=None)
    assert runner.get_service("mlflow") == "m"
    assert runner.get_service("config") == {"mine": 1}


def test_attaching_twice_is_refused_and_changes_nothing() -> None:
    tiny = tiny_run()
    trainer, evaluator, data = tiny.trainer, tiny.evaluator, tiny.data
    runner = attach_hooks(trainer, ["LambdaHook"], evaluators=evaluator)
    before = state_of(trainer), state_of(evaluator)
    with pytest.raises(ConfigError, match=r"the trainer already has hooks attached: pass replace=True to attach_hooks"):
        attach_hooks(trainer, ["LoggerHook"])
    assert (state_of(trainer), state_of(evaluator)) == before
    other = echo_trainer()
    untouched = state_of(other)
    with pytest.raises(ConfigError, match="the evaluator 'val' already has hooks attached"):
        attach_hooks(other, [], evaluators=evaluator)
    assert state_of(other) == untouched
    assert state_of(evaluator) == before[1]
    trainer.run(data, max_epochs=1)
    runner.detach()
    attach_hooks(trainer, [], evaluators=evaluator)


def test_a_failure_while_attaching_leaves_everything_as_it_was(tmp_path: Path) -> None:
    class Adds(BaseHook):
        def attached(self) -> None:
            self.runner.trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: None)

    class Fails(BaseHook):
        def attached(self) -> None:
            raise RuntimeError("no")

    tiny = tiny_run()
    trainer, evaluator, data = tiny.trainer, tiny.evaluator, tiny.data
    before = state_of(trainer), state_of(evaluator)
    with pytest.raises(RuntimeError, match="no"):
        attach_hooks(trainer, [Adds(), Fails()], evaluators=evaluator)
    assert (state_of(trainer), state_of(evaluator)) == before
    assert list(tmp_path.iterdir()) == []
    runner = attach_hooks(trainer, ["LambdaHook"], evaluators=evaluator)
    trainer.run(data, max_epochs=1)
    runner.detach()
    assert {event for event, entries in trainer._event_handlers.items() if entries} == before[0]["handlers"].keys()


def test_the_seed_of_the_configuration_is_set() -> None:
    attach({"hooks": [], "seed": 7})
    first = torch.rand(3)
    attach({"hooks": [], "seed": 7})
    assert torch.equal(torch.rand(3), first)
    attach({"hooks": [], "seed": 8})
    assert not torch.equal(torch.rand(3), first)


# -- where files go -----------------------------------------------------------------------------------------------


def folder(cfg: Any = (), **given: Any) -> str:
    runner = attach(cfg, **given)
    runner.detach()
    return str(runner.work_dir.relative_to(Path.cwd()).as_posix())


def test_the_work_directory_is_numbered(tmp_path: Path) -> None:
    assert folder() == "work_dirs/run"
    (tmp_path / "work_dirs" / "run").mkdir(parents=True)
    assert folder() == "work_dirs/run-2"
    (tmp_path / "work_dirs" / "run-2").mkdir()
    (tmp_path / "work_dirs" / "run-9").mkdir()
    for other in ("run-x", "run-", "run-03", "run-\u00b2", "running-20", "run-1.5"):
        (tmp_path / "work_dirs" / other).mkdir()
    assert folder() == "work_dirs/run-10"
    assert folder(resume=True) == folder(resume="auto") == folder({"hooks": [], "resume": "auto"}) == "work_dirs/run-9"
    assert folder({"hooks": [], "resume": True}, resume=False) == "work_dirs/run-10"


@pytest.mark.parametrize("name", ["mine.yaml", "v[1]*.yaml", "a.b.yaml"])
def test_the_work_directory_has_the_name_of_the_file(tmp_path: Path, name: str) -> None:
    stem = name.removesuffix(".yaml")
    (tmp_path / name).write_text("hooks: []")
    assert folder(name) == folder(name, resume=True) == f"work_dirs/{stem}"
    (tmp_path / "work_dirs" / stem).mkdir(parents=True)
    (tmp_path / "work_dirs" / f"{stem}-2").mkdir()
    assert folder(name) == f"work_dirs/{stem}-3"
    assert folder(tmp_path / name, resume=True) == f"work_dirs/{stem}-2"


def test_the_argument_goes_before_the_configuration() -> None:
    assert folder({"hooks": [], "work_dir": "a"}) == "a"
    assert folder({"hooks": [], "experiment_dir": "b"}) == "b"
    assert folder({"hooks": [], "work_dir": Path("b"), "experiment_dir": "b"}) == "b"
    assert folder({"hooks": [], "work_dir": "a"}, work_dir="c") == folder(work_dir=Path("c")) == "c"


def test_two_trainers_in_turns_have_a_folder_each() -> None:
    runs = [tiny_run() for _ in range(2)]
    runners = [attach_hooks(run.trainer, ["CheckpointHook"], **run.services) for run in runs]
    for run in runs:
        run.trainer.run(run.data, max_epochs=1)
    for run in runs:
        run.trainer.run(run.data, max_epochs=2)
    for run, runner in zip(runs, runners, strict=True):
        saved = torch.load(runner.work_dir / "last.pth", weights_only=True)["state_dict"]
        assert all(torch.equal(saved[name], value) for name, value in run.model.state_dict().items())
        assert not list(runner.work_dir.glob("earlier-*"))
    assert [runner.work_dir.name for runner in runners] == ["run", "run-2"]


def test_an_unused_folder_goes_at_detach(tmp_path: Path) -> None:
    runner = attach(None, evaluating=True)
    other = attach({"hooks": ["CheckpointHook"], "writers": [{"type": "JsonlWriter", "path": "x.jsonl"}]})
    assert runner.work_dir.is_dir()
    assert other.work_dir.is_dir()
    runner.detach()
    other.detach()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("cfg", "given"),
    [
        ({"hoks": []}, {}),
        ([{"type": "CheckpointHook", "intervall": 3}], {}),
        ({"hooks": [], "writers": ["NoWriter"]}, {}),
        ([], {"evaluators": {"val": 3}}),
    ],
)
def test_a_refused_configuration_makes_no_folder(cfg: Any, given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        attach(cfg, **given)
    assert list(tmp_path.iterdir()) == []


def test_a_trainer_that_has_hooks_gets_no_second_folder(tmp_path: Path) -> None:
    run = tiny_run()
    runner = attach_hooks(run.trainer, [])
    with pytest.raises(ConfigError, match="already has hooks attached"):
        attach_hooks(run.trainer, [])
    assert [path.name for path in (tmp_path / "work_dirs").iterdir()] == [runner.work_dir.name]


def test_a_replaced_attachment_hands_its_unused_folder_on() -> None:
    run, other = tiny_run(), tiny_run()
    attach_hooks(run.trainer, ["CheckpointHook"], **run.services)
    beside = attach_hooks(other.trainer, [])
    for _ in range(2):
        runner = attach_hooks(run.trainer, ["CheckpointHook"], replace=True, **run.services)
        assert (runner.work_dir.name, beside.work_dir.name) == ("run", "run-2")
        assert runner.work_dir.is_dir()
    run.trainer.run(run.data, max_epochs=1)
    again = attach_hooks(run.trainer, ["CheckpointHook"], replace=True, **run.services)
    assert again.work_dir.name == "run-3"


def test_a_replaced_attachment_that_was_interrupted_is_resumed_in_its_folder() -> None:
    run = tiny_run()
    first = attach_hooks(run.trainer, [{"type": "CheckpointHook", "by_epoch": False}], **run.services)
    run.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2), lambda: run.trainer.interrupt())
    run.trainer.run(run.data, max_epochs=2)
    second = attach_hooks(run.trainer, ["CheckpointHook"], replace=True, resume="auto", **run.services)
    assert second.work_dir == first.work_dir


@pytest.mark.parametrize("by_argument", [True, False])
def test_a_tilde_in_the_work_directory_is_the_home(
    by_argument: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    runner = attach([], work_dir="~/mine") if by_argument else attach({"hooks": [], "work_dir": "~/mine"})
    assert runner.work_dir == tmp_path / "mine"


@pytest.mark.parametrize("resume", [3, "", " ", ["auto"]])
def test_the_argument_resume_is_checked_too(resume: Any) -> None:
    [(place, message)] = problems([], resume=resume)
    assert (place, message) == (
        "resume",
        f"true, false, 'auto', 'required' or the path of a checkpoint is needed, not {resume!r}",
    )
