"""Hooks that record their calls, or fail at one of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ignite_hooks.hooks.base_hook import BaseHook
from ignite_hooks.hooks.training.lambda_hook import LambdaHook
from ignite_hooks.plan.points import POINTS
from ignite_hooks.run.runner import Runner


class RecordingHook(BaseHook):
    """Record every call: the point, and the epoch and iteration of the trainer, both counted from 1.

    Args:
        points: The points it answers, any method name among them; all known points by default.
        log: A list that several recorders share; each call is added to it with the name of the hook in front.
        **settings: The settings every hook has: name, priority, on_error, interval, by_epoch, start, every.

    Example:
        >>> import tempfile
        >>> from ignite_hooks import attach_hooks
        >>> from ignite_hooks.testing import tiny_trainer
        >>> trainer, data = tiny_trainer(batches=2)
        >>> recorder = RecordingHook(points=["after_train_iter", "after_epoch"])
        >>> runner = attach_hooks(trainer, [recorder], work_dir=tempfile.mkdtemp())
        >>> state = trainer.run(data, max_epochs=1)
        >>> recorder.calls
        [('after_train_iter', 1, 1), ('after_train_iter', 1, 2), ('after_epoch', 1, 2)]
    """

    reads_schedule = True

    def __init__(
        self,
        *,
        points: Iterable[str] | None = None,
        log: list[tuple[str, str, int, int]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(settings)
        self.calls: list[tuple[str, int, int]] = []
        self._points = tuple(POINTS if points is None else points)
        self._log = log

    def answers(self) -> Mapping[str, Callable[..., Any]]:
        return {
            point: getattr(self, point) if point in POINTS else functools.partial(self._record, point)
            for point in self._points
        }

    def _record(self, point: str, runner: Runner) -> None:
        place = int(runner.trainer.state.epoch), runner.global_step
        self.calls.append((point, *place))
        if self._log is not None:
            name = next((name for name, hook in runner.hooks.items() if hook is self), type(self).__name__)
            self._log.append((name, point, *place))


def _recording(point: str) -> Callable[[RecordingHook, Runner], None]:
    def answer(self: RecordingHook, runner: Runner) -> None:
        self._record(point, runner)

    answer.__name__ = point
    return answer


for _point in POINTS:
    setattr(RecordingHook, _point, _recording(_point))


def failing_at(point: str, *, call: int = 1, error: BaseException | None = None, **settings: Any) -> BaseHook:
    """Return a hook that raises at one call of a point and does nothing else.

    Args:
        point: The point it answers.
        call: The call at which it raises, counted from 1.
        error: What it raises; ``ValueError("boom")`` by default.
        **settings: The settings every hook has.

    Example:
        >>> import tempfile
        >>> from ignite_hooks import HookError, attach_hooks
        >>> from ignite_hooks.testing import tiny_trainer
        >>> trainer, data = tiny_trainer()
        >>> hook = failing_at("after_train_iter", call=2)
        >>> runner = attach_hooks(trainer, [hook], work_dir=tempfile.mkdtemp())
        >>> try:
        ...     trainer.run(data)
        ... except HookError as failure:
        ...     print(failure)
        FailingHook.after_train_iter failed at epoch 1, iteration 2: ValueError: boom
    """
    calls = 0

    def answer() -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise ValueError("boom") if error is None else error

    hook = LambdaHook(**{point: answer}, **settings)
    hook.default_name = "FailingHook"
    return hook
