"""Helpers for tests of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

GOOD = """\
hooks:
  - {type: LoggerHook, interval: 2}
  - {type: EvalHook, name: val, interval: 2}
  - {type: CheckpointHook, name: saver, best_metric: accuracy}
  - {type: EarlyStoppingHook, monitor: accuracy, patience: 3}
"""


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Ask = Callable[..., Answer]
Write = Callable[..., str]
