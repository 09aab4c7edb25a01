"""A run of any folder as data: finished, stopped, failed, going on, or killed."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ignite_hooks.errors import ResultError
from ignite_hooks.results.checkpoint_table import CheckpointTable
from ignite_hooks.results.folders import not_a_run
from ignite_hooks.results.history import FILE_NAME as METRICS
from ignite_hooks.results.history import History
from ignite_hooks.results.outcome import State
from ignite_hooks.results.result import FILE_NAME as RESULT
from ignite_hooks.results.result import Reached, RunResult, read_result
from ignite_hooks.store.files import open_regular
from ignite_hooks.store.manifest import FILE_NAME as MANIFEST
from ignite_hooks.store.manifest import Entry
from ignite_hooks.terminal import ipython_shell
from ignite_hooks.text import escaped, html_table, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOCKS: Final = (".lock", ".claim")
"""The files that a run locks in its folder as long as it lives."""
REPORT: Final = "report.html"


@dataclass(frozen=True)
class RecordedRun:
    """A run as its folder records it; `ignite_hooks.read_run` returns it.

    What is asked for is read then, and kept. Read the folder again to see more of a run that goes on.
    """

    path: Path
    result: RunResult | None = None
    """The content of ``result.json``; None while the run goes on, and where it was killed."""
    problems: Sequence[str] = field(default=())
    """What could not be read, a line each."""

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.name

    @cached_property
    def state(self) -> State:
        """The state of the run: ``running``, ``finished``, ``stopped``, ``failed`` or ``killed``."""
        if any(_is_held(self.path / name) for name in LOCKS):
            return "running"
        if self.result is None or self._wrote_since:
            return "killed"
        return self.result.state  # type: ignore[return-value]  # `from_json` accepts no other

    @property
    def reason(self) -> str:
        """The reason why the run stopped or failed."""
        return self.result.reason if self.result is not None and self.state == self.result.state else ""

    @property
    def _wrote_since(self) -> bool:
        """Whether a later life of the run has written numbers and no result."""
        if self.result is None or not self.history:
            return False
        last = self.history[-1]["time"]
        # A test after the end writes numbers too, at the step of the end.
        went_on = self.history[-1]["step"] != self.result.iterations
        return went_on and isinstance(last, float | int) and last > self.result.ended > 0

    @cached_property
    def history(self) -> History:
        """The numbers of the run, a row for each moment."""
        return History.read(self.path)

    @cached_property
    def metrics(self) -> dict[str, Reached]:
        """The last value of every number, by its full name."""
        found: dict[str, Reached] = {}
        for name in self.history.names():
            points = self.history.values(name)
            if points:
                found[name] = Reached(points[-1][1], points[-1][0])
        return found

    @property
    def best(self) -> Mapping[str, Reached]:
        """The best value of every metric that the run ranks."""
        return self.result.best if self.result is not None else {}

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The configuration that was trained, without its secrets."""
        return self.result.configuration if self.result is not None else {}

    @cached_property
    def checkpoints(self) -> CheckpointTable:
        """The checkpoints that the manifests in this folder and the folders in it list."""
        return CheckpointTable.of(self.path, self.best)

    @cached_property
    def checkpoint_files(self) -> Mapping[Path, Entry]:
        """The same by their paths."""
        return self.checkpoints.paths

    def plot(self, names: Sequence[str] | None = None) -> Figure:
        """Draw learning curves, by default of all numbers but those of the machine, of single classes and of layers.

        Args:
            names: Full names of numbers, such as ``val/loss``.
        """
        from ignite_hooks.drawing.training_curves import curves

        chosen = self.history.names() if names is None else names
        missing = sorted({*chosen} - {*self.history.names()})
        if missing:
            known = ", ".join(self.history.names()) or "no numbers"
            raise KeyError(f"{', '.join(missing)}: not in this run, which has {known}")
        shown = [*chosen] if names is not None else _worth_a_curve(self.history)
        _let_ipython_show_figures()
        return curves({name: self.history.values(name) for name in shown}, title=self.name)

    def show_report(self, height: int = 700) -> Any:
        """Return the report of the run for a notebook, in a frame of its own."""
        path = self.path / REPORT
        if not path.is_file():
            raise FileNotFoundError(f"{path}: there is no report; ReportHook writes one")
        from IPython import display

        text = path.read_text(encoding="utf-8", errors="replace").replace("&", "&amp;").replace('"', "&quot;")
        # Inline, since a browser does not open files of the machine on which the notebook runs.
        html: Any = display.HTML
        frame = f'<iframe srcdoc="{text}" width="100%" height="{height}" sandbox style="border:0"></iframe>'
        # A page that is not trusted drops the frame.
        return html(f"<div>{frame}<p>{escaped(str(path))}</p></div>")

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield what a person asks first, as names and texts."""
        yield "run", f"{self.name}: {self.state}{f', {self.reason}' if self.reason else ''}"
        if self.result is not None:
            yield "epochs, iterations", f"{self.result.epochs}, {self.result.iterations}"
            yield "took", f"{self.result.seconds:.1f} s"
        for metric, one in self.best.items():
            at = f" at epoch {one.epoch}" if one.epoch is not None else ""
            yield f"best {metric}", f"{number(one.value)}{at}{f', {one.file}' if one.file else ''}"
        for name, tested in self.result.tests.items() if self.result is not None else ():
            yield name, ", ".join(f"{metric} {number(value)}" for metric, value in tested.metrics.items())
        if self.checkpoints:
            yield "checkpoints", ", ".join(entry.name for entry in self.checkpoints)
        for problem in self.problems:
            yield "problem", problem

    def _repr_html_(self) -> str:
        return html_table([{"": name, " ": text} for name, text in self.rows()], wide=[" "])

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.rows())
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.rows())


MACHINE: Final = (
    "system/",
    "memory",
    "gpu/",
    "time/",
    "share/",
    "profile/",
    "throughput",
    "iters_per_s",
    "samples_per_s",
)
"""The beginnings of numbers of the machine, which learning curves do not show unless they are named."""


MOST_OF_A_KIND: Final = 4
"""Numbers such as ``val/class_f1/0`` or ``grad_norm/layer`` that get curves of their own; more are left out."""


def _worth_a_curve(history: History) -> list[str]:
    """Return the numbers that learning curves show unless others are named."""
    names = [name for name in history.names() if not name.startswith(MACHINE)]
    splits = {row["split"] for row in history}
    kinds = Counter(kind for kind in (name.rpartition("/")[0] for name in names) if kind not in splits)
    return [name for name in names if kinds[name.rpartition("/")[0]] <= MOST_OF_A_KIND or "/" not in name]


def read_run(folder: str | Path) -> RecordedRun:
    """Return the run of a work directory as data, whether it goes on, has ended or was killed.

    Args:
        folder: The work directory.

    Example:
        >>> import tempfile
        >>> from ignite_hooks.testing import tiny_trainer
        >>> from ignite_hooks import attach_hooks
        >>> trainer, data = tiny_trainer()
        >>> runner = attach_hooks(trainer, [{"type": "LoggerHook", "interval": 2}], work_dir=tempfile.mkdtemp())
        >>> state = trainer.run(data, max_epochs=2)
        >>> read_run(runner.work_dir).history[-1]["step"]
        6
    """
    path = Path(folder).expanduser()
    if wrong := not_a_run(path):
        raise FileNotFoundError(f"{path}: {wrong}")
    if not any((path / name).exists() for name in (METRICS, RESULT, MANIFEST, *LOCKS)):
        raise FileNotFoundError(f"{path}: no run has written here: it has neither {METRICS} nor {RESULT}")
    try:
        return RecordedRun(path, read_result(path))
    except ResultError as error:
        return RecordedRun(path, None, (str(error),))


def _let_ipython_show_figures() -> None:
    """Make IPython show figures as pictures, which it does by itself only after pyplot was imported."""
    shell = ipython_shell()
    if shell is None:
        return
    from IPython.core.pylabtools import select_figure_formats
    from matplotlib.figure import Figure

    formatters = shell.display_formatter.formatters
    if not any(Figure in formatters[form].type_printers for form in ("image/png", "image/jpeg", "image/svg+xml")):
        select: Any = select_figure_formats
        select(shell, {"png"})


def _is_held(path: Path) -> bool:
    """Return whether a living process of this machine holds this lock, without taking it."""
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            owner = json.loads(file.read(4096) or b"{}")
    except (OSError, ValueError):
        return False
    try:
        held = [line.split()[5] for line in Path("/proc/locks").read_text().splitlines() if " FLOCK " in line]
    except (OSError, IndexError):
        return _is_alive(owner)
    inode = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return inode in held


def _is_alive(owner: Any) -> bool:
    """Return whether the process that a lock names is a living one of this machine."""
    if not isinstance(owner, Mapping) or owner.get("host") != socket.gethostname():
        return False
    pid = owner.get("pid")
    import psutil

    return isinstance(pid, int) and psutil.pid_exists(pid)
