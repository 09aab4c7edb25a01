"""The configuration of a run and that of its task."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks import BaseTrainer, attach_hooks, load_config
from ignite_hooks.cli.app import main
from ignite_hooks.cli.validate import review_file
from ignite_hooks.config.connected.connect import (
    Connected,
    already_connected,
    connected_with_task,
    taken_from,
    text_in,
    views_of,
)
from ignite_hooks.config.connected.parameters import parameters_of
from ignite_hooks.config.connected.yaml_text import read_text
from ignite_hooks.config.overrides import with_overrides
from ignite_hooks.errors import Problem
from ignite_hooks.secrets import Masks
from ignite_hooks.testing import tiny_run
from ignite_hooks.writers.trackers.clearml_task import Recorded
from tests import warm
from tests.faults.tools import until
from tests.tools import trackers_at
from tests.writers.trackers.clearml_server import ClearMLServer, clearml_server

CONFIG = """# digits, small
model: {type: mlp, hidden: [8]}
dataset: {type: digits}
training: {epochs: 1, batch_size: 512, seed: 0, optimizer: {type: Adam, lr: 0.01}}  # lr found by hand
hooks:
  - {type: CheckpointHook, save_best: false}
  - {type: EMAHook, momentum: 0.9}  # averaged
  - {type: ClearMLHook, project: digits}
