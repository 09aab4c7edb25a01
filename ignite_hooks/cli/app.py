"""``ignite-hooks``: train from a configuration, and look at configurations and hooks without running anything."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ignite_hooks import __version__
from ignite_hooks.errors import ConfigError, Problem
from ignite_hooks.secrets import Masks, masked
from ignite_hooks.text import counted, did_you_mean, nearest, shown, table

if TYPE_CHECKING:
    from ignite_hooks.config.describe import Description, Setting
    from ignite_hooks.config.read import Entry, Settings
    from ignite_hooks.plan.plan import Plan, Slot
    from ignite_hooks.registry import Registry

WIDEST = 100
"""Text is not set wider than this, however wide the terminal."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0, 1 for a failure, 2 for a configuration with problems; argparse exits with 2 where the usage is wrong.
    """
    options = _parser().parse_args(argv)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has seen enough; what is left must not fail again when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"ignite-hooks: {error}", file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ignite-hooks",
        description="Train from a configuration, or look at configurations and hooks without running anything.",
    )
    parser.add_argument("--version", action="version", version=f"ignite-hooks {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    _add_training(commands)

    explain = commands.add_parser("explain", help="which hook runs where, in which order and how often")
    explain.add_argument("config", metavar="CONFIG", help="a .yaml, .json, .toml or .py file")
    explain.add_argument("--timeline", action="store_true", help="print the sequence of calls of a short run instead")
    explain.add_argument("--epochs", metavar="N", type=_count, default=2, help="epochs of the short run (default 2)")
    explain.add_argument("--iters", metavar="N", type=_count, default=3, help="iterations to an epoch (default 3)")
    explain.add_argument(
        "--val-iters", metavar="N", type=_count, default=1, help="iterations of an evaluation (default 1)"
    )
    explain.set_defaults(command=_explain)

    validate = commands.add_parser("validate", help="every problem of configurations, as far as a file can tell")
    validate.add_argument("config", metavar="CONFIG", nargs="+", help="a .yaml, .json, .toml or .py file")
    validate.set_defaults(command=_validate)

    listed = commands.add_parser("list", help="every hook and writer, or the settings of one")
    listed.add_argument("hook", metavar="HOOK", nargs="?", help="a hook or writer")
    listed.set_defaults(command=_list)

    send = commands.add_parser("send", help="deliver what trackers could not be given during a run")
    send.add_argument("folder", metavar="DIR", nargs="+", help="a work directory; folders within it are looked at too")
    send.set_defaults(command=_send)

    convert = commands.add_parser("convert", help="the hooks of an MMEngine configuration as ours, with what changed")
    convert.add_argument("config", metavar="FILE", help="a .py file, which is read and not run")
    convert.add_argument("-o", "--output", metavar="FILE", help="write it there instead of printing it")
    convert.set_defaults(command=_convert)

    schema = commands.add_parser("schema", help="a JSON Schema of configurations, for editors")
    schema.set_defaults(command=_schema)
    return parser


def _add_training(commands: Any) -> None:
    train = commands.add_parser("train", help="train what a configuration describes; also under torchrun")
    train.add_argument("config", metavar="CONFIG", help="a .yaml, .json, .toml or .py file with model and dataset")
    train.add_argument(
        "--resume",
        metavar="auto|PATH",
        help="go on from the newest checkpoint of the work directory, or from one",
    )
    train.add_argument("--work-dir", metavar="DIR", help="where files go, instead of where the configuration says")
    train.add_argument(
        "--dry-run", action="store_true", help="build everything, run two iterations and an evaluation, keep nothing"
    )
    train.set_defaults(command=_train)

    resume = commands.add_parser("resume", help="go on with the run of a work directory")
    resume.add_argument("folder", metavar="DIR", help="the work directory of a run")
    resume.set_defaults(command=_resume)

    demo = commands.add_parser("demo", help="train a small model on real digits with every kind of hook on")
    demo.add_argument("--work-dir", metavar="DIR", default="work_dirs/demo", help="where files go (%(default)s)")
    demo.add_argument("--no-show", action="store_true", help="do not open the report, even where there is a display")
    demo.set_defaults(command=_demo)

    for command in (train, resume, demo):
        command.add_argument(
            "--set",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            dest="overrides",
            help="another value, as hooks.0.interval=10; more than once for several",
        )


def _quieten_torch() -> None:
    """What the profiler of torch says to stderr is for those who work on it. Read once, when torch is loaded: later."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def _train(options: argparse.Namespace) -> int:
    _quieten_torch()
    from ignite_hooks.trainer import commands

    return commands.train(
        options.config,
        resume=options.resume,
        overrides=options.overrides,
        work_dir=options.work_dir,
        dry_run=options.dry_run,
    )


