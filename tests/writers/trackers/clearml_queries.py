"""What a server of ClearML finds among its tasks, and what it keeps of the numbers of each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

LISTS = ("id", "project", "status", "parent")
"""The fields by whose values tasks are found."""
READ = {"name", "order_by", "page", "page_size", "only_fields", "method", "_allow_extra_fields_", "search_hidden"}
MOST = 500
"""The tasks on a page, at most."""


def found(tasks: Iterable[Mapping[str, Any]], asked: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tasks that a query asks for, in its order, and of each what it asks for.

    Raises:
        ValueError: The query asks for something that is not read here, so that the answer would be wrong.
    """
    if unread := sorted(key for key, value in asked.items() if value and key not in READ and key not in LISTS):
        raise ValueError(f"the stand-in does not read {', '.join(unread)}")
    kept = [task for task in tasks if re.search(asked.get("name") or "", task.get("name") or "")]
    for field in LISTS:
        if wanted := asked.get(field):
            allowed = [wanted] if isinstance(wanted, str) else wanted
            kept = [task for task in kept if task.get(field) in allowed]
    size = min(asked.get("page_size") or MOST, MOST)
    first = (asked.get("page") or 0) * size
    page = in_order(kept, asked.get("order_by") or [])[first : first + size]
    wanted = asked.get("only_fields")
    return [projected(task, ["id", *wanted]) if wanted else task for task in page]


def in_order(tasks: list[Mapping[str, Any]], order_by: str | list[str]) -> list[Mapping[str, Any]]:
    """Return tasks in an order; those that lack the first field come last, whatever the order is."""
    fields = [order_by] if isinstance(order_by, str) else list(order_by)
    for field in reversed([*fields, "id"] if fields else []):
        name, falls = field.removeprefix("-"), field.startswith("-")
        have = [task for task in tasks if at(task, name) is not None]
        lack = [task for task in tasks if at(task, name) is None]
        tasks = [*sorted(have, key=lambda task: at(task, name), reverse=falls), *lack]
    return tasks


def at(task: Mapping[str, Any], name: str) -> Any:
    """Return what stands at a dotted place; None where there is nothing."""
    value: Any = task
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def projected(task: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Return a part of a task: the fields that have these dotted places, where there is something."""
    kept: dict[str, Any] = {}
    for field in fields:
        value = at(task, field)
        if value is None:
            continue
        place, keys = kept, field.split(".")
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = value
    return kept


def update_last_metrics(kept: dict[str, Any], events: Iterable[Mapping[str, Any]]) -> None:
    """Add the numbers of one request to what a task says of each of its curves.

    The last value is that of the highest iteration in the newest request, even if an earlier one went further.
    """
    latest: dict[int, tuple[Any, ...]] = {}
    for event in events:
        metric, variant, value = event.get("metric") or "", event.get("variant") or "", event.get("value")
        if value is None:
            continue
        one = kept.setdefault(hashed(metric), {}).setdefault(hashed(variant), {"metric": metric, "variant": variant})
        when = (event.get("iter") or 0, event.get("timestamp") or 0)
        if when >= latest.get(id(one), when):
            latest[id(one)], one["value"] = when, value
        least, most = one.get("min_value", value), one.get("max_value", value)
        better = {"first": False, "min": value < least, "max": value > most}
        for name, is_better in better.items():
            if is_better or f"{name}_value" not in one:
                one |= {f"{name}_value": value, f"{name}_value_iteration": event.get("iter") or 0}
        one["count"] = one.get("count", 0) + 1


def hashed(name: str) -> str:
    """Return the key under which a metric or a variant stands in a task."""
    return hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
