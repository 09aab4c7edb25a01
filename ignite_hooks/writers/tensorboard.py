"""Event files for TensorBoard."""

from __future__ import annotations

import json
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ignite_hooks.errors import SettingError
from ignite_hooks.writers.convert import as_picture, fetched, finite, flattened, number_of, shown_cell
from ignite_hooks.writers.interface import Writer, full_name, installed
from ignite_hooks.writers.media import Media

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


EVENT_FILE = re.compile(r"events\.out\.tfevents\.(\d+)\.")
"""The names of event files, which begin with the second in which they were opened."""

MOST_WAITING = 1000
"""The queue of events for the thread that writes them. With the default of ten, training would wait."""


class TensorboardWriter(Writer):
    """Writes event files that TensorBoard shows. After a resume, the steps that are repeated are hidden.

    Args:
        log_dir: The folder of the event files; ``tensorboard`` in the work directory by default.
        on_resume: Whether a resumed run goes on in the same folder, or in a new one beside it.
        work_dir: The work directory of the run, which ``attach_hooks`` supplies.
    """

    imported_ahead = ("torch.utils.tensorboard", "tensorboard.compat.proto.summary_pb2")

    def __init__(
        self,
        log_dir: str | Path | None = None,
        *,
        on_resume: Literal["same", "new"] = "same",
        work_dir: str | Path | None = None,
    ) -> None:
        if on_resume not in ("same", "new"):
            raise SettingError("on_resume", f"same or new is needed, not {on_resume!r}")
        installed("tensorboard")
        self.log_dir = Path(work_dir or ".") / (log_dir or "tensorboard")
        self._first_dir, self._on_resume = self.log_dir, on_resume
        self._purge: int | None = None
        self._opened: SummaryWriter | None = None
        self._opening = threading.Lock()
        self._summary: Any = None
        self._value: Any = None
        self._config: Mapping[str, Any] = {}

    def write_scalar(self, name: str, value: Any, step: int) -> None:
        self.write_scalars({name: value}, step)

    def write_scalars(
        self, scalars: Mapping[str, Any], step: int, *, kind: str = "train", epoch: int | None = None
    ) -> None:
        found = {full_name(name, kind): number_of(value) for name, value in fetched(scalars).items()}
        numbers = {name: float(value) for name, value in found.items() if value is not None}
        if not numbers:
            return
        opened = self._open()
        # One event for all numbers: `add_scalar` makes one of each, and training waits for their thread.
        values = [self._value(tag=name, simple_value=number) for name, number in numbers.items()]
        events: Any = opened.file_writer
        events.add_summary(self._summary(value=values), step)

    def write_image(self, name: str, image: Any, step: int) -> None:
        self._open().add_image(name, as_picture(image), step, dataformats="HWC")

    def write_histogram(self, name: str, values: Any, step: int) -> None:
        # TensorBoard raises an error for no values, so NaN gradients would disable this writer.
        if len(kept := finite(values)):
            self._open().add_histogram(name, kept, step)

    def write_text(self, name: str, text: str, step: int) -> None:
        self._open().add_text(name, preformatted(text) if has_columns(text) else text, step)

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        lines = [list(columns), ["---"] * len(columns), *([shown_cell(cell) for cell in row] for row in rows)]
        cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
        self._open().add_text(name, "\n".join(f"| {' | '.join(line)} |" for line in cells), step)

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
        if result["kind"] != "vector":
            # The entries of a vector are scalars already.
            super().write_result(name, result, step, kind=kind, epoch=epoch, draw=draw)
        for label, (positives, samples) in (result.get("totals") or {}).items():
            recall, precision = result["lines"].get(label, ((), ()))
            if positives and recall:
                tag = f"{full_name(name, kind)}/{label}" if label else full_name(name, kind)
                true, false, unfound, missed, exact, found = pr_curve_of(recall, precision, positives, samples)
                self._open().add_pr_curve_raw(
                    tag, true, false, unfound, missed, exact, found, step, num_thresholds=len(found)
                )

    def why_no_media(self, media: Media) -> str:
        return "" if media.suffix in ("wav", "gif") else f"TensorBoard plays WAV and GIF, and this is {media.suffix}"

    def write_media(self, name: str, media: Media, step: int) -> None:
        # Not `add_video`, which needs moviepy, and of moviepy a version that is gone.
        from tensorboard.compat.proto.summary_pb2 import Summary

        if media.kind == "video":
            _, height, width = media.shape or (0, 0, 0)
            shown = {"image": Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=media.data)}
        else:
            length, channels = media.shape or (0, 0)
            about = {"sample_rate": media.rate, "num_channels": channels, "length_frames": length}
            heard = Summary.Audio(**about, encoded_audio_string=media.data, content_type=media.content_type)
            shown = {"audio": heard}
        events: Any = self._open().file_writer
        events.add_summary(Summary(value=[Summary.Value(tag=name, **shown)]), step)

    def write_best(self, values: Mapping[str, float], step: int) -> None:
        """Write the configuration beside the best values of metrics, which the page HPARAMS compares."""
        from torch.utils.tensorboard import summary

        settings = {
            name: value for name, value in flattened(self._config) if isinstance(value, (bool, int, float, str))
        }
        best = {f"best/{name}": float(value) for name, value in values.items()}
        made: Any = summary
        events: Any = self._open().file_writer
        for part in made.hparams(settings, best):
            events.add_summary(part, step)
        # The page takes the last number of this name.
        self.write_scalars(best, step)

    def write_config(self, config: Mapping[str, Any]) -> None:
        self._config = config
        text = json.dumps(config, indent=2, ensure_ascii=False, default=str)
        self._open().add_text("config", preformatted(text), 0)

    def write_graph(self, model: Any, inputs: Any) -> None:
        with warnings.catch_warnings():
            # torch.jit.trace is deprecated and warns of many things that are not problems of the model.
            warnings.simplefilter("ignore")
            # Not strict: a model may return a mapping.
            self._open().add_graph(model, inputs, use_strict_trace=False)

    def write_artifact(self, path: str | Path, name: str | None = None, kind: str = "file") -> None:
        """Write nothing: TensorBoard keeps no files."""

    def state_dict(self) -> dict[str, Any]:
        return {"folder": self.log_dir.name}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        name = state.get("folder")
        # A folder beside the first one, and no other: a checkpoint may come from anywhere.
        if isinstance(name, str) and re.fullmatch(rf"{re.escape(self._first_dir.name)}(_\d+)?", name):
            self.close()
            self.log_dir = self._first_dir.with_name(name)

    def resumed(self, step: int) -> None:
        self.close()
        if self._on_resume == "same":
            self._purge = step + 1
            return
        number = 2
        while self.log_dir.exists():
            self.log_dir, number = self._first_dir.with_name(f"{self._first_dir.name}_{number}"), number + 1

    def began_anew(self) -> None:
        self.close()
        # TensorBoard would draw the steps of an earlier run in this folder as part of this one.
        self.log_dir, self._purge = self._first_dir, 1

    def flush(self) -> None:
        if self._opened is not None:
            self._opened.flush()

    def close(self) -> None:
        """Close the event file; a later write opens another one in the same folder."""
        if self._opened is not None:
            opened, self._opened = self._opened, None
            opened.close()

    def _open(self) -> SummaryWriter:
        # Pictures are written by the threads that draw them.
        with self._opening:
            if self._opened is None:
                from tensorboard.compat.proto.summary_pb2 import Summary
                from torch.utils.tensorboard import SummaryWriter

                if self.log_dir.is_dir():
                    time.sleep(seconds_until_last((path.name for path in self.log_dir.iterdir()), time.time()))
                purge, self._purge = self._purge, None
                self._summary, self._value = Summary, Summary.Value
                self._opened = SummaryWriter(str(self.log_dir), purge_step=purge, max_queue=MOST_WAITING)
            return self._opened


