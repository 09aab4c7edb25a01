"""What was edited in a task, and in which of the two places."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ignite_hooks.config.connected.comparison import foreign_imports, merged, restored
from ignite_hooks.config.connected.parameters import as_text, parameters_of
from ignite_hooks.config.overrides import with_overrides
from ignite_hooks.errors import Problem
from ignite_hooks.secrets import Masks

BASE: dict[str, Any] = {
    "training": {"epochs": 3, "optimizer": {"type": "Adam", "lr": 0.1}},
    "hooks": [{"type": "CheckpointHook", "interval": 1}, "LoggerHook"],
    "of_the_script": {"depth": 3},
}


def changed(*values: str) -> dict[str, Any]:
    return with_overrides(copy.deepcopy(BASE), values, [])


def given(**values: str) -> dict[str, str]:
    recorded = {name: as_text(value) for name, (_, value) in parameters_of(BASE).items()}
    return recorded | {name.replace("__", "/"): value for name, value in values.items()}


def asked(text: dict[str, Any], **values: str) -> tuple[dict[str, Any], list[str]]:
    problems: list[Problem] = []
    result = merged(BASE, text, given(**values), problems, is_checked=lambda key: key != "of_the_script")
    return result, [str(problem) for problem in problems]


LR = "training.optimizer.lr=0.5"


@pytest.mark.parametrize(
    ("text", "values", "result"),
    [
        ((), {}, ()),
        ((LR,), {}, (LR,)),
        ((), {"Training__optimizer__lr": "0.5"}, (LR,)),
        ((LR,), {"Training__optimizer__lr": "0.5"}, (LR,)),
        ((LR,), {"Training__epochs": "7"}, (LR, "training.epochs=7")),
        ((), {"Hooks__CheckpointHook__interval": "2"}, ("hooks.0.interval=2",)),
        ((), {"Hooks__LoggerHook__interval": "2"}, ("hooks.1.interval=2",)),
        ((), {"Hooks__CheckpointHook__max_keep_ckpts": "2"}, ("hooks.0.max_keep_ckpts=2",)),
        ((), {"Training__batch_size": "2"}, ("training.batch_size=2",)),
        ((), {"Run__seed": "2"}, ("seed=2",)),
        ((), {"of_the_script": "2", "Args__depth": "9", "properties__x": ""}, ()),
        ((), {"Training__optimizer__lr": "1e-1"}, ()),
    ],
)
def test_what_was_edited_in_one_place_wins(
    text: tuple[str, ...], values: dict[str, str], result: tuple[str, ...]
) -> None:
    found, problems = asked(changed(*text), **values)
    assert problems == []
    assert found == (changed(*result) if result else BASE)


def test_a_whole_entry_can_be_edited_in_the_text() -> None:
    text = {**BASE, "hooks": [{"type": "EMAHook", "decay": 0.5}, BASE["hooks"][0]]}
    assert asked(text) == (text, [])
    assert asked(text, Hooks__CheckpointHook__interval="4")[0]["hooks"][1]["interval"] == 4


@pytest.mark.parametrize(
    ("text", "values", "words"),
    [
        (
            (LR,),
            {"Training__optimizer__lr": "0.7"},
            "Training/optimizer/lr: is 0.7 among the hyper-parameters and 0.5 in the configuration 'ignite_hooks', was "
            "0.1 when the task was made: edit it in one of them",
        ),
        ((), {"Training__epochs": "yes"}, "Training/epochs: 'yes' is no value: "),
        (
            (),
            {"Hooks__CheckpointHok__interval": "2"},
            "no hook is called 'CheckpointHok', did you mean 'CheckpointHook'?",
        ),
        (
            (),
            {"Training__optimiser__lr": "2"},
            "there is no 'optimiser' in the configuration 'ignite_hooks', did you mean 'Training/optimizer/lr'?",
        ),
        ((), {"Of_the_script__width": "2"}, "Of_the_script/width: names no setting of the configuration"),
        (
            ("training.optimizer=SGD",),
            {"Training__optimizer__lr": "2"},
            "no longer in the configuration 'ignite_hooks'",
        ),
    ],
)
def test_what_cannot_be_meant_is_an_error(text: tuple[str, ...], values: dict[str, str], words: str) -> None:
    _, problems = asked(changed(*text), **values)
    assert len(problems) == 1
    assert words in problems[0]


# -- secrets and objects of this machine -------------------------------------------------------------------------------

LOCAL: dict[str, Any] = {"hooks": [{"type": "NotifyHook", "webhook": "https://a/k-1234567890"}], "url": "db://u:pw@h"}
VARIABLE = "IGNITE_HOOKS_SECRET_HOOKS_NOTIFYHOOK_WEBHOOK"


def masked() -> dict[str, Any]:
    return copy.deepcopy(Masks(LOCAL).tree(LOCAL))


def test_secrets_come_from_the_file_of_this_machine() -> None:
    problems: list[Problem] = []
    assert restored(masked(), LOCAL, {VARIABLE: "other"}, problems) == LOCAL
    assert problems == []


def test_secrets_come_from_a_variable_where_the_file_has_none() -> None:
    problems: list[Problem] = []
    found = restored(masked(), {"url": LOCAL["url"]}, {VARIABLE: "k-77"}, problems)
    assert found["hooks"][0]["webhook"] == "k-77"
    assert problems == []


def test_a_secret_that_is_nowhere_is_an_error_that_names_both_places() -> None:
    problems: list[Problem] = []
    restored(masked(), {"url": LOCAL["url"]}, {}, problems)
    [problem] = problems
    assert problem.place == "Hooks/NotifyHook/webhook"
    assert VARIABLE in problem.message
    assert "file of this machine" in problem.message


def test_a_secret_is_never_taken_from_the_server() -> None:
    problems: list[Problem] = []
    theirs = masked()
    theirs["hooks"][0]["webhook"] = "https://evil/k-0987654321"
    restored(theirs, LOCAL, {}, problems)
    assert ["never taken from a task" in problem.message for problem in problems] == [True]


def test_objects_of_the_script_take_their_places_again() -> None:
    thing = object()
    assert restored({"hooks": ["<object>", "EMAHook"]}, {"hooks": [thing]}, {}, []) == {"hooks": [thing, "EMAHook"]}


@pytest.mark.parametrize("key", ["imports", "_base_"])
def test_a_task_names_no_modules_and_no_files_that_the_file_does_not(key: str) -> None:
    assert [problem.place for problem in foreign_imports({key: ["os"]}, {})] == [key]
    assert foreign_imports({key: ["a"]}, {key: ["a"]}) == []
