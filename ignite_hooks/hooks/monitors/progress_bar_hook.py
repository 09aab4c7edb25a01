"""Shows the progress of a run."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Gt

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, Situation, settings
from ignite_hooks.model.optimizers import learning_rates
from ignite_hooks.plan.priority import Priority
from ignite_hooks.terminal import in_notebook
from ignite_hooks.writers.interface import missing

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

Form = Literal["auto", "terminal", "notebook", "file"]


@settings
class ProgressBarHook(BaseHook):
    """Show a bar for the run with epoch, loss, learning rate and time left, and below it one for each evaluation.

    In a file or a pipe there is a line for every tenth of the run instead. Log lines appear above the bar.

    Args:
        refresh: Minimum number of seconds between two updates; nothing waits for a device in between.
        form: auto, terminal, notebook or file.

    Reads: outputs, optimizer.
    """

    refresh: Annotated[float, Gt(0)] = 0.5
    form: Form = "auto"
    priority: PriorityLike = Priority.LOW
    on_error: OnError = "warn"
    clock: Callable[[], float] = field(init=False, repr=False, default=time.monotonic)

    def __post_init__(self) -> None:
        self._bar: Any = None
        self._evaluation_bar: Any = None
        self._form: Form = self.form
        self._next = 0.0
        self._tenth = 0
        self._began = 0.0
        self._began_at = 0
        self._redirected: list[tuple[Any, Any]] = []

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if problem := missing("tqdm"):
            yield "", problem

    def before_train(self, runner: Runner) -> None:
        # Not before_run: a resume happens between the two.
        if not is_main_process():
            return
        self._form = form_of(sys.stderr) if self.form == "auto" else self.form
        self._next, self._began, self._began_at = 0.0, self.clock(), runner.global_step
        total = runner.max_iters
        self._tenth = 10 * runner.global_step // total if total else 0
        if self._form != "file":
            self._bar = self._make_bar(total=total, initial=runner.global_step, desc=_epoch(runner), leave=True)
            self._redirect()

    def after_train_iter(self, runner: Runner, optimizer: Any = None) -> None:
        now = self.clock()
        if now < self._next:
            return
        self._next = now + self.refresh
        self._update(runner, optimizer)

    def before_val(self, runner: Runner) -> None:
        self._open_evaluation_bar(runner)

    def after_val_iter(self, runner: Runner) -> None:
        self._advance_evaluation_bar(runner)

    def after_val(self) -> None:
        self._close_evaluation_bar()

    def before_test(self, runner: Runner) -> None:
        self._open_evaluation_bar(runner)

    def after_test_iter(self, runner: Runner) -> None:
        self._advance_evaluation_bar(runner)

    def after_test(self) -> None:
        self._close_evaluation_bar()

    def cleanup(self, runner: Runner) -> None:
        self._close_evaluation_bar()
        # A scheduler has set the rate of an epoch that does not come.
        self._update(runner, None)
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()
        while self._redirected:
            handler, stream = self._redirected.pop()
            handler.setStream(stream)
        # After a failure before the first bar nothing may be printed for it.
        self._form = self.form

    def _update(self, runner: Runner, optimizer: Any) -> None:
        if self._bar is not None:
            self._bar.set_description_str(_epoch(runner), refresh=False)
            self._bar.set_postfix_str(_losses_and_rate(runner, optimizer), refresh=False)
            self._bar.update(runner.global_step - self._bar.n)
            self._bar.refresh()
        elif self._form == "file":
            self._print_line(runner, optimizer)

    def _print_line(self, runner: Runner, optimizer: Any) -> None:
        """Print a line for every tenth of the run, each once."""
        done, total = runner.global_step, runner.max_iters
        if not total or 10 * done // total <= self._tenth or not is_main_process():
            return
        self._tenth = 10 * done // total
        spent = self.clock() - self._began
        left = spent / max(1, done - self._began_at) * (total - done)
        words = f"{10 * self._tenth:3d} %  {_epoch(runner)}  {_losses_and_rate(runner, optimizer)}".rstrip()
        # A notebook paints stderr red.
        screen = sys.stdout if in_notebook() else sys.stderr
        print(f"{words}  {_clock(spent)} spent, {_clock(left)} left", file=screen, flush=True)

    def _open_evaluation_bar(self, runner: Runner) -> None:
        if self._bar is not None and self._evaluation_bar is None:
            length = runner.engine.state.epoch_length
            self._evaluation_bar = self._make_bar(total=length, desc=runner.state.evaluating or "val", leave=False)

    def _advance_evaluation_bar(self, runner: Runner) -> None:
        now = self.clock()
        if self._evaluation_bar is not None and now >= self._next:
            self._next = now + self.refresh
            self._evaluation_bar.update(runner.batch_idx + 1 - self._evaluation_bar.n)
            self._evaluation_bar.refresh()

    def _close_evaluation_bar(self) -> None:
        bar, self._evaluation_bar = self._evaluation_bar, None
        if bar is not None:
            bar.close()

    def _make_bar(self, **more: Any) -> Any:
        if self._form == "notebook":
            from tqdm.notebook import tqdm_notebook as tqdm
        else:
            from tqdm.std import tqdm
        # We draw it ourselves; tqdm's monitor thread is not needed.
        tqdm.monitor_interval = 0
        return tqdm(mininterval=0, dynamic_ncols=True, file=sys.stderr, **more)

    def _redirect(self) -> None:
        """Make log handlers that write to the terminal print above the bar."""
        for handler in _console_handlers():
            self._redirected.append((handler, handler.stream))
            handler.setStream(_AboveTheBar(handler.stream))


class _AboveTheBar:
    """A stream that prints its lines above the bar."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        from tqdm.std import tqdm

        tqdm.write(text, file=self._stream, end="")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def form_of(stream: Any) -> Form:
    """Return the form that fits a stream.

    Example:
        >>> import io
        >>> form_of(io.StringIO())
        'file'
    """
    if in_notebook():
        # Without its widgets a bar would leave a line at every update.
        return "file" if missing("ipywidgets", "notebook") else "notebook"
    return "terminal" if getattr(stream, "isatty", bool)() else "file"


def _console_handlers() -> list[Any]:
    """Return the log handlers that write to the terminal."""
    found = []
    for logger in (logging.getLogger(), logging.getLogger("ignite"), logging.getLogger("ignite_hooks")):
        for handler in logger.handlers:
            is_stream = isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler)
            if is_stream and getattr(handler, "stream", None) in (sys.stderr, sys.stdout):
                found.append(handler)
    return found


def _epoch(runner: Runner) -> str:
    epoch, last = max(1, int(runner.trainer_state.epoch)), runner.max_epochs
    return f"Epoch {epoch}" if last is None else f"Epoch {str(epoch).rjust(len(str(last)))}/{last}"


def _losses_and_rate(runner: Runner, optimizer: Any) -> str:
    # Lines of the log have means: this is the loss of one iteration.
    words = [f"{name} {float(value):.4g} now" for name, value in runner.loss_dict.items() if name == "loss"]
    words += [f"{name} {rate:.2e}" for name, rate in list(learning_rates(optimizer).items())[:1]]
    return "  ".join(words)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
