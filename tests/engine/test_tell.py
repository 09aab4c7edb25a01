"""`tell.py`: an order from outside is taken once, and answered."""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path

import pytest

from ignite_hooks.engine.tell import ANSWER, ORDER, Listener, NotTold, tell

LOGGER = logging.getLogger("ignite_hooks")


class Run:
    """A run that takes orders, or does not."""

    def __init__(self, folder: Path, refuses: str | None = None) -> None:
        self.took: list[str] = []
        self.refuses, self.folder = refuses, folder
        self.listener = Listener(folder, lambda: self.take, LOGGER, period=0.005)

    def take(self, word: str) -> str | None:
        self.took.append(word)
        if self.refuses is None:
            threading.Thread(target=self.listener.answer, args=(word, f"did {word}")).start()
        return self.refuses


def test_an_order_is_obeyed_once_and_answered(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.listener.begin()
    assert [tell(tmp_path, word, pause=0.005) for word in ("save", "evaluate", "save")] == [
        "did save",
        "did evaluate",
        "did save",
    ]
    run.listener.end("over")
    assert run.took == ["save", "evaluate", "save"]
    assert not (tmp_path / ORDER).exists()


def test_an_order_that_cannot_be_obeyed_is_refused_in_words(tmp_path: Path) -> None:
    run = Run(tmp_path, refuses="no hook saves")
    run.listener.begin()
    with pytest.raises(NotTold, match="cannot save: no hook saves"):
        tell(tmp_path, "save", pause=0.005)
    run.listener.end("over")


def test_what_was_taken_and_not_obeyed_is_answered_at_the_end(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.take = lambda word: run.listener._ended.set()  # type: ignore[method-assign,func-returns-value]
    run.listener.begin()
    ending = threading.Thread(target=lambda: (run.listener._thread.join(), run.listener.end("the run has ended")))
    ending.start()
    with pytest.raises(NotTold, match="cannot stop: the run has ended"):
        tell(tmp_path, "stop", pause=0.005)
    ending.join()


def test_an_order_without_a_run_is_taken_back(tmp_path: Path) -> None:
    with pytest.raises(NotTold, match="no run is going on in"):
        tell(tmp_path, "save", patience=0.02, pause=0.005)
    assert os.listdir(tmp_path) == []
    (tmp_path / ORDER).write_text("{}")
    with pytest.raises(NotTold, match="waits already"):
        tell(tmp_path, "save", patience=0.02, pause=0.005)


def test_an_order_older_than_the_run_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / ORDER).write_text(json.dumps({"word": "stop", "number": "1"}))
    run = Run(tmp_path)
    run.listener.begin()
    run.listener.end("over")
    assert run.took == []
    assert json.loads((tmp_path / ANSWER).read_text())["state"] == "refused"
    assert "told to stop before this run began: ignored" in caplog.text


@pytest.mark.parametrize("content", ["", "[]", '{"word": "rm", "number": "1"}', '{"word": "save", "number": "../1"}'])
def test_a_file_that_is_no_order_is_removed_and_named(
    content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(tmp_path)
    (tmp_path / ORDER).write_text(content)
    assert run.listener.look()
    assert run.took == []
    assert not (tmp_path / ORDER).exists()
    assert "holds no order" in caplog.text


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "order").write_text(json.dumps({"word": "stop", "number": "1"}))
    (tmp_path / ORDER).symlink_to(tmp_path / "order")
    run = Run(tmp_path)
    assert run.listener.look()
    assert run.took == []


def test_a_run_that_is_gone_is_not_kept_by_its_thread(tmp_path: Path) -> None:
    assert not Listener(tmp_path, lambda: None, LOGGER).look()
