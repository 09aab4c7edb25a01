"""Check entries of Ignite's handlers from the source of Ignite, which is not loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ignite_hooks.config.build import AROUND, BuildContext, around, of_call
from ignite_hooks.config.describe import describe
from ignite_hooks.config.ignite_handlers import PREFIX
from ignite_hooks.config.outline import class_module, method_outline, names_in, outline
from ignite_hooks.config.read import HookEntry
from ignite_hooks.config.validate import validate_settings
from ignite_hooks.errors import Problem
from ignite_hooks.hooks.base_hook import COMMON_SETTINGS
from ignite_hooks.text import did_you_mean, shown

HANDLERS = PREFIX.removesuffix(".")


def check_handler(entry: HookEntry) -> tuple[list[Problem], list[str]]:
    """Return what is wrong with an entry of one of Ignite's handlers, and a note if its settings cannot be read."""
    given = dict(entry.wanted)
    type_ = given.pop("type")
    name = type_.removeprefix(PREFIX)
    context = BuildContext(entry.place, {}, complete=False)
    made = outline(HANDLERS, name)
    home = class_module(HANDLERS, name) or ""
    known = [each for each in names_in(HANDLERS) if (class_module(HANDLERS, each) or "").startswith(PREFIX)]
    if known and not home.startswith(PREFIX):
        context.add_problem(f"ignite.handlers has no handler {shown(name)}{did_you_mean(name, known)}", "type")
        return context.problems, []
    if made is None:
        around({word: value for word, value in given.items() if word in AROUND}, context)
        return context.problems, [f"{entry.place}: the settings of {type_} could not be read, and were not checked"]
    parameters = {setting.name for setting in describe(made).settings}
    own = {word: given.pop(word) for word in list(given) if word in parameters or word not in AROUND}
    attach = method_outline(HANDLERS, name, "attach")
    call = method_outline(HANDLERS, name, "__call__")
    own, given = of_call(own, given, parameters, call, attaches=attach is not None)
    context.problems.extend(validate_settings(made, own, entry.place, hook=False))
    around(given, context)
    if attach is not None and not context.problems:
        _check_attached(name, given, attach, context)
    return context.problems, []


def _check_attached(name: str, given: Mapping[str, Any], attach: Callable[..., Any], context: BuildContext) -> None:
    takes = {setting.name for setting in describe(attach).settings}
    if given.get("event") is not None and not takes & {"event", "event_name"}:
        context.add_problem(f"{name} chooses its events itself and takes none", "event")
    for word in given:
        if word in COMMON_SETTINGS and word != "name":
            context.add_problem(f"no effect: {name} chooses its events itself, leave it out", word)
