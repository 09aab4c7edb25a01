"""Fixtures for every test."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator, Sequence, Set
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from ignite_hooks.measure import processor_waits

# Before any fixture and any fork: small tensors on a busy machine are slower with more.
torch.set_num_threads(1)

if "SLOW_FILES" not in os.environ:
    # What a killed process has written is not lost, and no test takes power from the machine. Tests of the order of
    # syncs record their calls; under load (tests.under_load) they are real, and slow.
    os.fsync = lambda descriptor: None

T = TypeVar("T")

_frozen, _file = 0, ""
"""The number of modules whose objects the garbage collector no longer visits, and the file of the latest test."""


def pytest_runtest_logstart(nodeid: str) -> None:
    """Keep the garbage collector from visiting what modules have made: a third of the time went into that.

    Between two files of tests only: what a fixture of a file holds may have to be collected later.
    """
    global _file
    before, _file = _file, nodeid.partition("::")[0]
    if _file != before:
        leave_out_modules()


def leave_out_modules() -> None:
    """Let the garbage collector no longer visit what there is, if many modules have been imported since."""
    global _frozen
    if len(sys.modules) > _frozen + 100:
        gc.collect()
        gc.freeze()
        _frozen = len(sys.modules)


@pytest.fixture
def few_objects() -> None:
    """Keep from the garbage collector what earlier tests of the file have imported: for hooks that collect often."""
    leave_out_modules()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected: a sixth of that time, and nearly all that is made then stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


EVERYTHING = "IGNITE_HOOKS_EVERYTHING"
"""Set where everything has to be installed (`python -m tests`): there nothing is skipped for want of a package."""
_OURS = re.compile(r"pip install '?ignite-hooks\[")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    with without_extras():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    with without_extras():
        return (yield)


@contextlib.contextmanager
def without_extras() -> Iterator[None]:
    """Skip a test that needs a package of an extra that is not installed."""
    try:
        yield
    except Exception as error:
        if (lacking := lacks(error)) and EVERYTHING not in os.environ:
            pytest.skip(f"{lacking}: pip install -e '.[dev]'")
        raise


def lacks(error: BaseException) -> str:
    """Return which package of an extra is missing, or what the package says of it; an empty text if that is not it."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        if top not in ("ignite_hooks", "tests") and importlib.util.find_spec(top) is None:
            return f"needs {top}"
    return "needs an extra" if _OURS.search(str(error)) and not isinstance(error, AssertionError) else ""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow tests in every process, so that none is left alone with a long one."""
    slow = {item for item in items if any(item.iter_markers("slow")) or any(item.iter_markers("faults"))}
    items[:] = slow_first(items, slow, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def slow_first(items: Sequence[T], slow: Set[T], processes: int) -> list[T]:
    """Return the items in their order, but in each share that a process takes at first with the slow ones first.

    Args:
        items: What is to be run.
        slow: Those that are slow.
        processes: How many share them: `--dist worksteal` gives each a piece of the list, as long as those of others.
    """
    ordered: list[T] = []
    rest = [item for item in items if item in slow], [item for item in items if item not in slow]
    for others in range(processes, 0, -1):
        first = len(rest[0]) // others
        second = sum(map(len, rest)) // others - first
        ordered += rest[0][:first] + rest[1][:second]
        rest = rest[0][first:], rest[1][second:]
    return ordered


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Let the next test begin with one thread again, whatever number this one or its hooks have set."""
    yield
    torch.set_num_threads(1)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip syncs under load too, in tests whose files need not survive the machine."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def enough_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no thread wait for a processor, in tests of what is found: on a busy machine nothing else would be."""
    monkeypatch.setattr(processor_waits, "TASKS", tmp_path / "none")


@pytest.fixture(autouse=True)
def no_process_of_clearml() -> None:
    """Forget which process ClearML took for the main one: in another it ends no thread of a task."""
    for name in ("CLEARML_PROC_MASTER_ID", "TRAINS_PROC_MASTER_ID"):
        os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def handlers_of_signals() -> Iterator[None]:
    """Put back the handlers of signals: ClearML leaves its own, under which Ctrl-C is no KeyboardInterrupt."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler or signal.SIG_DFL)


@pytest.fixture(autouse=True)
def no_workers_left() -> Iterator[None]:
    """End the workers of loaders that a test has left.

    The garbage collector ends the queues to them before their iterator, which then waits in vain: 5 seconds for each.
    """
    before = set(multiprocessing.active_children())
    yield
    left = set(multiprocessing.active_children()) - before
    if left:
        from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

        # By their types only: looking at an object may have effects.
        iterators = [thing for thing in gc.get_objects() if _MultiProcessingDataLoaderIter in type(thing).__mro__]
        for iterator in iterators:
            if not left.isdisjoint(iterator._workers):
                iterator._shutdown_workers()


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """Give the tests of a file one kernel of Jupyter, in which each finds nothing of the others."""
    pytest.importorskip("ipykernel")
    pytest.importorskip("nbclient")
    from tests.kernel import Kernel

    started = Kernel()
    yield started
    started.close()
