"""Find, check and build what ``{type: Name, ...settings}`` names."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ignite_hooks.config.describe import describe
from ignite_hooks.config.validate import convert_value, validate_settings
from ignite_hooks.errors import Problem, SettingError
from ignite_hooks.registry import Registry
from ignite_hooks.text import below, did_you_mean, nearest, one_line, shown
from ignite_hooks.trainer.registries import IGNITE_METRICS, METRICS


@dataclass(frozen=True)
class Component:
    """A model, data set, optimizer, ... that a configuration asks for: found and checked, not built yet."""

    place: str
    make: Callable[..., Any]
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its class or function."""
        return str(getattr(self.make, "__name__", self.make))

    def takes(self) -> set[str]:
        """Return the names of its settings."""
        return {setting.name for setting in describe(self.make).settings}

    def build(self, *needed: Any, problems: list[Problem], **known: Any) -> Any:
        """Build the object, passing what is known and not configured if it takes it; its refusal is a problem."""
        takes = self.takes()
        supplied = {name: value for name, value in known.items() if name in takes and name not in self.given}
        try:
            return self.make(*needed, **supplied, **self.given)
        except SettingError as error:
            problems.append(Problem(below(self.place, error.setting), error.message))
            return None
        except Exception as error:  # whatever a constructor refuses is a mistake of the configuration
            text = one_line(error)
            # Code that is not ours names the setting in its text, if at all.
            name = next((setting for setting in (*self.given, *takes) if text.startswith(f"{setting}:")), "")
            place = f"{self.place}.{name}" if name else self.place
            text = text.removeprefix(f"{name}:").strip()
            if not name and not isinstance(error, ValueError):
                # Other errors are not written for users, so name the component and its settings.
                kind = type(error).__name__
                text = text if text.startswith(kind) else f"{kind}: {text}"
                text = f"{self.name} cannot be made with {shown(dict(self.given))}: {text}"
            problems.append(Problem(place, text))
            return None


