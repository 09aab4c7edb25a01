"""A server of ClearML that is not there, or fails at any step of a run: nothing is waited for, nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from ignite_hooks.registry import WRITERS
from ignite_hooks.writers.trackers.resend import waiting
from tests.faults.tools import LONG, drawn
from tests.hooks.trackers import beside_a_server
from tests.hooks.trackers.test_clearml_hook import in_a_process, told
from tests.hooks.trackers.tracked import as_written
from tests.ranks import run_ranks
from tests.tools import trackers_at
from tests.writers.trackers.clearml_server import ClearMLServer, clearml_server
from tests.writers.trackers.servers import faulty, unreachable

pytest.importorskip("clearml")
pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]

Trouble = Literal["no credentials", "no network", "nobody there", "never answers", "dies", "hangs", "answers 500"]
DEADLINE = 5.0
WHOLE = 80
"""The requests of a whole run, about."""


class Case(NamedTuple):
    """What goes wrong, before which request of the run, and on how many ranks it trains."""

    trouble: Trouble
    moment: int = 1
    ranks: int = 1


FROM_THE_START: tuple[Trouble, ...] = ("no credentials", "no network", "nobody there", "never answers")
ONCE_IT_RUNS: dict[Trouble, int] = {"dies": 3, "hangs": 9, "answers 500": 9}
"""What happens before one request of many, each with the distance between these."""
CASES = [
    *(Case(trouble, ranks=ranks) for ranks in (1, 2) for trouble in FROM_THE_START),
    *(Case(trouble, at) for trouble, step in ONCE_IT_RUNS.items() for at in range(1, WHOLE + 20, step)),
    *(Case(trouble, at, 2) for trouble, step in ONCE_IT_RUNS.items() for at in range(2, WHOLE + 20, 4 * step)),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case of each kind is drawn for the short form."""
    if "case" in metafunc.fixturenames:
        kinds = [[case for case in CASES if (case.ranks == 2) == two] for two in (False, True)]
        metafunc.parametrize("case", CASES if LONG else kinds, ids=str if LONG else ["one rank", "two ranks"])


def test_a_server_in_trouble_costs_nothing(
    case: Case | list[Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = drawn().choice(case) if isinstance(case, list) else case
    print(case)
    folder = tmp_path / "run"
    for name in list(os.environ):
        if "PROC_MASTER" in name or "OFFLINE_MODE" in name:
            monkeypatch.delenv(name)
    with trackers_at(tmp_path), clearml_server() as server:
        names_server(monkeypatch, server.url)
        with in_trouble(case, server, monkeypatch):
            if case.ranks == 2:
                ranks = run_ranks(beside_a_server.train, str(folder), DEADLINE, ranks=2)
            else:
                module = beside_a_server.__name__
                in_a_process("-m", module, str(folder), str(DEADLINE), str(tmp_path / "said.json"))
                ranks = [json.loads((tmp_path / "said.json").read_text())]
        names_server(monkeypatch, server.url)
        assert len(ranks) == case.ranks
        for rank in ranks:
            assert rank["talked"] == [], "the loop itself speaks to nobody"
            # Not a measurement, as the machine may be busy: the SDK alone repeats one request for minutes.
            assert rank["iterations"] < 60, rank
        in_a_process("-m", "ignite_hooks", "send", str(folder))
        assert_it_has_everything(server, folder)
        assert list(waiting(folder, WRITERS.get)) == []


def names_server(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for which in ("API", "FILES", "WEB"):
        monkeypatch.setenv(f"CLEARML_{which}_HOST", url)
    monkeypatch.setenv("CLEARML_API_ACCESS_KEY", "a")
    monkeypatch.setenv("CLEARML_API_SECRET_KEY", "b")


@contextlib.contextmanager
def in_trouble(case: Case, server: ClearMLServer, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Let something go wrong for as long as the context lasts."""
    with contextlib.ExitStack() as stack:
        if case.trouble == "no credentials":
            for name in ("CLEARML_API_ACCESS_KEY", "CLEARML_API_SECRET_KEY"):
                monkeypatch.delenv(name)
        elif case.trouble == "no network":
            names_server(monkeypatch, "http://api.invalid:8008")
        elif case.trouble == "nobody there":
            names_server(monkeypatch, unreachable())
        elif case.trouble == "never answers":
            names_server(monkeypatch, stack.enter_context(faulty("never answers")))
        else:
            server.fails_at, server.failure = case.moment, case.trouble
        yield
        server.recover()


def assert_it_has_everything(server: ClearMLServer, folder: Path) -> None:
    assert told(server) == as_written(folder), "every step of metrics.jsonl"
    assert server.repeats == [], "no number that it had has come again"
    models = [one for task in server.tasks.values() for one in task["models"]["output"]]
    assert {"best", "last"} <= {one["name"] for one in models}
    kept = {path.read_bytes() for path in folder.glob("*.pth")}
    # Not of all files there: one may have arrived whose answer did not, and nothing names it.
    uris = {server.models[one["model"]]["uri"].removeprefix(server.url) for one in models}
    assert kept >= {server.uploads[uri] for uri in uris}
