"""A run whose server may fail, and what its training did meanwhile."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ignite.engine import Events

from ignite_hooks import attach_hooks
from ignite_hooks.hooks.trackers.tracker_hook import TrackerHook
from ignite_hooks.testing import tiny_run
from ignite_hooks.writers.trackers.tracker_writer import TrackerWriter

ITERATIONS = 12
TALKS = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.sendmsg")
"""What Python announces when something speaks to another machine."""


def train(folder: str, deadline: float) -> dict[str, Any]:
    """Train for some iterations, and return what the loop itself has said to others, and how long it took.

    Args:
        folder: The work directory.
        deadline: The seconds for which the end waits for a server that does not answer.
    """
    run, began, talked = tiny_run(batches=4), list[float](), list[str]()
    trains = threading.current_thread()

    def listen(event: str, _: Any) -> None:
        if event in TALKS and threading.current_thread() is trains and 0 < len(began) <= ITERATIONS:
            talked.append(event)

    sys.addaudithook(listen)
    config = {
        "default_hooks": {"logger": {"interval": 2}, "timer": None, "checkpoint": {"best_metric": "accuracy"}},
        "custom_hooks": [{"type": "ClearMLHook", "project": "digits", "interval": 2, "log_model": True}],
    }
    started = time.monotonic()
    runner = attach_hooks(run.trainer, config, work_dir=Path(folder), **run.services)
    for hook in runner.hooks.values():
        if isinstance(hook, TrackerHook) and isinstance(hook._writer, TrackerWriter):
            hook._writer.deadline = deadline
    run.trainer.add_event_handler(Events.ITERATION_STARTED, lambda: began.append(time.monotonic()))
    run.trainer.run(run.data, max_epochs=3)
    assert len(began) == ITERATIONS
    return {
        "talked": talked,
        "start": began[0] - started,
        "iterations": began[-1] - began[0],
        "end": time.monotonic() - began[-1],
    }


if __name__ == "__main__":
    # The SDK may be writing to the console.
    Path(sys.argv[3]).write_text(json.dumps(train(sys.argv[1], float(sys.argv[2]))))
