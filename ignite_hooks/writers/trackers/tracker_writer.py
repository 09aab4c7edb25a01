"""The parent of the writers for trackers, which collects records for a thread that delivers them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ignite_hooks.errors import SettingError
from ignite_hooks.writers.convert import as_picture, binned, fetched, number_of, plain
from ignite_hooks.writers.interface import Writer, full_name
from ignite_hooks.writers.trackers.delivery import Delivery
from ignite_hooks.writers.trackers.spool import SUFFIX, Spool, TrackerRecord
from ignite_hooks.writers.trackers.tracker import Tracker

Mode = Literal["auto", "online", "offline", "disabled"]

LOADED_WITHIN = 10.0
"""Seconds for which the start of a run waits until a tracker has loaded; a sick disk does not stop the training."""
logger = logging.getLogger("ignite_hooks")


class TrackerWriter(Writer):
    """Base of the writers for trackers: every write becomes a record, which a thread delivers."""

    def __init__(self, kind: str, mode: Mode, work_dir: str | Path | None, deadline: float) -> None:
        if mode not in ("auto", "online", "offline", "disabled"):
            raise SettingError("mode", f"auto, online, offline or disabled is needed, not {mode!r}")
        self.kind, self.mode, self.deadline = kind, mode, deadline
        self.work_dir = Path(work_dir or ".").absolute()
        self.run_id: str | None = None
        """The identifier of the run in the tracker, once it has one; a writer that is used again continues this run."""
        self.began: float | None = None
        """The time of the first record of the run in the tracker."""
        self.failed = False
        """Whether the run has failed, which trackers show."""
        self._delivery: Delivery | None = None
        self._spool: Spool | None = None
        self._begun = False
        """Whether the run in the tracker has records of any step."""

    def load(self) -> None:
        """Make what needs no server, in the thread that delivers; the start of the run waits for it."""

    def connect(self) -> Tracker:
        """Connect to the tracker; called by the thread that delivers, and again after a failure."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the arguments with which ``ignite-hooks send`` makes this writer again, without secrets."""
        return {}

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self.write_scalars({name: value}, step)

    def write_scalars(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        numbers = {full_name(name, kind): number_of(value) for name, value in fetched(scalars).items()}
        self._put("scalars", step, {name: value for name, value in numbers.items() if value is not None})

    def write_image(self, name: str, image: Any, step: int) -> None:
        # A copy, because the next picture may be drawn into the same array.
        self._put("image", step, {"name": name, "image": as_picture(image).copy()})

    def write_histogram(self, name: str, values: Any, step: int) -> None:
        counts, edges = binned(values)
        self._put("histogram", step, {"name": name, "counts": counts, "edges": edges})

    def write_text(self, name: str, text: str, step: int) -> None:
        self._put("text", step, {"name": name, "text": text})

    def write_config(self, config: Mapping[str, Any]) -> None:
        self._put("config", 0, plain(config))

    def write_artifact(self, path: str | Path, name: str | None = None, kind: str = "file") -> None:
        path = Path(path).absolute()
        self._put("artifact", 0, {"path": str(path), "name": name or path.name, "kind": kind})

    def resumed(self, step: int) -> None:
        """Begin another run in the tracker, which cannot remove the steps that will be repeated."""
        if self._begun:
            self.close()
            self.run_id, self.began, self._spool, self._begun = None, None, None, False

    def began_anew(self) -> None:
        self.resumed(0)

    def prepare(self) -> None:
        """Read what only the thread of the script can see, before the first record."""

    def close(self) -> None:
        """Wait for the delivery of all records, but not longer than ``deadline`` seconds."""
        if self._delivery is not None:
            delivery, self._delivery = self._delivery, None
            delivery.close(self.deadline, failed=self.failed)

    def _put(self, what: str, step: int, content: Mapping[str, Any]) -> None:
        if self.mode == "disabled":
            return
        now = time.time()
        self._begun = self._begun or step > 0
        self.began = now if self.began is None else self.began
        if self._delivery is None:
            self.prepare()
            self._delivery = self._begin()
            if not self._begun:
                self._delivery.wait_until_loaded(LOADED_WITHIN)
        self._delivery.put(TrackerRecord(what, step, now, content))

    def _begin(self) -> Delivery:
        if self._spool is None:
            header = {
                "writer": type(self).__name__,
                "settings": self.settings(),
                "run": self.run_id,
                "folder": str(self.work_dir),
            }
            self._spool = Spool(_unused_path(self.work_dir, self.kind), header)
        spool = self._spool

        def connect() -> Tracker:
            tracker = self.connect()
            tracker.name = type(self).__name__
            if spool.header.get("run") != self.run_id:
                spool.say(run=self.run_id)
            return tracker

        return Delivery(connect, spool, type(self).__name__, load=self.load)

    def offline_because(self, reason: str, where: object) -> None:
        """Log in one line why the tracker is not used, and how to send the records later."""
        logger.warning(
            "%s: %s, so it works offline, in %s; 'ignite-hooks send %s' sends it later",
            type(self).__name__,
            reason,
            where,
            self.work_dir,
        )


def _unused_path(folder: Path, kind: str) -> Path:
    """Return the path for a new spool, since each run has its own."""
    path, number = folder / f"{kind}{SUFFIX}", 1
    while path.exists():
        number += 1
        path = folder / f"{kind}-{number}{SUFFIX}"
    return path