tracker: {api_key: "k-1234567890"}
"""
SECRET = "k-1234567890"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "digits.yaml"
    path.write_text(CONFIG)
    return path


def connected(content: dict[str, Any], **more: Any) -> Connected:
    return connected_with_task(content, [], is_checked=bool, **more)


def test_by_hand_the_text_is_shown_as_written_without_secrets(file: Path) -> None:
    found = connected(load_config(file), text=text_in(file))
    assert found == load_config(file)
    assert found.views is not None
    assert found.views.text == CONFIG.replace(f'"{SECRET}"', '"***"')
    assert found.views.parameters["Training/optimizer/lr"] == "0.01"
    assert found.views.parameters["Tracker/api_key"] == '"***"'
    assert SECRET not in str(found.views)
    by_set = with_overrides(load_config(file), ["training.optimizer.lr=0.5"], [])
    assert connected(by_set, text=text_in(file)).views == views_of(
        Masks(by_set).tree(by_set), CONFIG.replace("0.01", "0.5")
    )


def test_only_the_keys_that_are_asked_for_are_connected(file: Path) -> None:
    found = connected(load_config(file), keys=("hooks",))
    assert found.views is not None
    assert read_text(found.views.base, "") == {"hooks": load_config(file)["hooks"]}


@pytest.mark.parametrize("setting", [{"connect": False}, {"mode": "disabled"}, {"mode": "offline"}])
def test_a_configuration_that_no_task_shows_is_left_alone(
    setting: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARML_TASK_ID", "of nobody")
    for content in ({"hooks": [{"type": "ClearMLHook", **setting}]}, {"hooks": ["EMAHook"]}, {}):
        assert connected(content) == content
        assert connected(content).views is None


def recorded(**edits: str) -> Recorded:
    content = read_text(CONFIG, "")
    views = views_of(Masks(content).tree(content), CONFIG)
    names = {name.replace("__", "/"): value for name, value in edits.items()}
    return Recorded(views.text, views.base, {**views.parameters, **names})


def test_what_a_task_says_is_trained_and_written_back() -> None:
    own, problems = read_text(CONFIG, ""), list[Problem]()
    content, views = taken_from(recorded(Training__optimizer__lr="0.5"), own, problems, is_checked=bool)
    assert problems == []
    own["training"]["optimizer"]["lr"] = 0.5
    assert content == own
    assert views.text == CONFIG.replace("0.01", "0.5").replace(f'"{SECRET}"', '"***"')
    assert views.parameters["Training/optimizer/lr"] == "0.5"
    # A clone of the clone says the same, and nothing in it counts as edited.
    again, _ = taken_from(Recorded(views.text, views.base, dict(views.parameters)), own, problems, is_checked=bool)
    assert again == own


def test_the_text_of_the_task_wins_over_another_file() -> None:
    own = read_text(CONFIG.replace("0.01", "0.9"), "")
    assert taken_from(recorded(), own, [], is_checked=bool)[0]["training"]["optimizer"]["lr"] == 0.01


def test_what_is_not_asked_for_stays_in_the_task() -> None:
    own = {"hooks": read_text(CONFIG, "")["hooks"]}
    edits = recorded(Hooks__EMAHook__momentum="0.6", Training__epochs="9")
    content, views = taken_from(edits, own, [], keys=("hooks",), is_checked=bool)
    assert content.keys() == {"hooks"}
    assert content["hooks"][1]["momentum"] == 0.6
    assert "epochs: 1" in views.text


def test_a_secret_of_a_variable_is_trained_and_written_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IGNITE_HOOKS_SECRET_TRACKER_API_KEY", "k-0987654321")
    own, problems = read_text(CONFIG, ""), list[Problem]()
    del own["tracker"]
    content, views = taken_from(recorded(), own, problems, is_checked=bool)
    assert problems == []
    assert content["tracker"] == {"api_key": "k-0987654321"}
    assert "k-0987654321" not in str(views)


def test_a_task_without_a_record_gets_that_of_the_file() -> None:
    own = read_text(CONFIG, "")
    content, views = taken_from(Recorded(None, None, {"Training/epochs": "4"}), own, [], text=CONFIG, is_checked=bool)
    assert content["training"]["epochs"] == 4
    assert "# averaged" in views.text


def test_parameters_of_removed_entries_are_removed() -> None:
    before = recorded()
    assert before.text is not None
    text = before.text.replace("  - {type: EMAHook, momentum: 0.9}  # averaged\n", "")
    _, views = taken_from(before._replace(text=text), read_text(CONFIG, ""), [], is_checked=bool)
    assert views.stale == ["Hooks/EMAHook/momentum", "Hooks/EMAHook/type"]


@pytest.mark.parametrize("text", ["[", "3", "hooks: 1\nhooks: 2"])
def test_a_text_that_cannot_be_read_is_a_problem_of_the_task(text: str) -> None:
    problems: list[Problem] = []
    taken_from(recorded()._replace(text=text), read_text(CONFIG, ""), problems, is_checked=bool)
    assert "the task's configuration 'ignite_hooks'" in str(problems[0])


def test_a_script_connects_its_whole_file_once(file: Path, tmp_path: Path) -> None:
    content = load_config(file, connect=True)
    assert content == load_config(file)
    assert already_connected(file) is content
    assert already_connected(tmp_path / "other.yaml") is None
    assert already_connected(content) is content


def test_attach_hooks_shows_what_load_config_connected(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("hooks: [{type: ClearMLHook, mode: online}]\nwidth: 3\n")
    run = tiny_run()
    content = load_config(path, connect=True)
    for cfg in (content, path):
        runner = attach_hooks(run.trainer, cfg, work_dir=tmp_path / "run", replace=True, **run.services)
        assert runner.connected is not None
        assert runner.connected.parameters["Run/width"] == "3"
        runner.detach()
    runner = attach_hooks(run.trainer, dict(content), work_dir=tmp_path / "run", replace=True, **run.services)
    assert runner.connected is not None
    assert "Run/width" not in runner.connected.parameters


def test_under_an_agent_the_values_of_the_file_are_never_trained_instead(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("clearml")
    monkeypatch.setattr("ignite_hooks.writers.trackers.probe.answers", lambda *_: False)
    monkeypatch.setenv("CLEARML_TASK_ID", "of nobody")
    with pytest.raises(ConnectionError, match="cannot be read, so nothing is trained"):
        BaseTrainer(file, work_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# -- a task, its clone and the real SDK ------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ClearMLServer]:
    pytest.importorskip("clearml")
    with trackers_at(tmp_path), clearml_server() as server:
        for which in ("API", "FILES", "WEB"):
            monkeypatch.setenv(f"CLEARML_{which}_HOST", server.url)
        monkeypatch.setenv("CLEARML_API_ACCESS_KEY", "a")
        monkeypatch.setenv("CLEARML_API_SECRET_KEY", "b")
        yield server


TRAINS = """
import sys
import torch
from ignite_hooks.trainer import commands
from ignite_hooks.writers.trackers.tracker_writer import TrackerWriter

