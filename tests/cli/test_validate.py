"""``ignite-hooks validate`` names every problem of a file with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_hooks.registry import HOOKS
from tests.cli.tools import GOOD, Ask, Write


def test_a_good_file_is_said_to_be_good(ask: Ask, write: Write) -> None:
    code, out, err = ask("validate", write(GOOD))
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "x.yaml: 4 hooks, no problems"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "hooks:\n  - type: LoggerHook\n  - {type: EarlyStoppingHook, monitr: loss}\n",
            "x.yaml: hooks[1].monitr: not a setting of EarlyStoppingHook, did you mean 'monitor'?",
            id="misspelt setting",
        ),
        pytest.param(
            "hooks: [{type: EarlyStoppingHook, patience: many}]",
            "x.yaml: hooks[0].patience: a whole number of at least 1 is needed, not 'many'",
            id="wrong type",
        ),
        pytest.param(
            "hooks: [{type: EarlyStopingHook}]",
            "x.yaml: hooks[0].type: no hook is called 'EarlyStopingHook', did you mean 'EarlyStoppingHook'?",
            id="misspelt hook",
        ),
        pytest.param(
            "default_hooks: {logger: {intervall: 3}}",
            "x.yaml: default_hooks.logger.intervall: not a setting of LoggerHook, did you mean 'interval'?",
            id="default hook",
        ),
        pytest.param(
            "writers: [{type: JsonlWriter, path: a, clck: b}]",
            "x.yaml: writers[0].clck: not a setting of JsonlWriter, did you mean 'clock'?",
            id="writer",
        ),
        pytest.param(
            "writers: [{type: JsonlWriter, path: a, priority: HIGH}]",
            "x.yaml: writers[0].priority: not a setting of JsonlWriter; it has path, clock",
            id="a writer has no priority",
        ),
        pytest.param(
            "writers: [JsonWriter]",
            "x.yaml: writers[0].type: no writer is called 'JsonWriter', did you mean 'JsonlWriter'?",
            id="misspelt writer",
        ),
        pytest.param(
            "hooks: [{type: LoggerHook, priority: HIHG}]",
            "x.yaml: hooks[0].priority: 'HIHG' is not a priority, did you mean HIGH?",
            id="priority",
        ),
        pytest.param("hoks: []", "x.yaml: hoks: did you mean 'hooks'?", id="misspelt key"),
        pytest.param("hooks: [{type: LoggerHook", "x.yaml:1:26: not valid YAML", id="broken file"),
        pytest.param("{}\n---\n{}", "x.yaml:2:1: not valid YAML", id="two documents"),
    ],
)
def test_a_problem_is_one_line_with_its_place(ask: Ask, write: Write, text: str, message: str) -> None:
    code, out, err = ask("validate", write(text))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith(message)


def test_all_problems_come_in_one_pass(ask: Ask, write: Write) -> None:
    text = (
        "seed: -1\nhooks:\n  - {type: LoggerHook, intervall: 1}\n  - {type: EvalHok}\nwriters: [{type: JsonlWriter}]\n"
    )
    code, _, err = ask("validate", write(text))
    assert code == 2
    assert [line.split(": ")[1] for line in err.splitlines()] == [
        "seed",
        "hooks[0].intervall",
        "hooks[1].type",
        "writers[0].path",
    ]


def test_every_file_is_validated_and_one_bad_file_is_enough(ask: Ask, write: Write) -> None:
    code, out, err = ask(
        "validate", write(GOOD, "a.yaml"), "nope.yaml", write("seed: x", "b.yaml"), write("[]", "c.json")
    )
    assert code == 2
    assert [line.split(":")[0] for line in out.splitlines() if "note:" not in line] == ["a.yaml", "c.json"]
    assert [line.split(":")[0] for line in err.splitlines()] == ["nope.yaml", "b.yaml"]
    assert "did you mean 'a.yaml'" not in out


@pytest.mark.parametrize(
    ("text", "note"),
    [
        pytest.param(
            "hooks: [{type: EvalHook, dataloader: '@my_loader'}]",
            "needs my_loader from the script",
            id="a service by its name",
        ),
        pytest.param(
            "hooks: [{type: EvalHook, metrics: '@measured'}]",
            "needs measured from the script",
            id="a service in place of a mapping",
        ),
        pytest.param(
            "hooks: [CheckpointHook]",
            "uses model, optimizer, scheduler if the script passes them",
            id="what a hook reads",
        ),
        pytest.param(
            "hooks: [{type: EarlyStoppingHook, monitor: val_loss}]",
            "if the script passes no evaluators, EarlyStoppingHook.monitor: nothing evaluates",
            id="something that evaluates",
        ),
        pytest.param(
            "custom_hooks: [{type: Greeter, loud: true}]",
            "custom_hooks[0].type: no hook of ours is called 'Greeter': the script has to register it",
            id="a hook of the script",
        ),
        pytest.param(
            "train: {custom_hooks: [{type: EMAHok}]}",
            "train.custom_hooks is not read, as it is not at the top",
            id="hooks below a key of the script",
        ),
        pytest.param("seed: 1", "if the script passes val_loader, eval (EvalHook) is added", id="a default hook"),
        pytest.param(
            "hooks: [{type: ignite.handlers.ModelCheckpoint, dirname: '@folder'}]",
            "hooks[0]: ignite.handlers.ModelCheckpoint cannot be checked without folder",
            id="a handler made of services",
        ),
    ],
)
def test_what_a_script_could_supply_is_a_note(ask: Ask, write: Write, text: str, note: str) -> None:
    code, out, err = ask("validate", write(text))
    assert (code, err) == (0, "")
    assert any(line.startswith(f"  note: {note}") for line in out.splitlines())


@pytest.mark.usefixtures("_own_hooks")
def test_parameters_of_methods_are_needed_services(ask: Ask, write: Write) -> None:
    _, out, _ = ask("validate", write("hooks: [NeedsThings]"))
    assert "note: needs model, tracker from the script" in out


def test_a_handler_of_ignite_is_validated(ask: Ask, write: Write) -> None:
    code, _, err = ask("validate", write("hooks: [{type: ignite.handlers.TimeLimit, limit_sek: 3}]"))
    assert code == 2
    assert "hooks[0].limit_sek: not a setting of TimeLimit, did you mean 'limit_sec'?" in err


def test_the_sections_of_a_trainer_are_validated(ask: Ask, write: Write) -> None:
    text = "{model: cnnn, dataset: digitz, training: {epochz: 3, optimizer: AdamWW}, hooks: [LoggerHook]}"
    code, _, err = ask("validate", write(text))
    assert code == 2
    assert err.splitlines() == [
        "x.yaml: training.epochz: not a setting of Training, did you mean 'epochs'?",
        "x.yaml: model.type: no model is called 'cnnn', did you mean 'cnn'?",
        "x.yaml: dataset.type: no data set is called 'digitz', did you mean 'digits'?",
        "x.yaml: training.optimizer.type: no optimizer is called 'AdamWW', did you mean 'adamw'?",
    ]


def test_sections_of_a_script_that_have_the_same_names_are_left_alone(ask: Ask, write: Write) -> None:
    text = "{model: {layers: 3}, dataset: {root: data}, training: {lr: 0.1}, hooks: [LoggerHook]}"
    code, out, err = ask("validate", write(text))
    assert (code, err) == (0, "")
    assert "note: model and dataset name nothing of ours" in out


def test_settings_of_an_installed_hook_are_checked(
    ask: Ask, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
from ignite_hooks.hooks.base_hook import BaseHook, settings

@settings
class ValidatedHook(BaseHook):
    loud: bool = False
"""
    (tmp_path / "validated_plugin.py").write_text(source)
    about = tmp_path / "validated_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: validated-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[ignite_hooks.hooks]\nValidatedHook = validated_plugin:ValidatedHook\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(HOOKS, "_classes", dict(HOOKS._classes))
    code, out, err = ask("validate", write("hooks: [{type: ValidatedHook, lod: true}]"))
    assert code == 2
    assert "hooks[0].lod: not a setting of ValidatedHook, did you mean 'loud'?" in out + err


@pytest.mark.parametrize("trained", [True, False])
def test_a_hook_that_has_to_be_given_a_trial_is_noted(ask: Ask, write: Write, trained: bool) -> None:
    head = (
        "model: {type: mlp}\ndataset: {type: digits}\ncustom_hooks:"
        if trained
        else "hooks: [{type: EvalHook}]\ncustom_hooks:"
    )
    path = write(f"{head} [{{type: PruningHook}}]\n")
    code, out, _ = ask("validate", path)
    assert (code, "note: PruningHook asks a trial: pass trial=..." in out) == (0, True), out
    stored = "{type: PruningHook, storage: 'sqlite:///s.db', study: s, number: 0}"
    assert "asks a trial" not in ask("validate", write(f"{head} [{stored}]\n"))[1]
