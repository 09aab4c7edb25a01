"""The keys of a configuration at top level: which are ours, and which are the script's."""

from __future__ import annotations

from ignite_hooks.text import nearest

OURS = (
    "hooks",
    "default_hooks",
    "custom_hooks",
    "writers",
    "writer",
    "work_dir",
    "experiment_dir",
    "resume",
    "resume_settings",
    "load_from",
    "seed",
    "rank_timeout",
    "overhead_budget",
    "signals",
    "requeue",
)
"""The keys at top level that are ours; all others belong to the script."""

SCRIPTS = (
    "model",
    "models",
    "dataset",
    "data",
    "training",
    "train",
    "evaluation",
    "optimizer",
    "scheduler",
    "imports",
    "speed",
)
"""Keys of scripts and of BaseTrainer that resemble ours."""

LISTS_OF_HOOKS = ("hooks", "default_hooks", "custom_hooks")
"""The keys below which hooks stand."""


def is_ours(key: object) -> bool:
    """Return whether we read what a key at top level holds; the rest is the script's, and is not judged."""
    return key in OURS


def misspelt_key(key: object) -> str | None:
    """Return the key of ours that a key misspells: with a letter too many or too few, or two letters exchanged."""
    if not isinstance(key, str) or key in OURS or key in SCRIPTS:
        return None
    exchanged = [ours for ours in OURS if key[:1] == ours[0] and sorted(key) == sorted(ours)]
    return exchanged[0] if exchanged else nearest(key, OURS, cutoff=0.8)
