"""The JSON Schema of a configuration with the sections of a trainer, for editors."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ignite_hooks.config.composition import DELETE
from ignite_hooks.config.json_schema import Schema, configuration_schema, definition_of
from ignite_hooks.config.outline import outline
from ignite_hooks.hooks.eval_hook import EvalHook
from ignite_hooks.registry import Registry
from ignite_hooks.trainer.registries import CRITERIA, DATASETS, METRICS, MODELS, OPTIMIZERS, SCHEDULERS
from ignite_hooks.trainer.search_section import SearchSection
from ignite_hooks.trainer.sections import LENGTHS, OWN_OF_SCHEDULER, SUPPLIED, Evaluation, Training


def whole_schema() -> Schema:
    """Return the JSON Schema of a configuration that attaches hooks, or that a trainer reads.

    A script may have sections of the same names: they are held against the schema only where model and data are ours.

    Example:
        >>> sorted(set(whole_schema()["properties"]) & {"model", "dataset", "training", "evaluation"})
        ['dataset', 'evaluation', 'model', 'training']
    """
    schema = configuration_schema()
    definitions: dict[str, Schema] = dict(schema["$defs"])
    metrics = _component(METRICS, (*SUPPLIED, "criterion"), definitions)
    training = _section(Training, definitions)
    training["properties"] |= {
        "optimizer": _component(OPTIMIZERS, ("params",), definitions),
        "scheduler": _or_null(_component(SCHEDULERS, ("optimizer", *LENGTHS), definitions, OWN_OF_SCHEDULER)),
        "criterion": _or_null(_component(CRITERIA, SUPPLIED, definitions)),
    }
    evaluation = _section(Evaluation, definitions)
    several = [{"type": "array", "items": metrics}, {"type": "object", "additionalProperties": metrics}]
    evaluation["properties"]["metrics"] = {"anyOf": [*several, {"type": "string"}, {"type": "null"}]}
    test = definition_of("EvalHook", EvalHook, definitions, is_hook=True)
    test["properties"] = {name: one for name, one in test["properties"].items() if name not in ("type", "name")}
    evaluation["properties"]["test"] |= {"anyOf": [{**test, "required": []}, {"type": "null"}]}
    sections = {"training": _or_null(training), "evaluation": _or_null(evaluation)}
    sections["search"] = _or_null(_section(SearchSection, definitions))
    definitions |= {f"section.{name}": section for name, section in sections.items()}
    strict = {name: {"$ref": f"#/$defs/section.{name}"} for name in sections}
    ours = {"model": _is_one_of(MODELS), "dataset": _is_one_of(DATASETS)}
    properties = {
        "model": {"description": "the model that a trainer trains", **_component(MODELS, SUPPLIED, definitions)},
        "dataset": {"description": "the data that a trainer trains on", **_component(DATASETS, (), definitions)},
        **{name: {"anyOf": [reference, {}]} for name, reference in strict.items()},
        "imports": {"description": "modules whose classes may be named, as package.module:Name"},
    }
    of_a_trainer = {"if": {"properties": ours, "required": list(ours)}, "then": {"properties": strict}}
    return {
        **schema,
        "description": "What attach_hooks and a trainer take. Other keys at top level belong to the script.",
        "properties": schema["properties"] | properties,
        "allOf": [*schema["allOf"], of_a_trainer],
        "$defs": dict(sorted(definitions.items())),
    }


def _component(
    registry: Registry, supplied: Collection[str], definitions: dict[str, Schema], own: Collection[str] = ()
) -> Schema:
    """Return the schema of a name or of ``{type: Name, ...settings}``; what is not ours may have any settings."""
    references = []
    for name in registry:
        where = registry.source_of(name)
        made: Any = registry.get(name) if where is None else outline(*where)
        if made is None:
            continue
        found = definition_of(name, made, definitions, is_hook=False)
        found["required"] = [word for word in found["required"] if word not in supplied]
        found["properties"] |= {DELETE: {"const": True}, **{word: {} for word in own}}
        key = f"{registry.kind.replace(' ', '_')}.{name}"
        definitions[key] = found
        references.append({"$ref": f"#/$defs/{key}"})
    return {"anyOf": [{"enum": list(registry)}, *references, {"not": _is_one_of(registry)}]}


def _is_one_of(registry: Registry) -> Schema:
    names = {"enum": list(registry)}
    return {"anyOf": [{"type": "object", "properties": {"type": names}, "required": ["type"]}, names]}


def _section(cls: Any, definitions: dict[str, Schema]) -> Schema:
    made = definition_of(cls.__name__, cls, definitions, is_hook=False)
    made["properties"].pop("type")
    return {**made, "required": []}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}
