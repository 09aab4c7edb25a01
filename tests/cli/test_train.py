"""The commands ``train``, ``resume`` and ``demo``: their options reach the trainer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ignite_hooks.cli.app import main
from tests.cli.tools import Ask

SMALL = """\
model: {type: mlp, hidden: [4]}
dataset: digits
training: {epochs: 1, seed: 0, batch_size: 128, epoch_length: 1}
default_hooks: {logger: null}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a separate folder, and undo what the commands leave in the process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("KINETO_LOG_LEVEL", "TORCH_CPP_LOG_LEVEL"):
        monkeypatch.setenv(name, "as before")
    Path("small.yaml").write_text(SMALL)


@pytest.mark.parametrize(
    "argv", [("train",), ("resume",), ("resume", "x", "--dry-run"), ("demo", "--resume", "auto"), ("train", "x", "y")]
)
def test_an_option_of_another_command_is_wrong_usage(argv: Sequence[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2


@pytest.mark.parametrize("command", [("train", "small.yaml"), ("demo", "--no-show")], ids=lambda argv: argv[0])
def test_every_override_is_read(command: Sequence[str], ask: Ask) -> None:
    code, _, err = ask(*command, "--set", "modle=cnn", "--set", "training.epochs=0")
    assert code == 2
    assert "modle: not a section of a trainer, did you mean 'model'?" in err
    assert "training.epochs: a whole number of at least 1 is needed, not 0" in err
    assert not Path("work_dirs").exists()


def test_the_work_directory_of_the_command_line_is_used(ask: Ask) -> None:
    pytest.importorskip("sklearn")
    assert ask("train", "small.yaml", "--work-dir", "there").code == 0
    assert Path("there/config.yaml").is_file()
    assert not Path("work_dirs").exists()
    assert ask("resume", "there", "--set", "training.epochs=2").code == 0
    assert Path("there/epoch_2.pth").is_file()


@pytest.mark.parametrize("given", [None, "0"])
def test_the_log_level_of_the_user_is_kept(given: str | None, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    if given is None:
        monkeypatch.delenv("KINETO_LOG_LEVEL")
    else:
        monkeypatch.setenv("KINETO_LOG_LEVEL", given)
    assert ask("train", "nowhere.yaml").code == 2
    assert os.environ["KINETO_LOG_LEVEL"] == (given or "6")
