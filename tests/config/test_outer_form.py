"""Whatever holds a configuration means the same, and nothing in it is dropped without a word."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest
from ignite.engine import Engine

from ignite_hooks import BaseHook, CheckpointHook, ConfigError, LoggerHook, add_arguments, attach_hooks
from ignite_hooks.config.outer_form import as_content, as_mapping, unread
from ignite_hooks.config.read import default_set
from tests.config.tools import attach, problems

hydra: Any = pytest.importorskip("hydra")
OmegaConf: Any = pytest.importorskip("omegaconf").OmegaConf
pytestmark = pytest.mark.usefixtures("_elsewhere")


@dataclasses.dataclass
class Settings:
    hooks: list[Any] = dataclasses.field(default_factory=lambda: [{"type": "LoggerHook", "interval": 3}])
    lr: float = 0.1
    seed: int | None = None


class Model(pydantic.BaseModel):
    hooks: list[dict[str, Any]] = [{"type": "LoggerHook", "interval": 3}]
    lr: float = 0.1


ENTRY = {"type": "LoggerHook", "interval": 3}


@pytest.mark.parametrize(
    "make",
    [
        lambda: ENTRY,
        lambda: {"type": LoggerHook, "interval": 3},
        lambda: [ENTRY],
        lambda: {"hooks": [ENTRY]},
        lambda: {"hooks": [SimpleNamespace(**ENTRY)]},
        lambda: Settings(),
        lambda: Model(),
        lambda: argparse.Namespace(hooks=[ENTRY], lr=0.1),
        lambda: SimpleNamespace(hooks=[ENTRY]),
        lambda: OmegaConf.create(ENTRY),
        lambda: OmegaConf.create([ENTRY]),
        lambda: OmegaConf.structured(Settings()),
        lambda: OmegaConf.create({"hooks": "${mine}", "mine": [ENTRY]}),
        lambda: {"hooks": OmegaConf.create([ENTRY])},
    ],
)
def test_every_form_of_one_hook_attaches_exactly_this_hook(make: Callable[[], Any]) -> None:
    runner = attach(make())
    assert list(runner.hooks) == ["LoggerHook"]
    assert runner.hooks["LoggerHook"].interval == 3


FILE = "hooks: [{type: LoggerHook, interval: 3}]\nwork_dir: of_file\nresume: auto\nlr: 0.3\n"


@pytest.mark.parametrize(
    ("options", "own", "content"),
    [
        ([], [], {"work_dir": None, "resume": None}),
        (["--hooks", "f.yaml"], [], {"work_dir": "of_file", "resume": "auto", "lr": 0.3, "interval": 3}),
        (["--hooks", "f.yaml", "--work-dir", "b"], [], {"work_dir": "b", "resume": "auto", "lr": 0.3, "interval": 3}),
        (
            ["--hooks", "f.yaml", "--resume", "--set", "hooks.0.interval=5", "--set", "seed=7"],
            [],
            {"work_dir": "of_file", "resume": "auto", "lr": 0.3, "interval": 5, "seed": 7},
        ),
        (["--set", "hooks=[EMAHook]"], ["--lr"], {"work_dir": None, "resume": None, "lr": None, "hooks": ["EMAHook"]}),
        # Options of the script stay its own.
        (
            ["--hooks", "f.yaml", "--lr", "1"],
            ["--lr"],
            {"work_dir": "of_file", "resume": "auto", "lr": "1", "interval": 3},
        ),
        (["--work-dir", "own", "--set", "x"], ["--set", "--work-dir"], {"work_dir": "own", "resume": None, "set": "x"}),
    ],
)
def test_a_script_gets_options_for_its_hooks(options: list[str], own: list[str], content: dict[str, Any]) -> None:
    Path("f.yaml").write_text(FILE)
    parser = argparse.ArgumentParser()
    for option in own:
        parser.add_argument(option)
    add_arguments(parser)
    wrong: list[Any] = []
    found = as_content(parser.parse_args(options), {}, wrong)
    if "interval" in content:
        found["interval"] = found.pop("hooks")[0]["interval"]
    assert (found, wrong) == (content, [])


def test_what_is_wrong_with_an_option_is_said_where_hooks_are_attached() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["--set", "hooks.0.interval=5", "--work-dir", "a"])
    with pytest.raises(ConfigError, match=r"--set hooks.0.interval"):
        attach(args)


FILES = {
    "a.yaml": "type: LoggerHook\ninterval: 3\n",
    "a.json": '{"type": "LoggerHook", "interval": 3}',
    "a.toml": 'type = "LoggerHook"\ninterval = 3\n',
    "a.py": "type = 'LoggerHook'\ninterval = 3\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_one_hook_is_a_list_of_one(name: str) -> None:
    Path(name).write_text(FILES[name])
    runner = attach(name)
    assert list(runner.hooks) == ["LoggerHook"]
    assert runner.hooks["LoggerHook"].interval == 3


@pytest.mark.parametrize(
    ("cfg", "expected"),
    [
        ({"type": "LogerHook"}, [("hooks[0].type", "no hook is called 'LogerHook', did you mean 'LoggerHook'?")]),
        (
            {"type": "EMAHook", "hooks": []},
            [("type", "names a hook beside 'hooks': put this hook into the list")],
        ),
        (
            {"logger": {"interval": 3}},
            [("logger", "a default hook is changed below 'default_hooks': write default_hooks: {logger: ...}")],
        ),
        (
            {"checkpoint": {"type": "CheckpointHook", "interval": 3}, "lr": 0.1},
            [("checkpoint", "a default hook is changed below 'default_hooks': write default_hooks: {checkpoint: ...}")],
        ),
        (
            {"timer": BaseHook()},
            [("timer", "a default hook is changed below 'default_hooks': write default_hooks: {timer: ...}")],
        ),
    ],
)
def test_a_hook_in_the_wrong_place_is_an_error(cfg: Any, expected: list[tuple[str, str]]) -> None:
    assert problems(cfg) == expected


@pytest.mark.parametrize(
    "cfg",
    [
        {"type": "resnet50", "depth": 3},
        {"logger": {"level": "INFO"}},
        {"checkpoint": {"path": "a.pth"}},
        {"checkpoint": None, "eval": {}, "logger": "wandb"},
        {"logger": {"interval": 3}, "seed": 3},
    ],
)
def test_what_only_resembles_a_hook_is_the_scripts(cfg: dict[str, Any]) -> None:
    found: list[Any] = []
    assert as_content(cfg, default_set(evaluates=True), found) == cfg
    assert found == []


def test_a_hook_object_is_never_taken_for_settings() -> None:
    hook = LoggerHook()
    assert as_mapping(hook) is hook
    assert as_mapping(LoggerHook) is LoggerHook


def test_only_what_is_ours_in_omegaconf_must_be_resolvable() -> None:
    content = {
        "hooks": [{"type": "LoggerHook", "interval": "${n}"}],
        "n": 3,
        "lr": "???",
        "folder": "${hydra:runtime.cwd}",
        "deep": {"names": {0: "person"}, "lost": "${nothing.here}", "n": "${n}"},
    }
    runner = attach(OmegaConf.create(content))
    assert runner.hooks["LoggerHook"].interval == 3
    config = runner.get_service("config")
    assert (config["lr"], config["folder"]) == ("???", "${hydra:runtime.cwd}")
    assert config["deep"]["names"] == {0: "person"}


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"hooks": "???"}, "hooks"),
        ({"hooks": [{"type": "LoggerHook", "interval": "???"}]}, "hooks"),
        ({"lr": "???", "seed": "${nothing}"}, "seed"),
    ],
)
def test_what_is_ours_and_cannot_be_resolved_is_an_error(content: Any, place: str) -> None:
    [(found, message)] = problems(OmegaConf.create(content))
    assert found == place
    assert message.startswith("OmegaConf cannot resolve this configuration: ")


HYDRA = {
    "hooks": [
        {"_target_": "ignite_hooks.LoggerHook", "interval": 3, "name": "mine"},
        {"_target_": "ignite_hooks.CheckpointHook"},
    ]
}


@pytest.mark.parametrize(
    "make",
    [
        lambda: hydra.utils.instantiate(OmegaConf.create(HYDRA).hooks),
        lambda: hydra.utils.instantiate(OmegaConf.create(HYDRA)),
        lambda: {"hooks": hydra.utils.instantiate(OmegaConf.create(HYDRA).hooks)},
        lambda: hydra.utils.instantiate(OmegaConf.create(HYDRA).hooks, _convert_="all"),
    ],
)
def test_hooks_that_hydra_makes_are_attached_as_they_are(make: Callable[[], Any]) -> None:
    runner = attach(make())
    assert list(runner.hooks) == ["mine", "CheckpointHook"]
    assert runner.hooks["mine"].interval == 3
    assert runner.hooks["CheckpointHook"].given == frozenset()


def test_no_hook_of_ours_is_a_configuration_for_omegaconf() -> None:
    [kept] = OmegaConf.create([CheckpointHook()], flags={"allow_objects": True})
    assert type(kept) is CheckpointHook


@pytest.mark.parametrize(
    ("content", "places"),
    [
        ({"train": {"custom_hooks": [{"type": "EMAHok"}]}}, ["train.custom_hooks"]),
        ({"train": {"ignite_hooks": {"default_hooks": {"logger": None}}}}, ["train.ignite_hooks.default_hooks"]),
        ({"a": {"hooks": ["EMAHook"]}, "hooks": []}, ["a.hooks"]),
        ({"git": {"hooks": ["pre-commit"]}, "b": {"hooks": [{"type": "webhook"}], "custom_hooks": None}}, []),
        ({"hooks": [{"type": "EMAHook", "custom_hooks": ["EMAHook"]}]}, []),
    ],
)
def test_hooks_below_keys_of_the_script_are_found(content: dict[str, Any], places: list[str]) -> None:
    assert list(unread(content)) == places


def test_hooks_below_keys_of_the_script_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cfg = {"hooks": [], "train": {"custom_hooks": ["EMAHook"]}}
    attach_hooks(Engine(lambda engine, batch: None), cfg, work_dir=tmp_path)
    assert (
        caplog.text.count("train.custom_hooks is not read, as it is not at the top: move it there, or pass only") == 1
    )
