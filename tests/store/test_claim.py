"""`claim.py`: a folder is promised to one run, in this process and in all others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.store import FolderStore
from ignite_hooks.store.claim import CLAIM, Claim, NewFolder, Record, RunFolder, claim_folder, continued, read_record

RUN = NewFolder()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def claim(resume: object = None, model: str = "", wanted: NewFolder = RUN) -> Claim:
    return claim_folder(wanted, resume, model=model, owner=None)


def use(*claims: Claim) -> None:
    for each in claims:
        (each.folder / "metrics.jsonl").write_text("{}")


def ended(*claims: Claim) -> None:
    """End the process of these runs, as far as others can tell."""
    use(*claims)
    for each in claims:
        each.release()


def folders() -> list[str]:
    return sorted(path.name for path in Path("work_dirs").iterdir()) if Path("work_dirs").exists() else []


def elsewhere(resume: object = None) -> str:
    """Return the name of the folder that a run of another process gets, and gives back."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            got = claim(resume)
            os.write(writer, got.folder.name.encode())
            got.release()
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as answer:
        return answer.read().decode()


# -- new folders -------------------------------------------------------------------------------------------------


def test_no_two_runs_get_one_folder() -> None:
    claims = [claim() for _ in range(3)]
    named = RunFolder("work_dirs/run-7", None, "", None)
    named.take()
    assert elsewhere() == "run-4"
    claims.append(claim())
    assert [each.folder.name for each in claims] == ["run", "run-2", "run-3", "run-8"]


def test_a_folder_without_files_goes_with_its_claim() -> None:
    one, other = claim(), claim()
    (one.folder / "visualization" / "train").mkdir(parents=True)
    use(other)
    one.release()
    one.release()
    assert folders() == ["run-2"]
    other.release()
    assert folders() == ["run-2"]
    empty = claim()
    del empty
    assert folders() == ["run-2"]


def test_the_last_unused_folder_takes_the_root_along() -> None:
    claim().release()
    assert not Path("work_dirs").exists()


def test_a_folder_that_existed_stays() -> None:
    Path("work_dirs/run").mkdir(parents=True)
    claim("auto").release()
    assert folders() == ["run"]


