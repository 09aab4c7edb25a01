"""`away.py`: a trial on another machine asks the study, and its files come back where the folder is not shared."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.search import away
from ignite_hooks.search.away import SentJob, packed, run_trial, unpack
from ignite_hooks.search.engines import Job
from ignite_hooks.search.worker import AskedTrial

WORKER = """
import json, pathlib, socket, sys
sys.path.append({root!r})
from ignite_hooks.search.worker import AskedTrial
wanted = json.load(sys.stdin)
trial = AskedTrial(socket.socket(fileno=wanted["line"]))
heard = []
for value in (0.5, 0.25):
    trial.report(value, len(heard) + 1)
    heard.append(trial.should_prune())
folder = pathlib.Path(wanted["work_dir"])
folder.mkdir()
(folder / "result.json").write_text(json.dumps([heard, pathlib.Path(wanted["config"]).read_text(), wanted["pruning"]]))
print("trained")
sys.exit(3)
"""


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SentJob:
    """Return a job whose process speaks as that of a trial does, without torch."""
    code = WORKER.format(root=str(Path(away.__file__).parents[2]))
    start = subprocess.Popen

    def popen(command: list[str], **settings: Any) -> Any:
        assert command == [sys.executable, "-m", "ignite_hooks.search.worker"]
        return start([sys.executable, "-c", code], **settings)

    monkeypatch.setattr(subprocess, "Popen", popen)
    trials = tmp_path / "trials"
    trials.mkdir()
    pruning = {"monitor": "val_loss", "mode": "min"}
    job = Job(7, trials / "0007.yaml", trials / "0007", trials / "0007.log", pruning)
    return SentJob(job, b"model: mlp", str(tmp_path / "nowhere"), threads=1)


@pytest.mark.parametrize("shared", [True, False])
def test_a_trial_asks_for_each_value_and_leaves_its_files(sent: SentJob, shared: bool) -> None:
    if shared:
        sent.job.config.write_bytes(sent.text)
    asked = []

    def ask(value: float, step: int) -> bool:
        asked.append((value, step))
        return step == 2

    code, content = run_trial(sent, ask)
    assert (code, asked, content is None) == (3, [(0.5, 1), (0.25, 2)], shared)
    if content is not None:
        assert not sent.job.folder.exists()
        unpack(content, sent.job)
    heard = json.loads((sent.job.folder / "result.json").read_text())
    assert heard == [[False, True], "model: mlp", {"monitor": "val_loss", "mode": "min"}]
    assert sent.job.log.read_text() == "trained\n"


def test_a_trial_that_cannot_be_asked_for_is_ended(sent: SentJob) -> None:
    def ask(value: float, step: int) -> bool:
        raise LookupError("the study is gone")

    with pytest.raises(LookupError, match="the study is gone"):
        run_trial(sent, ask)


def test_nothing_is_unpacked_beside_the_folder_of_the_trial(sent: SentJob) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in ("0007/good", "0008/bad", "../bad", "/bad", "0007.log.d", "0007.log"):
            archive.addfile(tarfile.TarInfo(name))
    unpack(file.getvalue(), sent.job)
    found = {path.relative_to(sent.job.folder.parent) for path in sent.job.folder.parent.rglob("*")}
    assert found == {Path("0007"), Path("0007/good"), Path("0007.log")}
    assert sorted(os.listdir(sent.job.folder.parents[1])) == ["trials"]


@pytest.mark.parametrize("way", ["0007/../0008/bad", "0007/link/bad"])
def test_a_name_that_begins_in_the_folder_of_the_trial_and_leaves_it_is_refused(sent: SentJob, way: str) -> None:
    (sent.job.folder.parent / "0008").mkdir()
    link = tarfile.TarInfo("0007/link")
    link.type, link.linkname = tarfile.SYMTYPE, "../0008"
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        if "link" in way:
            archive.addfile(link)
        archive.addfile(tarfile.TarInfo(way))
    with pytest.raises(tarfile.FilterError):
        unpack(file.getvalue(), sent.job)
    assert os.listdir(sent.job.folder.parent / "0008") == []


def test_files_of_a_trial_that_are_one_file_are_unpacked(sent: SentJob) -> None:
    sent.job.folder.mkdir()
    (sent.job.folder / "first").write_text("same")
    os.link(sent.job.folder / "first", sent.job.folder / "second")
    content = packed(sent.job)
    shutil.rmtree(sent.job.folder)
    unpack(content, sent.job)
    assert (sent.job.folder / "second").read_text() == "same"


def test_a_trial_without_files_is_an_empty_archive(sent: SentJob) -> None:
    shutil.rmtree(sent.job.folder.parent)
    with tarfile.open(fileobj=io.BytesIO(packed(sent.job))) as archive:
        assert archive.getnames() == []


def test_a_hook_may_ask_such_a_trial() -> None:
    from ignite_hooks.run.trials import Trial

    assert issubclass(AskedTrial, Trial)
