"""The command ``validate``: say what is wrong with configurations, as far as a file can tell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ignite_hooks.cli.text import one_line_width, wrap_paragraph
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.secrets import Masks
from ignite_hooks.terminal import coloured
from ignite_hooks.text import counted, nearest, setting_place, shown

if TYPE_CHECKING:
    from ignite_hooks.config.read import HookEntry, Settings


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    validate = commands.add_parser("validate", help="every problem of configurations, as far as a file can tell")
    validate.add_argument("config", metavar="CONFIG", nargs="+", help="a .yaml, .json, .toml or .py file")
    validate.set_defaults(command=_validate)


def _validate(options: argparse.Namespace) -> int:
    reviews = []
    for path in options.config:
        review = review_file(path)
        reviews.append(review)
        if review.problems:
            print_problems(review)
        else:
            print(f"{path}: {counted(len(review.hooks) + review.unseen, 'hook')}, no problems")
            print_notes(review)
    return 2 if any(review.problems for review in reviews) else 0


@dataclass
class Review:
    """The result of checking a file alone: its hooks, its problems, and what a script has to add."""

    path: str
    hooks: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unseen: int = 0
    """Hooks that cannot be built without the script."""
    added: str = ""
    """The hooks that a trainer adds, in words."""


def review_file(path: str, *, load: bool = False) -> Review:
    """Check a file as far as possible without its script.

    Args:
        path: The file.
        load: Whether handlers of Ignite are made, which loads torch; else they are checked from their source.
    """
    from ignite_hooks.config.build import build_all
    from ignite_hooks.config.build_writers import classes_of_writers, validate_writer
    from ignite_hooks.config.handler_source import check_handler
    from ignite_hooks.config.ignite_handlers import PREFIX
    from ignite_hooks.config.outer_form import unread, why_unread
    from ignite_hooks.config.read import default_set, read_config
    from ignite_hooks.hooks.base_hook import Situation
    from ignite_hooks.trainer.from_source import belongs_to_trainer, check_sections

    found: list[Problem] = []
    try:
        settings = read_config(path, defaults=default_set(), problems=found)
        trains = {"model", "dataset"} <= set(settings.everything)
        if trains:
            # A trainer needs no script, and evaluates the data it has.
            found.clear()
            settings = read_config(settings.everything, defaults=default_set(evaluates=True), problems=found)
    except ConfigError as error:
        # Problems of a file that cannot be read already begin with its name.
        return Review(path, problems=[str(problem) for problem in error.problems])
    entries, strangers = _known(settings.entries)
    sections: list[str] = []
    if trains and belongs_to_trainer(settings.everything):
        wrong, sections = check_sections(settings.everything)
        places = {problem.place for problem in found}
        found += [problem for problem in wrong if problem.place not in places]
    elif trains:
        sections = ["model and dataset name nothing of ours: they are taken for sections of a script, and not checked"]
    if not load:
        handlers = [entry for entry in entries if entry.wanted["type"].startswith(PREFIX)]
        for wrong, notes in map(check_handler, handlers):
            found += wrong
            sections += notes
        entries = [entry for entry in entries if entry not in handlers]
    alone = trains and belongs_to_trainer(settings.everything)
    hooks, wrong = build_all(entries, {}, Situation(complete=False, writers=classes_of_writers(settings), alone=alone))
    found += wrong
    for entry in settings.writers:
        validate_writer(entry, found)
    masks = Masks(settings.everything)
    review = Review(path, hooks, [f"{path}: {masks.text(' '.join(str(problem).split()))}" for problem in found])
    if not found:
        review.unseen = len(settings.entries) - len(hooks)
        review.notes = [
            *map(why_unread, unread(settings.everything)),
            *sections,
            *strangers,
            *_waiting(settings.entries),
            *(f"{name} {words}" for name, hook in hooks.items() if (words := getattr(hook, "waits_for", ""))),
            *([] if trains else _notes(settings, hooks)),
        ]
        if trains:
            review.notes += [f"to check model and data as well, run 'ignite-hooks train {path} --dry-run'"]
            review.added = _added(settings, hooks)
    return review


def _added(settings: Settings, hooks: Mapping[str, Any]) -> str:
    """Name the hooks that a trainer adds to those of its configuration."""
    evaluated = {getattr(hook, "evaluates", None) for hook in hooks.values()}
    added = ["val (EvalHook)"] if "hooks" in settings.everything and "val" not in evaluated else []
    added += ["test (EvalHook, at the end)"] if "test" not in evaluated else []
    remark = "; evaluations where the data has a part for them" if added else ""
    training = settings.everything.get("training")
    added += ["scheduler"] if isinstance(training, Mapping) and training.get("scheduler") is not None else []
    return f"the trainer adds {', '.join([*added, 'config'])}{remark}"


def _known(entries: Sequence[HookEntry]) -> tuple[list[HookEntry], list[str]]:
    """Return the entries of known or misspelt hooks, and notes on hooks that a script may register."""
    from ignite_hooks.config.ignite_handlers import PREFIX
    from ignite_hooks.registry import HOOKS

    stems = [name.removesuffix("Hook") for name in HOOKS]
    known, notes = [], []
    for entry in entries:
        type_ = entry.wanted["type"]
        # The common ending makes all names similar: `MyHook` is not a misspelt `EMAHook`.
        is_slip = nearest(type_, HOOKS, cutoff=0.85) or nearest(type_.removesuffix("Hook"), stems, cutoff=0.75)
        if type_ in HOOKS or type_.startswith(PREFIX) or is_slip or HOOKS.is_plugin(type_):
            known.append(entry)
        else:
            notes.append(f"{entry.place}.type: no hook of ours is called {shown(type_)}: the script has to register it")
    return known, notes


def _waiting(entries: Sequence[HookEntry]) -> Iterator[str]:
    """Yield notes on Ignite handlers that need services, which only a script can supply."""
    from ignite_hooks.config.ignite_handlers import PREFIX

    for entry in entries:
        # The arguments of `attach` are not needed before the handler is attached.
        own = {name: value for name, value in entry.wanted.items() if name != "arguments"}
        services = ", ".join(dict.fromkeys(_references(own)))
        if entry.wanted["type"].startswith(PREFIX) and services:
            yield f"{entry.place}: {entry.wanted['type']} cannot be checked without {services}"


def _notes(settings: Settings, hooks: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes on what a script has to supply, or may."""
    from ignite_hooks.hooks.base_hook import BaseHook, Situation
    from ignite_hooks.run.services import KNOWN_SERVICES

    wanted = [entry.wanted for entry in (*settings.entries, *settings.writers)]
    needed = {*_references(wanted), *_required_services(hooks)}
    if needed:
        yield f"needs {', '.join(_in_order(needed))} from the script"
    read = _services_read(hooks) - needed
    if read:
        yield f"uses {', '.join(_in_order(read))} if the script passes {'it' if len(read) == 1 else 'them'}"
    # Check as if the script passed every service and no evaluators.
    services = frozenset({*KNOWN_SERVICES, *needed})
    for name, hook in hooks.items():
        if isinstance(hook, BaseHook) and not any(_references(list(vars(hook).values()))):
            for setting, message in hook.check(Situation(frozenset(), services, hooks)):
                yield f"if the script passes no evaluators, {setting_place(name, setting)}: {message}"
    changes = settings.everything.get("default_hooks") or {}
    if "hooks" not in settings.everything and "eval" not in changes:
        yield "if the script passes val_loader, eval (EvalHook) is added"