def test_at_exit_an_unused_folder_goes_but_not_with_a_forked_child() -> None:
    code = """
import os
from ignite_hooks.store.claim import NewFolder, claim_folder
claim = claim_folder(NewFolder(), None, model="", owner=None)
if (child := os.fork()) == 0:
    raise SystemExit(0)
os.waitpid(child, 0)
print(claim.folder.is_dir(), claim.living, claim_folder(NewFolder(), "auto", model="", owner=None).folder.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == ["True", "True", "run-2"]
    assert folders() == []


def test_a_folder_that_cannot_be_made_is_still_promised() -> None:
    Path("work_dirs").write_text("a file")
    one, other = claim(), claim()
    assert (one.folder.name, other.folder.name) == ("run", "run-2")
    one.release()


def test_a_replaced_attachment_hands_its_unused_folder_on() -> None:
    one, other = claim(), claim()
    one.hand_on()
    assert claim().folder == one.folder
    use(other)
    other.hand_on()
    assert claim().folder.name == "run-3"


def test_what_was_to_run_in_a_folder_and_is_gone_leaves_it_to_the_next() -> None:
    class Trainer: ...

    trainer: Any = Trainer()
    one = claim_folder(RUN, None, model="", owner=lambda: trainer)
    second = claim()
    assert second.folder.name == "run-2"
    trainer = None
    assert claim().folder == one.folder


# -- to resume ---------------------------------------------------------------------------------------------------


def test_a_resume_takes_the_newest_folder_that_no_living_run_holds(caplog: pytest.LogCaptureFixture) -> None:
    first = claim()
    ended(first)
    held = claim()
    use(held)
    resumed = claim("auto")
    assert resumed.folder == first.folder
    assert "which was not that of trainer 2 of a script, as this is: pass work_dir=" in caplog.text
    third = claim("auto")
    assert third.folder.name == "run-3"
    assert elsewhere("auto") == "run-4"
    held.release()
    assert elsewhere(True) == "run-2"


def test_a_folder_in_which_a_run_of_a_given_name_writes_is_held() -> None:
    Path("work_dirs/run-2").mkdir(parents=True)
    Path("work_dirs/run").mkdir()
    with FolderStore(Path("work_dirs/run-2")):
        assert claim("auto").folder.name == "run"


@pytest.mark.parametrize("models", [("g", "d"), ("same", "same"), ("", "")])
@pytest.mark.parametrize("sessions", [1, 2])
def test_two_trainers_of_a_script_find_their_own_folders(models: tuple[str, str], sessions: int) -> None:
    for _ in range(sessions):
        pair = [claim(None, model) for model in models]
        assert [each.record and each.record.place for each in pair] == [1, 2]
        ended(*pair)
    numbers = [2 * sessions - 1, 2 * sessions]
    for _ in range(3):
        pair = [claim("auto", model) for model in models]
        assert [RUN.number(each.folder) for each in pair] == numbers
        ended(*pair)


def test_two_trainers_that_ran_in_turn_find_their_own_folders_by_their_models() -> None:
    ended(claim(None, "g"))
    ended(claim(None, "d"))
    for _ in range(2):
        for model, name in (("g", "run"), ("d", "run-2")):
            resumed = claim("auto", model)
            assert resumed.folder.name == name
            ended(resumed)


def test_where_the_trainer_cannot_be_known_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        ended(claim(None, "fold"))
    assert claim("auto", "fold").folder.name == "run-3"
    assert "run-3, the newest of run-3, run-2, run, which one script filled in turn: pass work_dir=" in caplog.text


@pytest.mark.parametrize(("model", "name"), [("g", "run"), ("d", "run-2")])
def test_a_later_trainer_of_one_process_continues_only_its_own_model(
    model: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = claim(None, "g")
    use(first)
    first.ended = True
    second = claim("auto", model)
    assert second.folder.name == name
    assert ("which an earlier trainer of this process has used" in caplog.text) is (name == "run")
    first.release()
    assert (Path("work_dirs") / name / CLAIM).exists()


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("work_dirs/run/epoch_1.pth", "run"),
        ("work_dirs/run/deeper/epoch_1.pth", "run"),
        ("epoch_1.pth", "run"),
        ("epoch_7.pth", "run-2"),
        ("elsewhere.pth", "run-3"),
    ],
)
def test_a_resume_from_a_path_continues_in_its_folder(wanted: str, name: str) -> None:
    """A checkpoint from somewhere else begins a run of its own: it must not write among the files of another."""
    ended(claim())
    ended(claim())
    Path("work_dirs/run/deeper").mkdir()
    for file in ("work_dirs/run/epoch_1.pth", "work_dirs/run/deeper/epoch_1.pth", "elsewhere.pth"):
        Path(file).touch()
    assert claim(wanted).folder.name == name


@pytest.mark.parametrize(
    ("records", "place", "expected"),
    [
        ([(2, "d"), (1, "g")], 1, [1]),
        ([(2, "d"), (1, "g")], 2, [0]),
        ([(2, "g")], 1, [0]),
        ([(2, "d")], 1, []),
        ([(1, "g")], 2, []),
        ([(1, "d")], 2, [0]),
        ([None, (1, "g")], 1, [0, 1]),
        ([None], 2, [0]),
        ([(1, "other"), (1, "g")], 1, [1, 0]),
    ],
)
def test_the_place_goes_first_and_then_the_model(records: list[Any], place: int, expected: list[int]) -> None:
    found = {Path(str(n)): None if r is None else Record(*r, "then") for n, r in enumerate(records)}
    model = "d" if place == 2 else "g"
    assert continued(found, Record(place, model, "now")) == [Path(str(n)) for n in expected]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"place": "1", "model": "", "session": ""}', '{"place": 1}', "[" * 5000, "\0"]
)
def test_a_record_that_says_nothing_of_use_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / CLAIM).write_text(text)
    assert read_record(tmp_path) is None


def test_the_record_names_the_process_and_its_place() -> None:
    one = claim(None, "m")
    content = json.loads((one.folder / CLAIM).read_text())
    assert (content["pid"], content["place"], content["model"]) == (os.getpid(), 1, "m")