torch.set_num_threads(1)
begin = TrackerWriter.__init__
def patiently(self, kind, mode, work_dir, deadline, *more):
    begin(self, kind, mode, work_dir, 240.0, *more)
TrackerWriter.__init__ = patiently
sys.exit(commands.train(sys.argv[1], resume=None, overrides=sys.argv[3:], work_dir=sys.argv[2], dry_run=False))
"""


ABORTED = TRAINS.replace(
    "sys.exit",
    """
import time
from ignite_hooks import BaseHook, HOOKS

@HOOKS.register_module()
class Waits(BaseHook):
    def after_train_iter(self, runner):
        if runner.global_step == 2:
            until = time.monotonic() + 90
            while runner.stop_reason is None and time.monotonic() < until:
                time.sleep(0.01)

sys.exit""",
)


def trained(
    file: Path, folder: Path, *overrides: str, task: str | None = None, code: int = 0, script: str = TRAINS
) -> str:
    """Train in a process, as an agent does for a task."""
    mine = ("PROC_MASTER", "OFFLINE_MODE", "CLEARML_TASK_ID")
    environment = {name: value for name, value in os.environ.items() if not any(word in name for word in mine)}
    environment |= {"CLEARML_TASK_ID": task, "CLEARML_LOG_TASK_TO_BACKEND": "0"} if task else {}
    command = [sys.executable, "-W", "ignore", "-c", script, str(file), str(folder), *overrides]
    done = warm.run(command, also=warm.TRACKERS, capture_output=True, text=True, env=environment, timeout=500)
    assert done.returncode == code, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


def weights(folder: Path) -> dict[str, Any]:
    saved = torch.load(folder / "last.pth", weights_only=True)
    return {**saved["state_dict"], **{f"ema {name}": value for name, value in saved["ema_state_dict"].items()}}


def set_parameter(task: dict[str, Any], name: str, value: str) -> None:
    section, _, key = name.partition("/")
    task["hyperparams"][section][key]["value"] = value


@pytest.mark.parametrize("task", ["", "of nobody"])
@pytest.mark.parametrize("words", [("validate",), ("explain",), ("train", "--dry-run")], ids=" ".join)
def test_looking_at_a_configuration_makes_no_task(
    words: tuple[str, ...], task: str, server: ClearMLServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARML_TASK_ID", task)
    command, *more = words
    assert main([command, str(file), *more]) == 0
    assert server.asked == 0


@pytest.mark.slow
def test_an_edited_clone_trains_what_its_page_says(server: ClearMLServer, file: Path, tmp_path: Path) -> None:
    trained(file, tmp_path / "first")
    [first] = server.tasks
    assert "# lr found by hand" in server.tasks[first]["configuration"]["ignite_hooks"]["value"]
    artifacts = {one["key"]: one["uri"] for one in server.tasks[first]["execution"]["artifacts"]}
    kept = (tmp_path / "first" / "config.yaml").read_bytes()
    assert server.uploads[artifacts["config"].removeprefix(server.url)] == kept
    assert SECRET.encode() not in server.received

    clone = server.clone(first)
    task = server.tasks[clone]
    set_parameter(task, "Training/optimizer/lr", "0.05")
    text = task["configuration"]["ignite_hooks"]
    text["value"] = text["value"].replace("momentum: 0.9", "momentum: 0.6")
    said = trained(file, tmp_path / "clone", "training.optimizer.lr=0.9", task=clone)
    assert "Training/optimizer/lr: 0.9 -> 0.05; Hooks/EMAHook/momentum: 0.9 -> 0.6" in said

    clone_folder = tmp_path / "clone" / clone
    by_hand = [f"hooks.{i}" for i in range(3)]
    values = ["training.optimizer.lr=0.05", f"{by_hand[1]}.momentum=0.6", f"{by_hand[2]}.mode=disabled"]
    trained(file, tmp_path / "by hand", *values)
    assert all(map(torch.equal, weights(clone_folder).values(), weights(tmp_path / "by hand").values()))
    assert not all(map(torch.equal, weights(clone_folder).values(), weights(tmp_path / "first").values()))

    configuration = server.tasks[clone]["configuration"]
    expected = read_text(CONFIG.replace("lr: 0.01", "lr: 0.05").replace("momentum: 0.9", "momentum: 0.6"), "")
    expected["tracker"]["api_key"] = "***"
    assert read_text(configuration["ignite_hooks"]["value"], "") == expected
    assert read_text(configuration["ignite_hooks.base"]["value"], "") == expected
    assert "# lr found by hand" in configuration["ignite_hooks"]["value"]
    assert server.tasks[clone]["hyperparams"]["Hooks"]["EMAHook/momentum"]["value"] == "0.6"
    kept = parameters_of(load_config(clone_folder / "config.yaml"))
    assert kept["Training/optimizer/lr"].value == 0.05
    assert kept["Hooks/EMAHook/momentum"].value == 0.6
    assert SECRET.encode() not in server.received


@pytest.mark.slow
def test_a_wrong_value_fails_the_task_with_the_message_of_validate(
    server: ClearMLServer, file: Path, tmp_path: Path
) -> None:
    content = read_text(CONFIG, "")
    views = views_of(Masks(content).tree(content), CONFIG)
    task = server.tasks[server.add_task(name="wrong", project="5" * 32, status="queued")]
    objects = {"ignite_hooks": views.text.replace("lr: 0.01", "lr: 0.5"), "ignite_hooks.base": views.base}
    task["configuration"] = {name: {"name": name, "value": value} for name, value in objects.items()}
    task["hyperparams"] = {}
    wrong_ones = {"Hooks/EMAHook/momentum": "lots", "Hooks/EMAHok/x": "3", "Training/optimizer/lr": "0.7"}
    for name, value in {**views.parameters, **wrong_ones}.items():
        section, _, key = name.partition("/")
        task["hyperparams"].setdefault(section, {})[key] = {"section": section, "name": key, "value": value}
    said = trained(file, tmp_path / "run", task=task["id"], code=2)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(CONFIG.replace("momentum: 0.9", "momentum: lots"))
    [problem] = review_file(str(wrong)).problems
    twice = "Training/optimizer/lr: is 0.7 among the hyper-parameters and 0.5 in the configuration 'ignite_hooks'"
    for message in (problem.removeprefix(f"{wrong}: "), "no hook is called 'EMAHok', did you mean 'EMAHook'?", twice):
        assert message in said
        assert message in task["status_message"]
    assert task["status"] == "failed"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("agent", [False, True])
def test_an_aborted_task_is_saved_and_ends_as_stopped(
    agent: bool, server: ClearMLServer, file: Path, tmp_path: Path
) -> None:
    worker = "report_period_sec: 1, ping_period_sec: 1"
    Path(os.environ["CLEARML_CONFIG_FILE"]).write_text(f"api {{ }}\nsdk {{ development {{ worker {{ {worker} }} }} }}")
    text = CONFIG.replace("epochs: 1", "epochs: 3").replace("hooks:\n", "hooks:\n  - {type: Waits}\n")
    file.write_text(text)
    id_ = "6" * 32
    if agent:
        server.add_task(id=id_, name="its", project="5" * 32, status="in_progress")

    def abort() -> None:
        """Abort the task as soon as it has said that it wants to be asked."""
        until(lambda: any("_abort_callback_timeout" in (t.get("runtime") or {}) for t in [*server.tasks.values()]))
        [task] = server.tasks.values()
        task.update({"status_message": "stopping"} if agent else {"status": "stopped"})

    aborting = threading.Thread(target=abort)
    aborting.start()
    said = trained(
        file, tmp_path / "run", task=id_ if agent else None, code=-signal.SIGINT if agent else 0, script=ABORTED
    )
    aborting.join()
    assert "the task is aborted in ClearML" in said
    saved = torch.load(tmp_path / "run" / (id_ if agent else "") / "last.pth", weights_only=True)
    assert saved["meta"]["iter"] == 2
    [task] = server.tasks.values()
    assert task["status"] == ("in_progress" if agent else "stopped"), "an agent sets the state by how the process ends"
    assert "tasks.completed" not in [call for call, _ in server.calls]
