"""The page of the sections of a trainer, and of everything that they can name."""

from __future__ import annotations

from typing import Any

from docs.generate.tables import prose, settings_table
from ignite_hooks.config.describe import describe
from ignite_hooks.trainer import registries
from ignite_hooks.trainer.sections import Evaluation, Training

SUPPLIED = ("params", "optimizer", "criterion")
"""Settings that a trainer supplies."""


def sections() -> str:
    """Return the sections of a trainer and everything that they can name, with the settings of each."""
    registries_of = {
        "model": registries.MODELS,
        "dataset": registries.DATASETS,
        "training.optimizer": registries.OPTIMIZERS,
        "training.scheduler": registries.SCHEDULERS,
        "training.criterion": registries.CRITERIA,
        "evaluation.metrics": registries.METRICS,
    }
    parts = []
    for key, cls in (("training", Training), ("evaluation", Evaluation)):
        parts += [f"## {key}", "", *prose(cls), "", *_table(cls), ""]
    for key, registry in registries_of.items():
        parts += [f"## {key}", ""]
        made = {name: registry.get(name) for name in registry}
        for name, make in made.items():
            others = [other for other, thing in made.items() if thing is make and other != name]
            if others and name != getattr(make, "__name__", name):
                continue
            also = f" Also: {', '.join(f'`{other}`' for other in others)}." if others else ""
            ours = make.__module__.startswith("ignite_hooks.")
            source = registry.source_of(name)
            # The help of others is not written for a table.
            text = prose(make) if ours or source is None else [f"`{source[0]}.{source[1]}`."]
            parts += [f"### {name}", "", *text[:-1], text[-1] + also, "", *_table(make), ""]
    return "\n".join(parts)


def _table(make: Any) -> list[str]:
    """Return the settings of a section or of what it names, as a table."""
    of_section = make.__name__ == "Training"
    own = [each for each in describe(make).settings if each.name not in SUPPLIED or of_section]
    return settings_table(own, with_help=make.__module__.startswith("ignite_hooks."))