def _resume(options: argparse.Namespace) -> int:
    _quieten_torch()
    from ignite_hooks.trainer import commands

    return commands.resume(options.folder, overrides=options.overrides)


def _demo(options: argparse.Namespace) -> int:
    _quieten_torch()
    from ignite_hooks.trainer import commands

    return commands.demo(work_dir=options.work_dir, overrides=options.overrides, show=not options.no_show)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number is needed, not {text!r}")
    return int(text)


# -- validate ---------------------------------------------------------------------------------------------------


def _validate(options: argparse.Namespace) -> int:
    reviews = []
    for path in options.config:
        review = _review(path)
        reviews.append(review)
        if review.problems:
            _complain(review)
        else:
            print(f"{path}: {counted(len(review.hooks) + review.unseen, 'hook')}, no problems")
            _print_notes(review)
    return 2 if any(review.problems for review in reviews) else 0


@dataclass
class _Review:
    """What a file alone tells: its hooks, what is wrong, and what a script has to add."""

    path: str
    hooks: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unseen: int = 0
    """Hooks that cannot be built without the script."""
    added: str = ""
    """What a trainer does besides."""


def _review(path: str) -> _Review:
    from ignite_hooks.config.build import build_all
    from ignite_hooks.config.read import default_set, read_config
    from ignite_hooks.hooks.base_hook import Situation

    found: list[Problem] = []
    try:
        settings = read_config(path, defaults=default_set(), problems=found)
        trains = {"model", "dataset"} <= set(settings.everything)
        if trains:
            # No script has to add anything, and where there is data there is an evaluation.
            found.clear()
            settings = read_config(settings.everything, defaults=default_set(evaluates=True), problems=found)
    except ConfigError as error:
        # The problems of a file that cannot be read begin with its name.
        return _Review(path, problems=[str(problem) for problem in error.problems])
    entries, strangers = _known(settings.entries)
    hooks, wrong = build_all(entries, {}, Situation(complete=False))
    found += [*wrong, *_wrong_writers(settings.writers)]
    masks = Masks(settings.everything)
    review = _Review(path, hooks, [f"{path}: {masks.text(' '.join(str(problem).split()))}" for problem in found])
    if not found:
        review.unseen = len(settings.entries) - len(hooks)
        review.notes = [*strangers, *_waiting(entries), *([] if trains else _notes(settings, hooks))]
        if trains:
            review.notes += [f"model and data are looked at by 'ignite-hooks train {path} --dry-run'"]
            review.added = _added(settings, hooks)
    return review


def _added(settings: Settings, hooks: Mapping[str, Any]) -> str:
    """The hooks that a trainer registers besides those of its configuration."""
    evaluated = {getattr(hook, "evaluates", None) for hook in hooks.values()}
    added = ["val (EvalHook)"] if "hooks" in settings.everything and "val" not in evaluated else []
    added += ["test (EvalHook, at the end)"] if "test" not in evaluated else []
    remark = "; evaluations where the data has a part for them" if added else ""
    training = settings.everything.get("training")
    added += ["scheduler"] if isinstance(training, Mapping) and training.get("scheduler") is not None else []
    return f"the trainer adds {', '.join([*added, 'config'])}{remark}"


