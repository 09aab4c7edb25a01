"""The parent of the writers for trackers, which collects records for a thread that delivers them."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ignite_hooks.errors import SettingError
from ignite_hooks.writers.convert import as_picture, binned, fetched, number_of, plain
from ignite_hooks.writers.interface import Writer, full_name
from ignite_hooks.writers.media import Media
from ignite_hooks.writers.trackers.delivered import Delivered
from ignite_hooks.writers.trackers.delivery import Delivery
from ignite_hooks.writers.trackers.spool import SUFFIX, Spool, TrackerRecord
from ignite_hooks.writers.trackers.tracker import Continued, Ending, Offline, Tracker
from ignite_hooks.writers.trackers.turn import NotOurTurnError, Turn

Mode = Literal["auto", "online", "offline", "disabled"]
OnResume = Literal["same", "new"]

MOST_IN_CHECKPOINTS = 1000
"""Records of numbers that a checkpoint holds at most, because they have not been sent when it is saved."""
LOADED_WITHIN = 10.0
"""Seconds for which the start of a run waits until a tracker has loaded; a sick disk does not stop the training."""
logger = logging.getLogger("ignite_hooks")


class TrackerWriter(Writer):
    """Base of the writers for trackers: every write becomes a record, which a thread delivers."""

    draws_results = False
    """Whether the tracker has no charts of its own for results, so that it gets pictures of them too."""

    def __init__(
        self, kind: str, mode: Mode, work_dir: str | Path | None, deadline: float, on_resume: OnResume = "same"
    ) -> None:
        if on_resume not in ("same", "new"):
            raise SettingError("on_resume", f"same or new is needed, not {on_resume!r}")
        if mode not in ("auto", "online", "offline", "disabled"):
            raise SettingError("mode", f"auto, online, offline or disabled is needed, not {mode!r}")
        self.kind, self.mode, self.deadline, self.on_resume = kind, mode, deadline, on_resume
        self.work_dir = Path(work_dir or ".").absolute()
        self.run_id: str | None = None
        """The identifier of the run in the tracker, once it has one; a writer that is used again continues this run."""
        self.page = ""
        """The address of the page of the run, once it is known; empty offline."""
        self.began: float | None = None
        """The time of the first record of the run in the tracker."""
        self.ended: Ending = "finished"
        """How the run has ended, which trackers show."""
        self.takes_more = mode != "disabled"
        """Whether more can be written once it is closed; a tracker that works offline may close its own files."""
        self.clock: Callable[[], float] = time.time
        """The time of what is written."""
        self._delivery: Delivery | None = None
        self._spool: Spool | None = None
        self._begun = False
        """Whether the run in the tracker has records of any step."""
        self._held: list[TrackerRecord] | None = None
        """What comes while it is open which run in the tracker it belongs to."""
        self._of_checkpoint: Mapping[str, Any] = {}
        self._key = secrets.token_hex(8)
        """What a checkpoint knows of the run in the tracker before the tracker has given it a name."""
        self._continued: str | None = None
        """The run in the tracker that is continued."""
        self._spooled = Delivered()
        self._there: Delivered | None = None
        self.session: str | None = None
        """What the tracker calls a run that it keeps in files of its own, which gets another name when it is sent."""
        self.follows_later = False
        """Whether what is written now waits until the run itself has been sent, whose files take no more."""

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

    def write_media(self, name: str, media: Media, step: int) -> None:
        self._put("media", step, {"name": name, "suffix": media.suffix, "data": media.data, "rate": media.rate})

    def write_values(self, values: Mapping[str, float]) -> None:
        """Write single values of the whole run, which the table of runs shows."""
        self._put("values", 0, values)

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        table = {"kind": "table", "columns": list(columns), "rows": [list(row) for row in rows]}
        self._put("result", step, {"name": name, "result": table})

    def write_result(
        self,
        name: str,
        result: Mapping[str, Any],
        step: int,
        *,
        kind: str = "val",
        epoch: int | None = None,
        draw: Callable[[], Any] | None = None,
    ) -> None:
        self._put("result", step, {"name": full_name(name, kind), "result": plain(result)})
        if self.draws_results and result["kind"] != "table":
            super().write_result(name, result, step, kind=kind, epoch=epoch, draw=draw)

    def write_config(self, config: Mapping[str, Any]) -> None:
        self._put("config", 0, plain(config))

    def write_artifact(self, path: str | Path, name: str | None = None, kind: str = "file") -> None:
        path = Path(path).absolute()
        self._put("artifact", 0, {"path": str(path), "name": name or path.name, "kind": kind})

    def awaits_resume(self) -> None:
        if self._delivery is None:
            self._held = []

    def state_dict(self) -> dict[str, Any]:
        spool = self._spool.path.name if self._spool is not None else None
        if not spool:
            return {}
        # A process that is killed loses what is in memory; its next life has passed these steps.
        in_memory = self._delivery.waiting() if self._delivery is not None else []
        numbers = [[record.step, record.time, dict(record.content)] for record in in_memory if record.what == "scalars"]
        return {"run": self.run_id, "spool": spool, "key": self._key, "numbers": numbers[-MOST_IN_CHECKPOINTS:]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._of_checkpoint = state

    def resumed(self, step: int) -> None:
        """Go on in the same run of the tracker, or begin another one; a tracker cannot remove steps."""
        state, self._of_checkpoint = self._of_checkpoint, {}
        if self.on_resume == "new" or not state:
            self._begin_another()
        else:
            self._go_on(state)
        self._release()

    def began_anew(self) -> None:
        self._begin_another()
        self._release()

    def _begin_another(self) -> None:
        if self._begun:
            self.close()
            self.run_id, self.began, self._spool, self._begun = None, None, None, False
            self._key = secrets.token_hex(8)
        self._continued, self._spooled, self._there = None, Delivered(), None

    def _go_on(self, state: Mapping[str, Any]) -> None:
        """Go on in the run of a checkpoint, and with what still waits for it in this folder."""
        self.close()
        run, spool = state.get("run"), state.get("spool")
        self._spool = None
        # Only names that this class gives: a checkpoint may come from anywhere.
        if isinstance(spool, str) and re.fullmatch(rf"{self.kind}(-\d+)?{re.escape(SUFFIX)}", spool):
            path = self.work_dir / spool
            if path.is_file():
                self._spool = Spool(path)
                self._spool.header = self._spool.read_header()
                run = self._spool.header.get("run") or run
                self._spooled = Delivered.of(self._spool.records(pictures=False))
                self._spool.say(resumed=True)
        self._key = str(state.get("key") or self._key)
        run = run or self._noted_run()
        self.run_id = self._continued = run if isinstance(run, str) else None
        self._there, self._begun = None, True
        self._held = [*_numbers_in(state.get("numbers")), *(self._held or [])]

    def go_on(self, ended: Ending, at: float) -> bool:
        """Go on in the run that this work directory has in the tracker; return whether there is one.

        Args:
            ended: How that run has ended, which the tracker is to show again.
            at: When it has ended, so that it does not become longer.
        """
        self.run_id, self.ended, self.clock = self._noted_run(any_key=True), ended, lambda: at
        self.session = self._noted_run("session", any_key=True)
        if self.mode == "disabled":
            return False
        if (spool := self._waiting_spool()) is not None:
            # What is in it has to arrive first, and perhaps the run itself.
            self._spool, self.follows_later = spool, True
            return True
        return self.follow_later() or self.run_id is not None

    def follow_later(self) -> bool:
        """Keep what is written from now on until the run has been sent; return whether its files are here."""
        run = self.session or self.run_id
        if run is None or not self.has_unsent(run):
            return False
        self._spool, self.follows_later = None, True
        return True

    def has_unsent(self, run: str) -> bool:
        """Return whether the tracker's own files of a run are in the work directory and have not been sent."""
        return False

    def _waiting_spool(self) -> Spool | None:
        """Return the spool with which the run waits to be sent."""
        for path in sorted(self.work_dir.glob(f"{self.kind}*{SUFFIX}")):
            spool = Spool(path)
            header = spool.header = spool.read_header()
            is_mine = header.get("writer") == type(self).__name__ and header.get("run") in (
                None,
                self.run_id,
                self.session,
            )
            # One of a session of ClearML may be in its archive by now, and is left out then.
            if is_mine and not (header.get("resumed") or header.get("session")):
                return spool
        return None

    @property
    def _note(self) -> Path:
        """The file with the name of the run, which a tracker may give after the first checkpoint."""
        return self.work_dir / f".{self.kind}.run"

    def _noted(self) -> dict[str, Any]:
        try:
            noted = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return noted if isinstance(noted, dict) else {}

    def _noted_run(self, what: str = "run", *, any_key: bool = False) -> str | None:
        noted = self._noted()
        run = noted.get(what)
        return run if isinstance(run, str) and (any_key or noted.get("key") == self._key) else None

    def note_run(self, key: object) -> None:
        """Note the run of a spool that was sent, for whoever goes on with this key, unless another run was noted."""
        if isinstance(key, str) and self._noted().get("key") in (None, key):
            self._key = key
            self._note_run()

    def _note_run(self) -> None:
        try:
            self.work_dir.mkdir(parents=True, exist_ok=True)
            temporary = self._note.with_name(f"{self._note.name}.tmp")
            noted = {"run": self.run_id, "key": self._key, **({"session": self.session} if self.session else {})}
            temporary.write_text(json.dumps(noted), encoding="utf-8")
            temporary.replace(self._note)
        except OSError as error:
            logger.debug("%s: %s", self._note, error)

    def _release(self) -> None:
        held, self._held = self._held or [], None
        for record in held:
            self._put(record.what, record.step, record.content, record.time)

    def prepare(self) -> None:
        """Read what only the thread of the script can see, before the first record."""

    def close(self) -> None:
        """Wait for the delivery of all records, but not longer than ``deadline`` seconds."""
        if self._delivery is not None:
            delivery, self._delivery = self._delivery, None
            delivery.close(self.deadline, self.ended)

    def _put(self, what: str, step: int, content: Mapping[str, Any], at: float | None = None) -> None:
        if self.mode == "disabled":
            return
        now = self.clock() if at is None else at
        if self._held is not None:
            self._held.append(TrackerRecord(what, step, now, content))
            return
        self._begun = self._begun or step > 0
        self.began = now if self.began is None else self.began
        if self._delivery is None:
            self.prepare()
            self._delivery = self._begin()
            if not self._begun:
                self._delivery.wait_until_loaded(LOADED_WITHIN)
        if (record := self._spooled.missing_of(TrackerRecord(what, step, now, content))) is not None:
            self._delivery.put(record)

    def _begin(self) -> Delivery:
        if self._spool is None:
            path, turn = _unused(self.work_dir, self.kind)
            header = {
                "writer": type(self).__name__,
                "settings": self.settings(),
                "key": self._key,
                "run": (self.session or self.run_id) if self.follows_later else self.run_id,
                "folder": str(self.work_dir),
                **({"resumed": True} if self._continued else {}),
                **({"follows": True} if self.follows_later else {}),
            }
            self._spool = Spool(path, header)
        else:
            turn = Turn(self._spool.path, "run")
        spool = self._spool

        def connect() -> Tracker:
            if self.follows_later:
                raise Offline("the run itself has not been sent")
            if self.run_id is None:
                # `send` may have begun it while we waited for our turn.
                begun = spool.read_header().get("run") or self._noted_run()
                self.run_id = self._continued = begun if isinstance(begun, str) else None
            tracker = self.connect()
            tracker.name = type(self).__name__
            if self.run_id is not None or self.session is not None:
                self._note_run()
            if spool.header.get("run") != self.run_id:
                spool.say(run=self.run_id)
            if self._continued is None or self.run_id != self._continued:
                return tracker
            if self._there is None:
                # Once: what is sent from now on may be of the same steps.
                self._there = tracker.delivered()
            return Continued(tracker, self._there)

        return Delivery(connect, spool, type(self).__name__, turn=turn, load=self.load)

    def offline_because(self, reason: str, where: object) -> None:
        """Log in one line why the tracker is not used, and how to send the records later."""
        logger.warning(
            "%s: %s, so it works offline, in %s; 'ignite-hooks send %s' sends it later",
            type(self).__name__,
            reason,
            where,
            self.work_dir,
        )


def _numbers_in(rows: object) -> list[TrackerRecord]:
    """Return the records that a checkpoint holds, as far as they are records of numbers: it may come from anywhere."""
    found = []
    for row in rows if isinstance(rows, list) else ():
        match row:
            case [int(step), float(at), dict(content)] if all(isinstance(value, float) for value in content.values()):
                found.append(TrackerRecord("scalars", step, at, content))
    return found


def _unused(folder: Path, kind: str) -> tuple[Path, Turn]:
    """Return the path for a new spool, and the turn on it, since each run has its own."""
    for number in itertools.count(1):
        path = folder / f"{kind}{f'-{number}' if number > 1 else ''}{SUFFIX}"
        turn = Turn(path, "run")
        if not path.exists():
            with contextlib.suppress(NotOurTurnError):
                turn.take()
                return path, turn
    raise AssertionError
