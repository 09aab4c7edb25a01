"""Compares the number of classes of the model with that of the data."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from ignite_hooks.hooks.base_hook import BaseHook, settings
from ignite_hooks.model.class_names import class_names
from ignite_hooks.model.wrapping import unwrapped

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


@settings
class NumClassCheckHook(BaseHook):
    """Compare the num_classes of the modules of the model with the class names of the data set.

    It checks before the training and before each evaluation. The names are ``metainfo["classes"]``, ``CLASSES`` or
    ``classes`` of the data set, or of one it wraps, or the service ``class_names``. Data without names is reported
    once; a text in their place is an error, as each letter would count as a class.

    Args:
        ignore: The modules that count something else: patterns for their names and their classes, parents included.

    Reads: model; the data set of the loader that is used.
    """

    ignore: list[str] = field(default_factory=lambda: ["*rpn_head", "VGG", "FusedSemanticHead"])

    may_end_a_run: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._warned_about: set[str] = set()

    def before_run(self) -> None:
        self._warned_about.clear()

    def before_train(self, runner: Runner, model: Any) -> None:
        self._compare(runner, model, "train")

    def before_val(self, runner: Runner, model: Any) -> None:
        self._compare(runner, model, runner.state.evaluating or "val")

    def _compare(self, runner: Runner, model: Any, use: str) -> None:
        names, kind = class_names(runner.engine.state.dataloader)
        names = runner.get_service("class_names") if names is None else names
        if names is None:
            if use not in self._warned_about:
                self._warned_about.add(use)
                runner.logger.warning("the %s data (%s) has no class names to compare the model with", use, kind)
            return
        if wrong := list(wrong_counts(counting_modules(model, self.ignore), len(names))):
            few = ", ".join(map(str, names[:5])) + (", ..." if len(names) > 5 else "")
            raise ValueError(
                f"the {use} data ({kind}) has {_classes(len(names))} ({few}), but {'; '.join(wrong)}: "
                "set num_classes, or name what counts something else in 'ignore'"
            )


def counting_modules(model: Any, ignore: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield the modules with a number of classes, in words, and that number."""
    for name, module in unwrapped(model).named_modules():
        count = getattr(module, "num_classes", None)
        name, kind = name.replace("_orig_mod.", ""), type(module).__name__
        words = (name, *(cls.__name__ for cls in type(module).__mro__))
        ignored = any(fnmatch.fnmatchcase(word, pattern) for pattern in ignore for word in words)
        if isinstance(count, int) and not isinstance(count, bool) and not ignored:
            yield f"{name} ({kind})" if name else kind, count


def wrong_counts(found: Iterable[tuple[str, int]], expected: int) -> Iterator[str]:
    """Return the modules whose number differs, in words.

    Example:
        >>> list(wrong_counts([("head (Head)", 80), ("neck (Neck)", 3)], 3))
        ['head (Head) has num_classes 80']
    """
    yield from (f"{name} has num_classes {count}" for name, count in found if count != expected)


def _classes(count: int) -> str:
    return "1 class" if count == 1 else f"{count} classes"