class ComponentReader:
    """Find and check the components of one configuration.

    Args:
        imports: Modules whose classes and functions may be named as ``package.module:Name``.
        problems: The list to which everything that is wrong is added.
    """

    def __init__(self, imports: Any, problems: list[Problem]) -> None:
        self.problems = problems
        self._modules: dict[str, Any] = {}
        if imports is not None and not (isinstance(imports, list) and all(isinstance(name, str) for name in imports)):
            problems.append(Problem("imports", f"a list of modules is needed, not {shown(imports)}"))
            return
        for i, name in enumerate(imports or ()):
            self._modules[name] = self.load(name, f"imports[{i}]")

    def load(self, name: str, place: str) -> Any:
        """Import a module of the user's; None if that fails."""
        try:
            return importlib.import_module(name)
        except Exception as error:  # a module is code, and may fail in any way
            here = isinstance(error, ModuleNotFoundError) and name.startswith(str(error.name))
            hint = ": it is looked for where Python's path leads, and in the current folder" if here else ""
            self._wrong(place, f"{shown(name)} cannot be imported: {one_line(error)}{hint}")
            return None

    def read(
        self, registry: Registry, wanted: Any, place: str, supplied: Collection[str] = (), own: Sequence[str] = ()
    ) -> Component | None:
        """Read a component from its name or from a mapping with ``type``; return None if it is wrong.

        Args:
            registry: The names that exist.
            wanted: What the configuration says.
            place: The place of the entry in the configuration.
            supplied: Settings that may be left out, since the caller supplies them.
            own: Settings that belong to the caller, not to the component.
        """
        if isinstance(wanted, str):
            wanted = {"type": wanted}
        if _is_several(wanted):
            several = f"several are given, and a run from a configuration has one {registry.kind}"
            self._wrong(
                place, f"{several}: train them in a script, with attach_hooks(..., {_word(registry)}={{'g': ...}})"
            )
            return None
        if not isinstance(wanted, Mapping):
            self._wrong(place, f"a mapping with 'type' is needed, the name of {_a(registry.kind)}, not {shown(wanted)}")
            return None
        given = {name: value for name, value in wanted.items() if name not in own}
        type_ = given.pop("type", None)
        if type_ is None:
            slip = next((f"; {name!r} is not it" for name in given if nearest(name, ("type",), cutoff=0.7)), "")
            self._wrong(place, f"needs 'type', the name of {_a(registry.kind)}: {_some(registry)}{slip}")
            return None
        make = self._found(registry, type_, f"{place}.type")
        if make is None:
            return None
        wrong = validate_settings(make, given, place, hook=False)
        wrong = [problem for problem in wrong if problem.place not in {f"{place}.{name}" for name in supplied}]
        self.problems.extend(wrong)
        settings = {setting.name: setting for setting in describe(make).settings}
        if wrong:
            return None
        return Component(
            place, make, {n: convert_value(v, settings[n]) if n in settings else v for n, v in given.items()}
        )

    def _found(self, registry: Registry, type_: Any, place: str) -> Callable[..., Any] | None:
        if callable(type_):
            return type_  # type: ignore[no-any-return]
        if not isinstance(type_, str):
            self._wrong(place, f"the name of {_a(registry.kind)} is needed, not {shown(type_)}")
            return None
        if ":" in type_:
            return self.own(type_, place)
        try:
            return self.found(registry, type_, place) if type_ in registry else registry.get(type_)
        except LookupError as error:
            path, _, last = type_.rpartition(".")
            hint = f"; for one of your own: imports: [{path}] and type: {path}:{last}" if path else ""
            self._wrong(place, f"{error.args[0]}{hint}")
        except ImportError as error:
            self._wrong(place, f"{type_} cannot be loaded: {one_line(error)}")
        return None

    def found(self, registry: Registry, type_: str, place: str) -> Callable[..., Any] | None:
        """Return what a registry knows under a name."""
        return registry.get(type_)

    def of_ignite(self, wanted: Any) -> Any:
        """Replace the name of one of Ignite's metrics by its class."""
        from ignite.metrics import Metric

        type_ = wanted.get("type") if isinstance(wanted, Mapping) else wanted
        if not isinstance(type_, str) or type_ in METRICS:
            return wanted
        known = (getattr(importlib.import_module(module), type_, None) for module in IGNITE_METRICS)
        cls = next((each for each in known if isinstance(each, type) and issubclass(each, Metric)), None)
        return wanted if cls is None else {**(wanted if isinstance(wanted, Mapping) else {}), "type": cls}

    def is_listed(self, module: str, place: str) -> bool:
        """Return whether a module is listed under ``imports``; if not, that is a problem."""
        if module in self._modules:
            return True
        importable = [name for name, found in self._modules.items() if found is not None]
        hint = did_you_mean(module, importable) or f": write imports: [{module}]"
        self._wrong(place, f"the module {shown(module)} is not listed under imports{hint}")
        return False

    def own(self, path: str, place: str) -> Callable[..., Any] | None:
        """Return a user's own class or function, ``package.module:Name``, from a module that ``imports`` lists."""
        module, _, name = path.partition(":")
        if not self.is_listed(module, place):
            return None
        found = getattr(self._modules[module], name, None) if name.isidentifier() else None
        if self._modules[module] is not None and not callable(found):
            known = [n for n, thing in vars(self._modules[module]).items() if callable(thing) and n[0] != "_"]
            self._wrong(place, f"{module} has no class or function {shown(name)}{did_you_mean(name, known)}")
            return None
        return found

    def _wrong(self, place: str, message: str) -> None:
        self.problems.append(Problem(place, message))


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _some(registry: Registry) -> str:
    names = list(registry)
    return ", ".join(names[:6]) + (" ..." if len(names) > 6 else "")


def _is_several(wanted: Any) -> bool:
    """Return whether an entry is a list or a mapping of entries, as a script may pass several models."""
    entries = list(wanted.values()) if isinstance(wanted, Mapping) and "type" not in wanted else wanted
    return (
        isinstance(entries, (list, tuple))
        and bool(entries)
        and all(isinstance(one, Mapping) and "type" in one for one in entries)
    )


def _word(registry: Any) -> str:
    """Return the keyword of `attach_hooks` for what a registry makes."""
    return str(registry.kind).replace(" ", "_")
