"""Make a JSON Schema of the whole configuration, for editors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from ignite_hooks.config.composition import BASE
from ignite_hooks.config.describe import Setting, describe
from ignite_hooks.config.ignite_handlers import EVENTS
from ignite_hooks.config.read import default_set
from ignite_hooks.config.signals import ACTIONS, NAMES
from ignite_hooks.config.validate import type_adapter
from ignite_hooks.hooks.base_hook import COMMON_SETTINGS, SPELLINGS, BaseHook
from ignite_hooks.plan.priority import Priority
from ignite_hooks.registry import HOOKS, WRITERS, Registry

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
NO_DATA = object()
"""Stands for a value that a file cannot hold."""
EVERY = r"^\s*([0-9]+(\.[0-9]+)?\s*[A-Za-z]+|(Events\.)?(ITERATION|EPOCH)_(STARTED|COMPLETED)\s*(\(.*\))?)\s*$"
"""A number with a unit, or an event of Ignite."""


def configuration_schema() -> Schema:
    """Return the JSON Schema of a configuration, made from every registered hook and writer.

    Example:
        >>> schema = configuration_schema()
        >>> sorted(schema["properties"])[:3]
        ['_base_', 'custom_hooks', 'default_hooks']
    """
    definitions: dict[str, Schema] = {}
    for registry in (HOOKS, WRITERS):
        for name in registry:
            definitions[name] = definition_of(name, registry.get(name), definitions, is_hook=registry is HOOKS)
    defaults = {
        name: _default_hook(entry["type"], definitions)
        for name, entry in default_set(evaluates=True, distributed=True, notebook=True).items()
    }
    definitions |= {
        "hook": {"oneOf": [*_references(HOOKS), _reference("ignite_handler")], "discriminator": _discriminator(HOOKS)},
        "hook_in_list": {"anyOf": [_reference("hook"), _names(HOOKS, "a hook by its name, with its default settings")]},
        "custom_hook": {
            "anyOf": [
                _reference("hook_in_list"),
                {"$ref": "#/$defs/other_type", "description": "a hook that the script registers"},
            ]
        },
        "ignite_handler": _ignite_handler(definitions),
        "writer": {
            "anyOf": [
                {"oneOf": _references(WRITERS), "discriminator": _discriminator(WRITERS)},
                _names(WRITERS, "a writer by its name"),
            ]
        },
        "other_type": _other_type(),
        "priority": _priority(),
        "service": {
            "type": "string",
            "pattern": r"^@[A-Za-z_][A-Za-z0-9_]*$",
            "description": "a service of the script by its name, as in '@model'",
        },
    }
    return {
        "$schema": DRAFT,
        "title": "ignite_hooks configuration",
        "description": "What attach_hooks takes. Other keys at top level belong to the script.",
        "type": ["object", "array"],
        "items": _reference("custom_hook"),
        "properties": {
            BASE: {
                "type": ["string", "array"],
                "items": {"type": "string", "minLength": 1},
                "minItems": 1,
                "minLength": 1,
                "description": "files, relative to this one, whose settings this one changes; null removes one of them",
            },
            "hooks": _list_of("custom_hook", "the hooks: exactly these"),
            "default_hooks": {
                "type": ["object", "null"],
                "description": "changes to the default hooks by name; null removes one",
                "properties": defaults,
                "additionalProperties": {"anyOf": [_reference("hook"), _reference("other_type")]},
            },
            "custom_hooks": _list_of("custom_hook", "hooks besides the listed or the default ones"),
            "writers": _writers("where numbers and pictures go, besides metrics.jsonl"),
            "writer": _writers("another word for writers"),
            "work_dir": {"type": ["string", "null"], "minLength": 1, "description": "the folder of the run"},
            "experiment_dir": {"type": ["string", "null"], "minLength": 1, "description": "another word for work_dir"},
            "resume": {
                "type": ["boolean", "string", "null"],
                "minLength": 1,
                "description": "true or auto resumes from the newest intact checkpoint, if there is one; required "
                "fails if there is none; a path resumes from that one",
            },
            "resume_settings": {
                "enum": ["config", "checkpoint", "refuse"],
                "description": "where the optimizer's settings have changed since the run first started: apply those "
                "of the configuration, keep those of the checkpoint, or refuse to resume",
            },
            "seed": {
                "type": ["integer", "null"],
                "minimum": 0,
                "maximum": 2**32 - 1,
                "description": "the seed of all random generators",
            },
            "overhead_budget": {
                "type": ["number", "null"],
                "exclusiveMinimum": 0,
                "maximum": 1,
                "description": "the share of the time an observing hook may take; beyond it, it is slowed down",
            },
            "signals": {
                "type": ["object", "null"],
                "description": "what the run does at a signal; TERM and INT save and stop by default",
                "propertyNames": {"pattern": rf"^(SIG)?({'|'.join(NAMES)})$"},
                "additionalProperties": {"enum": list(ACTIONS)},
            },
            "load_from": {
                "type": ["string", "object", "null"],
                "description": "a file of weights to start from as far as they fit, or a mapping",
                "properties": {
                    "path": {"type": "string"},
                    "strict": {"type": "boolean"},
                    "weights": {"enum": ["raw", "ema"]},
                    "rename": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
                },
                "additionalProperties": False,
            },
            "requeue": {
                "type": ["boolean", "null"],
                "description": "whether a save at one of the signals makes Slurm start the job again",
            },
            "rank_timeout": {
                "type": "number",
                "minimum": 0,
                "description": "seconds of silence after which another process of the run counts as hanging; 0: never",
            },
        },
        "not": {"type": "object", "required": ["hooks", "default_hooks"]},
        "allOf": [
            {
                "if": {"type": "object", "not": {"required": [BASE]}},
                "then": {"properties": {name: {"type": ["array", "null"]} for name in ("hooks", "custom_hooks")}},
            }
        ],
        "$defs": dict(sorted(definitions.items())),
    }


def as_json_data(value: Any) -> Any:
    """Return a value as a file can hold it, or NO_DATA.

    Example:
        >>> as_json_data((1, Path("a"), Priority.HIGH)), as_json_data(print) is NO_DATA
        ([1, 'a', 30], True)
    """
    if isinstance(value, Enum):
        return as_json_data(value.value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        made = {str(key): as_json_data(item) for key, item in value.items()}
        return NO_DATA if any(item is NO_DATA for item in made.values()) else made
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [
            as_json_data(item) for item in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)
        ]
        return NO_DATA if any(item is NO_DATA for item in items) else items
    return value if value is None or isinstance(value, (bool, int, float, str)) else NO_DATA


def definition_of(name: str, cls: Any, definitions: dict[str, Schema], *, is_hook: bool) -> Schema:
    """Return the schema of ``{type: Name, ...settings}``; types that it refers to are added to the definitions."""
    known = describe(cls)
    properties: dict[str, Schema] = {"type": {"const": name}}
    for setting in (*known.settings, *(known.common if is_hook else ())):
        properties[setting.name] = _property(setting, definitions, common=setting in known.common)
    needed = [setting.name for setting in known.settings if setting.required and setting.name not in SPELLINGS]
    return {
        "title": name,
        "description": known.purpose,
        "type": "object",
        "properties": properties,
        "required": ["type", *needed],
        **({"additionalProperties": False} if known.closed else {}),
    }


def _default_hook(type_: str, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a default hook: its type may be left out, null removes it, another hook replaces it."""
    own = definitions[type_]
    without_type = {**own, "required": [name for name in own["required"] if name != "type"]}
    return {"anyOf": [without_type, _reference("hook"), {"type": "null"}]}