def _references(value: Any) -> Iterator[str]:
    """Yield the services that an entry names, as in ``"@model"``."""
    from ignite_hooks.config.validate import is_reference

    if is_reference(value):
        yield value[1:]
    elif isinstance(value, (Mapping, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _references(item)


def _required_services(hooks: Mapping[str, Any]) -> Iterator[str]:
    """Yield the services without which a method cannot be called."""
    from ignite_hooks.plan.arguments import KINDS
    from ignite_hooks.plan.plan import Plan
    from ignite_hooks.run.services import ALWAYS_THERE, KNOWN_SERVICES, LIVE
    from ignite_hooks.system.python import parameters_of

    for slot in Plan(hooks):
        given = {*ALWAYS_THERE, *LIVE, *slot.point.payload, "config"}
        for index, parameter in enumerate(parameters_of(slot.bound_method)):
            is_named = parameter.kind not in (KINDS.VAR_POSITIONAL, KINDS.VAR_KEYWORD)
            # A first parameter that is no known service gets the runner.
            is_service = parameter.name in KNOWN_SERVICES or index > 0
            if is_named and is_service and parameter.default is KINDS.empty and parameter.name not in given:
                yield parameter.name


def _services_read(hooks: Mapping[str, Any]) -> set[str]:
    """Return the known services that the docstrings of the hooks say they read."""
    from ignite_hooks.config.describe import notes_of
    from ignite_hooks.run.services import KNOWN_SERVICES

    words = {word.strip(".,;()`") for hook in hooks.values() for word in notes_of(type(hook))["reads"].split()}
    return words & set(KNOWN_SERVICES) - {"config"}


def _in_order(services: set[str]) -> list[str]:
    from ignite_hooks.run.services import KNOWN_SERVICES

    return [*(name for name in KNOWN_SERVICES if name in services), *sorted(services - set(KNOWN_SERVICES))]


def print_problems(review: Review) -> None:
    """Print the problems of a file to stderr."""
    sys.stdout.flush()  # so that both streams keep their order in one terminal or file
    for problem in review.problems:
        print(coloured(problem, "red", sys.stderr), file=sys.stderr)


def print_notes(review: Review) -> None:
    """Print the notes on a file."""
    for note in review.notes:
        print(wrap_paragraph(f"note: {note}", "  ", width=one_line_width()))