def _known(entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """The entries of hooks we know or that are misspelt, and notes on those that a script may register."""
    from ignite_hooks.config.ignite_handlers import PREFIX
    from ignite_hooks.registry import HOOKS

    stems = [name.removesuffix("Hook") for name in HOOKS]
    known, notes = [], []
    for entry in entries:
        type_ = entry.wanted["type"]
        # The ending alone makes names look alike: `MyHook` is not a misspelt `EMAHook`.
        is_slip = nearest(type_, HOOKS, cutoff=0.85) or nearest(type_.removesuffix("Hook"), stems, cutoff=0.75)
        if type_ in HOOKS or type_.startswith(PREFIX) or is_slip:
            known.append(entry)
        else:
            notes.append(f"{entry.place}.type: no hook of ours is called {shown(type_)}: the script has to register it")
    return known, notes


def _waiting(entries: Sequence[Entry]) -> Iterator[str]:
    """Notes on the handlers of Ignite that are made of services, and so only beside the script."""
    from ignite_hooks.config.ignite_handlers import PREFIX

    for entry in entries:
        # What the handler's own arguments name is not needed before it is attached.
        own = {name: value for name, value in entry.wanted.items() if name != "arguments"}
        services = ", ".join(dict.fromkeys(_references(own)))
        if entry.wanted["type"].startswith(PREFIX) and services:
            yield f"{entry.place}: {entry.wanted['type']} cannot be looked at without {services}"


def _wrong_writers(entries: Sequence[Entry]) -> list[Problem]:
    from ignite_hooks.config.describe import check_settings
    from ignite_hooks.registry import WRITERS

    problems = []
    for entry in entries:
        given = dict(entry.wanted)
        try:
            cls = WRITERS.get(given.pop("type"))
        except LookupError as error:
            problems.append(Problem(f"{entry.place}.type", str(error.args[0])))
        else:
            problems += check_settings(cls, given, entry.place, hook=False)
    return problems


def _notes(settings: Settings, hooks: Mapping[str, Any]) -> Iterator[str]:
    """What a script has to supply, or may."""
    from ignite_hooks.hooks.base_hook import BaseHook, Situation
    from ignite_hooks.run.services import KNOWN_SERVICES

    wanted = [entry.wanted for entry in (*settings.entries, *settings.writers)]
    needed = {*_references(wanted), *_required_services(hooks)}
    if needed:
        yield f"needs {', '.join(_in_order(needed))} from the script"
    read = _services_read(hooks) - needed
    if read:
        yield f"reads {', '.join(_in_order(read))} where the script has {'it' if len(read) == 1 else 'them'}"
    # What would be wrong if the script gave every service and no evaluator.
    services = frozenset({*KNOWN_SERVICES, *needed})
    for name, hook in hooks.items():
        if isinstance(hook, BaseHook) and not any(_references(list(vars(hook).values()))):
            for setting, message in hook.check(Situation(frozenset(), services, hooks)):
                yield f"{name}.{setting}: {message}" if setting else f"{name}: {message}"
    changes = settings.everything.get("default_hooks") or {}
    if "hooks" not in settings.everything and "eval" not in changes:
        yield "eval (EvalHook) is added where the script has val_loader"


def _references(value: Any) -> Iterator[str]:
    """The services that an entry names, as ``"@model"``."""
    from ignite_hooks.config.describe import is_reference

    if is_reference(value):
        yield value[1:]
    elif isinstance(value, (Mapping, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _references(item)


def _required_services(hooks: Mapping[str, Any]) -> Iterator[str]:
    """The services without which a method cannot be called."""
    from ignite_hooks.plan.arguments import parameters_of
    from ignite_hooks.plan.plan import Plan
    from ignite_hooks.run.services import ALWAYS_THERE, KNOWN_SERVICES, LIVE

    for slot in Plan(hooks):
        given = {*ALWAYS_THERE, *LIVE, *slot.point.payload, "config"}
        for index, parameter in enumerate(parameters_of(slot.call)):
            is_named = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            # A first parameter of any name gets the runner.
            is_service = parameter.name in KNOWN_SERVICES or index > 0
            if is_named and is_service and parameter.default is parameter.empty and parameter.name not in given:
                yield parameter.name


def _services_read(hooks: Mapping[str, Any]) -> set[str]:
    """The known services that the hooks say they read."""
    from ignite_hooks.plan.plan import notes_of
    from ignite_hooks.run.services import KNOWN_SERVICES

    words = {word.strip(".,;()`") for hook in hooks.values() for word in notes_of(type(hook))["reads"].split()}
    return words & set(KNOWN_SERVICES) - {"config"}


def _in_order(services: set[str]) -> list[str]:
    from ignite_hooks.run.services import KNOWN_SERVICES

    return [*(name for name in KNOWN_SERVICES if name in services), *sorted(services - set(KNOWN_SERVICES))]


def _complain(review: _Review) -> None:
    sys.stdout.flush()  # so that both streams keep their order in one terminal or file
    for problem in review.problems:
        print(problem, file=sys.stderr)


def _print_notes(review: _Review) -> None:
    for note in review.notes:
        print(_wrapped(f"note: {note}", "  ", width=_one_line_width()))


# -- explain ----------------------------------------------------------------------------------------------------


def _explain(options: argparse.Namespace) -> int:
    from ignite_hooks.plan.plan import Plan

    review = _review(options.config)
    if review.problems:
        _complain(review)
        return 2
    plan = Plan(review.hooks)
    if options.timeline:
        _print_timeline(plan, options)
        return 0
    print(f"{options.config}: {counted(len(review.hooks) + review.unseen, 'hook')}")
    print(
        f"calls: in a run of {counted(options.epochs, 'epoch')} with {counted(options.iters, 'iteration')} each, "
        f"evaluations of {options.val_iters}\n"
    )
    _print_plan(plan, _calls(plan, options))
    review.notes += [review.added] if review.added else []
    if review.notes:
        print()
        _print_notes(review)
    return 0


def _print_timeline(plan: Plan, options: argparse.Namespace) -> None:
    wide = max((len(slot.point.name) for slot in plan), default=5)
    print(f"{'epoch':>5}  {'iteration':>9}  {'point':<{wide}}  hook")
    for step in plan.timeline(options.epochs, options.iters, options.val_iters):
        print(f"{step.epoch:>5}  {step.iteration:>9}  {step.point:<{wide}}  {step.hook}")


def _calls(plan: Plan, options: argparse.Namespace) -> list[str]:
    """How often each slot will be called in a short run, as far as that can be foreseen."""
    from ignite_hooks.plan.plan import Foreseen

    class Counting(Foreseen):
        def due(self, slot: Slot) -> bool:
            is_due = super().due(slot)
            calls[slot] += is_due
            return is_due

    calls = dict.fromkeys(plan, 0)
    for _ in Counting(plan, options.epochs, options.iters, options.val_iters).run():
        pass
    by_clock = {slot for slot in plan if slot.when is not None and slot.when.unit == "second"}
    return ["?" if slot in by_clock else str(count) for slot, count in calls.items()]


def _print_plan(plan: Plan, calls: list[str]) -> None:
    rows = []
    for row, count in zip(plan.rows(), calls, strict=True):
        notes = {name: row.pop(name) for name in ("reads", "writes", "saves")}
        rows.append(row | {"calls": count} | notes)
    text = table(rows) or "no hooks"
    if not _on_terminal() or max(map(len, text.splitlines())) <= _width():
        print(text)
        return
    # Too wide: points become headings, and what hooks read, write and save comes after.
    narrow = [{k: v for k, v in row.items() if k not in ("point", "reads", "writes", "saves")} for row in rows]
    head, *lines = table(narrow).splitlines()
    print(f"  {head}")
    for row, line in zip(rows, lines, strict=True):
        if row["point"]:
            print(row["point"])
        print(f"  {line}")
    for name, hook in plan.hooks.items():
        _print_effects(name, hook)


def _print_effects(name: str, hook: Any) -> None:
    from ignite_hooks.plan.plan import notes_of

    effects = {word: text for word, text in notes_of(type(hook)).items() if text}
    if effects:
        print(f"\n{name}")
    for word, text in effects.items():
        print(_wrapped(f"{word:<6}  {text}", "  ", 8))


# -- list -------------------------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    from ignite_hooks.registry import HOOKS, WRITERS

    if options.hook is None:
        _print_purposes("hooks", HOOKS)
        print()
        _print_purposes("writers", WRITERS)
        print("\nignite-hooks list NAME shows the settings of one.")
        return 0
    for registry in (HOOKS, WRITERS):
        if options.hook in registry:
            _print_one(options.hook, registry)
            return 0
    hint = did_you_mean(options.hook, [*HOOKS, *WRITERS]) or ": ignite-hooks list shows all"
    print(f"no hook or writer is called {shown(options.hook)}{hint}", file=sys.stderr)
    return 2


def _print_purposes(heading: str, registry: Registry) -> None:
    from ignite_hooks.config.describe import describe

    print(heading)
    wide = max(len(name) for name in registry)
    width = _one_line_width()
    for name in registry:
        known = describe(registry.get(name))
        is_other_name = known.name != name and known.name in registry
        purpose = f"Another name of {known.name}." if is_other_name else known.purpose
        print(_wrapped(f"{name:<{wide}}  {purpose}", "  ", wide + 2, width))


RESTATED = ("name", "priority", "on_error")
"""Settings of every hook that a hook may state itself, only to give them another default."""


def _print_one(name: str, registry: Registry) -> None:
    from ignite_hooks.config.describe import describe
    from ignite_hooks.registry import HOOKS

    cls = registry.get(name)
    known = describe(cls)
    is_hook = registry is HOOKS
    print(name if known.name == name else f"{name}, another name of {known.name}")
    print(_wrapped(known.purpose, "  ") + "\n")
    _print_settings([s for s in known.settings if not (is_hook and s.name in RESTATED)], known.closed)
    facts: list[tuple[str, str]] = []
    if is_hook:
        words = [*(word for word in RESTATED if _has(known, word)), *(setting.name for setting in known.common)]
        facts += [("common", ", ".join(sorted(words, key=lambda word: (*RESTATED, *words).index(word))))]
        facts += [("priority", _priority(cls)), ("on error", str(getattr(cls, "on_error", "raise")))]
    facts += [("reads", known.reads), ("writes", known.writes), ("saves", known.saves)]
    for word, text in facts:
        if text:
            print(_wrapped(f"{word:<8}  {text}", "", 10))
    for i, line in enumerate(_points(cls, known)):
        print(f"{'' if i else 'points':<8}  {line}")
    print(("\n" if is_hook else "") + f"example\n{textwrap.indent(_example(name, known, is_hook), '  ')}")


def _has(known: Description, name: str) -> bool:
    return any(setting.name == name for setting in known.settings)


def _print_settings(settings: Sequence[Setting], closed: bool) -> None:
    if not settings:
        print("no settings of its own\n" if closed else "settings of any name\n")
        return
    from ignite_hooks.config.describe import in_words

    rows = [(s.name, "(needed)" if s.required else _as_yaml(s.default), s) for s in settings]
    first = max(len("setting"), *(len(name) for name, _, _ in rows))
    second = min(24, max(len("default"), *(len(default) for _, default, _ in rows)))
    indent = first + second + 4
    print(f"{'setting':<{first}}  {'default':<{second}}  what it is")
    for name, default, setting in rows:
        left = f"{name:<{first}}  {default:<{second}}"
        if len(default) > second:
            print(left)
            left = ""
        print(_wrapped(f"{left:<{indent - 2}}  {in_words(setting.annotation)}", "", indent))
        if setting.help:
            print(_wrapped(setting.help.replace("``", ""), " " * indent))
    print()


def _priority(cls: Any) -> str:
    from ignite_hooks.plan.points import Priority

    priority = getattr(cls, "priority", Priority.NORMAL)
    if isinstance(priority, Mapping):
        return ", ".join(f"{value} at {point}" for point, value in priority.items())
    value = Priority.value_of(priority)
    names = [name for name, number in Priority.__members__.items() if number == value]
    return f"{value} ({names[0]})" if names else str(value)


def _points(cls: Any, known: Description) -> Iterator[str]:
    """The points a hook answers, with what is special about each."""
    from ignite_hooks.hooks.base_hook import answered_methods, own_method
    from ignite_hooks.plan.plan import hook_priority
    from ignite_hooks.plan.points import point_named
    from ignite_hooks.plan.schedule import is_scheduled

    scheduled: dict[str, list[bool]] = {}
    for method in answered_methods(cls) if isinstance(cls, type) else ():
        scheduled.setdefault(point_named(method).name, []).append(is_scheduled(own_method(cls, method)))
    wide = max((len(point) for point in known.points), default=0)
    for point in known.points:
        remarks = ["by its interval" if all(scheduled[point]) else "always, and by its interval"]
        remarks = remarks if any(scheduled[point]) else []
        if point in (getattr(cls, "point_priority", None) or {}):
            remarks.append(f"priority {hook_priority(cls, point)}")
        yield f"{point:<{wide}}  {', '.join(remarks)}".rstrip()


def _example(name: str, known: Description, is_hook: bool) -> str:
    """A small entry of a configuration: what is needed, and a few settings as they are anyway."""
    from ignite_hooks.config.json_schema import NO_DATA, as_data

    entry: dict[str, Any] = {"type": name}
    entry |= {setting.name: _something(setting) for setting in known.settings if setting.required}
    defaults = {s.name: as_data(s.default) for s in known.settings if not s.required and s.name not in RESTATED}
    plain = {key: value for key, value in defaults.items() if value is not None and value is not NO_DATA}
    entry |= {key: value for key, value in plain.items() if value != [] and value != {}}
    entry = dict(list(entry.items())[:4])
    lines = [f"{key}: {_as_yaml(value)}" for key, value in entry.items()]
    return "\n".join(["hooks:" if is_hook else "writers:", f"  - {lines[0]}", *(f"    {line}" for line in lines[1:])])


def _something(setting: Setting) -> Any:
    """A value that a setting takes."""
    from ignite_hooks.config.describe import misfit

    candidates: tuple[Any, ...] = (1, 0.5, f"my_{setting.name}", True, [], [f"my_{setting.name}"], {})
    return next((value for value in candidates if not misfit(value, setting)), f"@my_{setting.name}")


# -- send -------------------------------------------------------------------------------------------------------


def _send(options: argparse.Namespace) -> int:
    from pathlib import Path

    from ignite_hooks.registry import WRITERS
    from ignite_hooks.writers.trackers.resend import waiting

    found, failed = 0, 0
    for folder in options.folder:
        if not Path(folder).is_dir():
            print(f"{folder}: no such folder", file=sys.stderr)
            failed += 1
            continue
        for path, send in waiting(Path(folder), WRITERS.get):
            found += 1
            try:
                print(f"{path}: {send()}")
            except Exception as error:  # whatever a tracker raises is said, and the next one is tried
                words = masked(" ".join(str(error).split())[:300])
                print(f"{path}: {type(error).__name__}: {words}", file=sys.stderr)
                failed += 1
    if not found and not failed:
        print(f"{', '.join(options.folder)}: nothing waits to be sent")
    return 1 if failed else 0


# -- convert ----------------------------------------------------------------------------------------------------


def _convert(options: argparse.Namespace) -> int:
    from pathlib import Path

    from ignite_hooks.cli.convert import converted

    output = None if options.output is None else Path(options.output)
    try:
        text = converted(options.config)
        if output is not None and output.exists() and output.samefile(options.config):
            raise ConfigError([Problem("-o", "that is the file that is read: name another")])
    except ConfigError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        return 2
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, encoding="utf-8")
    return 0


# -- schema -----------------------------------------------------------------------------------------------------


def _schema(_: argparse.Namespace) -> int:
    import json

    from ignite_hooks.config.json_schema import configuration_schema

    print(json.dumps(configuration_schema(), indent=2))
    return 0


# -- text -------------------------------------------------------------------------------------------------------


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _width() -> int:
    """The columns of the terminal; a pipe has as many as text should be wide."""
    return shutil.get_terminal_size().columns if _on_terminal() else WIDEST


def _one_line_width() -> int:
    """The columns of the terminal; in a pipe, what is one line stays one, for grep."""
    return _width() if _on_terminal() else sys.maxsize


def _wrapped(text: str, indent: str, hanging: int = 0, width: int | None = None) -> str:
    """A paragraph that fits the terminal; its first line may have columns, which stay."""
    head, tail = text[:hanging], text[hanging:]
    room = (width or min(_width(), WIDEST)) - len(indent) - hanging
    first, *rest = textwrap.wrap(tail, max(room, 20), break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join([f"{indent}{head}{first}".rstrip(), *(f"{indent}{' ' * hanging}{line}" for line in rest)])


def _as_yaml(value: Any) -> str:
    """A value as a configuration would spell it."""
    import yaml

    from ignite_hooks.config.json_schema import NO_DATA, as_data

    data = as_data(value)
    if data is NO_DATA:
        return getattr(value, "__name__", type(value).__name__)
    text = yaml.safe_dump(data, default_flow_style=True, width=10_000, allow_unicode=True)
    return str(text).removesuffix("\n").removesuffix("\n...")
