"""For tests of hooks: a tiny trainer, a writer and a store in memory, hooks that record or fail, and ``check_hook``."""

from ignite_hooks.store.memory import MemoryStore
from ignite_hooks.testing.promises import check_hook
from ignite_hooks.testing.recording import RecordingHook, failing_at
from ignite_hooks.testing.tiny import TinyRun, tiny_run, tiny_trainer
from ignite_hooks.writers.memory import MemoryWriter

__all__ = [
    "MemoryStore",
    "MemoryWriter",
    "RecordingHook",
    "TinyRun",
    "check_hook",
    "failing_at",
    "tiny_run",
    "tiny_trainer",
]
