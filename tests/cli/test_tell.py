"""``ignite-hooks tell``: what is printed, and the code it ends with."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from ignite_hooks.cli import main
from ignite_hooks.engine import tell
from ignite_hooks.engine.tell import Listener


def test_the_answer_of_the_run_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def take(word: str) -> None:
        threading.Thread(target=listener.answer, args=(word, "saved last.pth at iteration 7")).start()

    listener = Listener(tmp_path, lambda: take, logging.getLogger("ignite_hooks"), period=0.01)
    listener.begin()
    assert main(["tell", str(tmp_path), "save"]) == 0
    listener.end("over")
    assert capsys.readouterr().out == "saved last.pth at iteration 7\n"


def test_a_folder_without_a_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tell.tell.__kwdefaults__ or {}, "patience", 0.01)
    assert main(["tell", str(tmp_path), "stop"]) == 1
    assert f"no run is going on in {tmp_path}" in capsys.readouterr().err
    assert main(["tell", str(tmp_path / "none"), "stop"]) == 1
    assert "there is no such folder" in capsys.readouterr().err


def test_another_word_is_refused_by_the_parser(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tell", str(tmp_path), "explode"])
    assert ended.value.code == 2