def _property(setting: Setting, definitions: dict[str, Schema], *, common: bool) -> Schema:
    made = _held_against(setting, definitions)
    if made and setting.default is None:
        made = _or(made, {"type": "null"})
    if made and made != {"type": "string"} and setting.name not in COMMON_SETTINGS:
        made = _or(made, _reference("service"))
    if setting.help:
        made = {"description": setting.help.replace("``", "`"), **made}
    default = NO_DATA if common or setting.required else as_json_data(setting.default)
    return made if default is NO_DATA else {**made, "default": default}


def _held_against(setting: Setting, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a setting's type; it is empty if anything fits."""
    if setting.name == "priority":
        return _reference("priority")
    adapter = type_adapter(setting.annotation)
    if adapter is None:
        return {}
    made: Schema = _sorted_enums(adapter.json_schema(ref_template="#/$defs/{model}"))
    definitions |= made.pop("$defs", {})
    # An empty schema stands for a function, which a file can only name as a service.
    if not made or {} in made.get("anyOf", ()):
        made = {"anyOf": [*(choice for choice in made.get("anyOf", ()) if choice), _reference("service")]}
    if setting.name == "every":
        made |= {"pattern": EVERY, "examples": ["50 iter", "2 epoch", "10 min", "EPOCH_COMPLETED(every=2)"]}
    if setting.name in ("interval", "frequency") and made == {"type": "integer"}:
        made["minimum"] = 1
    return made


def _sorted_enums(schema: Any) -> Any:
    """Sort literals: Python takes their order for irrelevant, and returns the one it met first."""
    if isinstance(schema, list):
        return [_sorted_enums(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: sorted(v, key=str) if key == "enum" else _sorted_enums(v) for key, v in schema.items()}


def _or(schema: Schema, other: Schema) -> Schema:
    choices = schema["anyOf"] if set(schema) == {"anyOf"} else [schema]
    return {"anyOf": choices if other in choices else [*choices, other]}


def _ignite_handler(definitions: dict[str, Schema]) -> Schema:
    common = {setting.name: _property(setting, definitions, common=True) for setting in describe(BaseHook).common}
    return {
        "title": "ignite.handlers.*",
        "description": "a handler of Ignite: attached where it has `attach`, else called at its event",
        "type": "object",
        "properties": {
            "type": {"type": "string", "pattern": r"^ignite\.handlers\.[A-Za-z]\w*$"},
            "engine": {"type": "string", "description": "the name of an evaluator; the trainer otherwise"},
            "event": {
                "anyOf": [{"enum": list(EVENTS)}, {"type": "string", "pattern": "^[A-Z_]+$"}],
                "description": "the event of a plain callable, or of an attach that takes one",
            },
            "arguments": {"type": "object", "description": "what attach or the call gets besides the engine"},
            **common,
        },
        "required": ["type"],
    }


def _other_type() -> Schema:
    ours = {"anyOf": [{"enum": list(HOOKS)}, {"pattern": r"^ignite\.handlers\."}, {"pattern": _slips(HOOKS)}]}
    name = {"type": "string", "not": ours}
    return {"anyOf": [{"type": "object", "properties": {"type": name}, "required": ["type"]}, name]}


def _slips(names: Iterable[str]) -> str:
    """Return a pattern of names with one letter too many, too few or wrong; short names have too many neighbours.

    Example:
        >>> _slips(["LoggerHook", "EMAHook"])[:60]
        '^(.{0,2}oggerHook|L.{0,2}ggerHook|Lo.{0,2}gerHook|Log.{0,2}e'
    """
    long = [name for name in names if len(name.removesuffix("Hook")) > 4]
    return f"^({'|'.join(f'{name[:i]}.{{0,2}}{name[i + 1 :]}' for name in long for i in range(len(name)))})$"


def _priority() -> Schema:
    """Return the schema of a priority: a name in any case, a number, or a mapping of points to these."""
    letters = {"_": "[_ -]"}
    spelt = ("".join(letters.get(c, f"[{c}{c.lower()}]") for c in name) for name in Priority.__members__)
    names = "|".join(spelt)
    one = [
        {"enum": list(Priority.__members__)},
        {"type": "integer", "minimum": 0, "maximum": 100},
        {"type": "string", "pattern": rf"^\s*({names})\s*$"},
    ]
    return {"anyOf": [*one, {"type": "object", "additionalProperties": {"anyOf": one}}]}


def _names(registry: Registry, description: str) -> Schema:
    choices: list[Schema] = [{"enum": list(registry)}]
    if registry is HOOKS:
        choices.append({"type": "string", "pattern": r"^ignite\.handlers\.[A-Za-z]\w*$"})
    return {"description": description, **(choices[0] if len(choices) == 1 else {"anyOf": choices})}


def _list_of(definition: str, description: str) -> Schema:
    # An object changes the list of a base by name.
    return {"type": ["array", "object", "null"], "description": description, "items": _reference(definition)}


def _writers(description: str) -> Schema:
    several = {"type": "array", "items": _reference("writer")}
    return {"description": description, "anyOf": [several, _reference("writer"), {"type": "null"}]}


def _reference(definition: str) -> Schema:
    return {"$ref": f"#/$defs/{definition}"}


def _references(registry: Registry) -> list[Schema]:
    return [_reference(name) for name in registry]


def _discriminator(registry: Registry) -> Schema:
    return {"propertyName": "type", "mapping": {name: f"#/$defs/{name}" for name in registry}}
