"""A test after the end of a run, as result, trackers and report are told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ignite_hooks.measure.results import Result
from ignite_hooks.results.result import RecordedTest, add_test, read_result
from ignite_hooks.run.metrics import Evaluated, numbers_of, results_of

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner
    from ignite_hooks.writers.interface import Writer

POINT: Final = "after_late_test"
"""The point at which hooks hear of it, with the payload ``tested``."""


@dataclass(frozen=True)
class LateTest:
    """What a test after the end of a run has found, and of which weights.

    Args:
        split: The name of the evaluation.
        checkpoint: The file with the weights, below the work directory where it is there.
        weights: ``raw``, ``ema``, or the name of a further average.
        chosen: Whether other weights were asked for than those that the run delivers.
        step: The last iteration of the run.
        metrics: The numbers, with those of single classes.
        results: What is more than a number.
    """

    split: str
    checkpoint: str
    weights: str
    chosen: bool
    step: int
    metrics: Mapping[str, float]
    results: Mapping[str, Result] = field(default_factory=dict)
    kind: str = ""
    """Which of the weights they are, in words."""

    @property
    def key(self) -> str:
        """Its name in ``result.json``."""
        return f"{self.split}/{self.checkpoint}/{self.weights}"

    @property
    def name(self) -> str:
        """What its numbers begin with in trackers: other weights than the delivered ones get curves of their own.

        Example:
            >>> (
            ...     LateTest("test", "best.pth", "raw", False, 9, {}).name,
            ...     LateTest("test", "best.pth", "raw", True, 9, {}).name,
            ... )
            ('test', 'test@best-raw')
        """
        return f"{self.split}@{Path(self.checkpoint).stem}-{self.weights}" if self.chosen else self.split

    def record(self, folder: Path) -> None:
        """Add it to the result of the run; raise `ResultError` where there is none."""
        add_test(folder, self.key, RecordedTest(self.metrics, self.checkpoint, self.weights))

    def write(self, place: Writer) -> None:
        """Write it to a tracker, at the last step of the run."""
        scalars = {f"{self.name}/{metric}": value for metric, value in self.metrics.items()}
        results = {f"{self.name}/{name}": result for name, result in self.results.items()}
        # The names are whole, so that no kind is put before them.
        place.write_scalars(scalars, self.step, kind="system")
        Evaluated(self.step, 0, self.split, {}, {}, results).write_results(place.write_result, "system")
        place.write_text(f"tested/{self.name}", f"{self.kind} of {self.checkpoint}", self.step)


def late_test(runner: Runner, split: str, metrics: Mapping[str, Any], **about: Any) -> LateTest:
    """Return a test that has just been made.

    Args:
        runner: The run.
        split: The name of the evaluation.
        metrics: What its evaluator has found.
        **about: The checkpoint, which of its weights and what those are in words, the step, and whether other weights
            than the delivered ones were asked for.
    """
    labels = runner.metrics.labels
    numbers = {name: float(value) for name, value in numbers_of(metrics, labels).items()}
    results = results_of(metrics, labels, runner.evaluators[split])
    return LateTest(split, metrics=numbers, results=results, **about)


def has_result(runner: Runner) -> bool:
    """Return whether the run has ended and its result is in its folder."""
    found = None if runner.state.running or not runner.state.run_id else read_result(runner.work_dir)
    return found is not None and found.run == runner.state.run_id
