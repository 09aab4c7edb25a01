"""Save checkpoints and load them: a state becomes plain types, then a file that is complete or does not exist."""

from ignite_hooks.store.folder import FolderStore
from ignite_hooks.store.interface import Retire, Saving, Store
from ignite_hooks.store.manifest import Entry, Kind, Manifest
from ignite_hooks.store.memory import MemoryStore
from ignite_hooks.store.plain import to_plain

__all__ = [
    "Entry",
    "FolderStore",
    "Kind",
    "Manifest",
    "MemoryStore",
    "Retire",
    "Saving",
    "Store",
    "to_plain",
]