def pr_curve_of(recall: Sequence[float], precision: Sequence[float], positives: int, samples: int) -> tuple[Any, ...]:
    """Return a curve as TensorBoard takes it: counts, precision and recall, from the lowest threshold to the highest.

    Example:
        >>> true, false, *_ = pr_curve_of([0.5, 1.0], [1.0, 0.5], 2, 4)
        >>> true.tolist(), false.tolist()
        ([2.0, 1.0], [2.0, 0.0])
    """
    import numpy

    found, exact = (numpy.asarray(one, float)[::-1] for one in (recall, precision))
    true = found * positives
    false = numpy.divide(true, exact, out=numpy.zeros_like(true), where=exact > 0) - true
    return true, false, samples - positives - false, positives - true, exact, found


def seconds_until_last(names: Iterable[str], now: float) -> float:
    """Return how many seconds later an event file must be opened so that TensorBoard reads it last.

    It sorts the files by their names: the second in which they were opened comes first, and then numbers without
    leading zeros, so that of two files of one second the later one may be read first. A file of the next hours, whose
    machine has another clock, is not waited for.

    Example:
        >>> seconds_until_last(["events.out.tfevents.0000000007.host.1.9", "notes.txt"], 7.25)
        0.75
        >>> seconds_until_last(["events.out.tfevents.0000000007.host.1.9"], 8.25)
        0.0
    """
    seconds = [int(found[1]) for name in names if (found := EVENT_FILE.match(name))]
    return 1 - now % 1 if int(now) in seconds else 0.0


def preformatted(text: str) -> str:
    """Return a text as Markdown that is shown line by line, in letters of equal width."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def has_columns(text: str) -> bool:
    """Return whether spaces align a text of several lines in columns, which Markdown would run together.

    Example:
        >>> has_columns("layer  size\\n0      12"), has_columns("a text\\nof two lines"), has_columns("- one  - two")
        (True, False, False)
    """
    lines = text.strip().splitlines()
    return len(lines) > 1 and sum("  " in line.strip() for line in lines) > len(lines) / 2
