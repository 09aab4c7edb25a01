"""What a server of ClearML knows, and how it answers: by its own table of states, and with nothing filled in."""

from __future__ import annotations

import base64
import copy
import json
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.writers.trackers.clearml_queries import found as found_tasks
from tests.writers.trackers.clearml_queries import update_last_metrics

TRANSITIONS = {
    "created": ("queued", "in_progress"),
    "queued": ("created", "in_progress", "stopped"),
    "in_progress": ("stopped", "failed", "created", "completed"),
    "stopped": ("closed", "created", "failed", "queued", "in_progress", "published", "publishing", "completed"),
    "closed": ("created", "failed", "published", "publishing", "stopped"),
    "failed": ("created", "stopped", "published", "queued"),
    "publishing": ("published", "failed"),
    "published": (),
    "completed": ("published", "in_progress", "created"),
}
"""The states that a task may have after each, unless somebody insists (`force`)."""
CHANGES = {"started": "in_progress", "stopped": "stopped", "completed": "completed", "failed": "failed"}
"""The calls that change a state, each with the state."""
SINGLE = "Summary"
"""The metric of single values, which are replaced by every run."""
OPEN = ("created", "in_progress")
"""The states in which a task takes what belongs to its result."""
KEPT_BY_CLONES = (
    *("script", "hyperparams", "configuration", "execution", "container"),
    *("project", "type", "tags", "comment"),
)


class Rejected(Exception):
    """The server refuses a call."""


def _token() -> str:
    """Return a well-formed token; its signature is not checked."""

    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    claims = {"exp": time.time() + 86400, "iat": time.time(), "api_version": "2.30", "server_version": "2.0", "env": ""}
    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{part({'signed': 'by nobody'})}"


def _now() -> str:
    return datetime.now(UTC).isoformat()


@dataclass
class ClearMLServer:
    """What was asked, in order, and what is there."""

    url: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    uploads: dict[str, bytes] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    projects: dict[str, str] = field(default_factory=dict)
    queues: dict[str, list[str]] = field(default_factory=dict)
    """The tasks that wait in each queue."""
    workers: dict[str, list[str]] = field(default_factory=dict)
    """The agents that are there, each with its queues."""
    changes: list[tuple[str, str, str]] = field(default_factory=list)
    """Task, state, reason, of each change."""
    repeats: list[dict[str, Any]] = field(default_factory=list)
    """Numbers that replaced those of the same step."""
    received: bytes = b""
    asked: int = 0
    """How many requests have come, also those for files."""
    fails_at: int | None = None
    """The number of the request from which on it fails."""
    failure: str = "dies"
    """How: it dies, hangs or answers 500."""
    recovered: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    sent: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    """How often each number of a task has come: its iteration, metric and variant."""
    _events: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events that are kept: of a task, an iteration, a metric and a variant only the last."""
        return list(self._events.values())

    def answer(self, call: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the data of an answer.

        Raises:
            Rejected: The server refuses it.
        """
        self.calls.append((call, asked))
        kind, _, what = call.partition(".")
        own = getattr(self, f"_{kind}_{what}", None)
        if own is not None:
            found: dict[str, Any] = own(asked)
            return found
        if kind == "tasks" and what in CHANGES:
            return self.change(asked["task"], CHANGES[what], asked)
        return {"id": uuid.uuid4().hex} if what in ("create", "get_or_create") else {"updated": 1}

    def take_events(self, body: bytes) -> None:
        """Keep events; a repeat replaces what was there."""
        numbers: dict[str, list[dict[str, Any]]] = {}
        for i, line in enumerate(body.splitlines()):
            if not line.strip():
                continue
            try:
                event = json.loads(line)
            except ValueError as error:
                raise Rejected(f"{error} in batch item #{i}") from None
            is_text = event.get("type") == "log"
            key = tuple(event.get(name) for name in ("type", "task", "iter", "metric", "variant"))
            if key in self._events and event["type"] == "training_stats_scalar" and event["metric"] != SINGLE:
                self.repeats.append(event)
            self._events[(len(self._events),) if is_text else key] = event
            if event.get("type") == "training_stats_scalar":
                self.sent[key[1:]] += 1
                numbers.setdefault(event.get("task", ""), []).append(event)
            if event.get("task") in self.tasks:
                self.tasks[event["task"]]["last_update"] = _now()
        for id_, new in numbers.items():
            if (task := self.tasks.get(id_)) is not None:
                task["last_iteration"] = max(task["last_iteration"], *(event.get("iter") or 0 for event in new))
                update_last_metrics(task["last_metrics"], new)

    def fails(self) -> bool:
        """Count a request, and return whether it fails."""
        self.asked += 1
        return self.fails_at is not None and self.asked >= self.fails_at

    def recover(self) -> None:
        """Answer again; what hangs is never answered."""
        self.fails_at = None
        self.recovered.set()

    # -- as a person does on the page --------------------------------------------------------------------------

    def clone(self, task: str, name: str | None = None) -> str:
        """Copy script, parameters, configuration and destination of a task, but no models, artifacts and events."""
        old = self.tasks[task]
        new = {key: copy.deepcopy(value) for key, value in old.items() if key in KEPT_BY_CLONES}
        for left_out in ("artifacts", "queue"):
            new.setdefault("execution", {}).pop(left_out, None)
        new["output"] = {"destination": old.get("output", {}).get("destination")}
        inputs = copy.deepcopy(old.get("models", {}).get("input", []))
        parent = old.get("parent") or task
        return self._add_task({**new, "parent": parent, "name": name or "Clone", "models": {"input": inputs}})

    def enqueue(self, task: str, queue: str) -> None:
        """Let an agent run a task."""
        self._tasks_enqueue({"task": task, "queue_name": queue})

    def abort(self, task: str) -> None:
        """Stop a task: a development task at once, that of an agent by a message that the agent reads."""
        self._tasks_stop({"task": task})

    def set_parameter(self, task: str, name: str, value: str) -> None:
        """Edit a hyper-parameter, or add one."""
        section, _, key = name.partition("/")
        there = self.tasks[task]["hyperparams"].setdefault(section, {})
        there.setdefault(key, {"section": section, "name": key, "type": None})["value"] = value

    # -- tasks -------------------------------------------------------------------------------------------------

    def change(self, task_id: str, state: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Change the state of a task, where that is allowed."""
        task = self._task(task_id)
        before = task["status"]
        if not asked.get("force") and state != before and state not in TRANSITIONS[before]:
            raise Rejected(f"Invalid status change: current_status={before}, new_status={state}")
        reason, message = asked.get("status_reason") or "", asked.get("status_message") or ""
        task.update(status=state, status_reason=reason, status_message=message, last_update=_now())
        if state == "in_progress":
            task["started"] = task.get("started", _now()) if before == state else _now()
        elif state in ("stopped", "completed", "failed"):
            task["completed"] = _now()
        if state == "queued":
            task["enqueue_status"] = before
            task["system_tags"] = [tag for tag in task["system_tags"] if tag != "development"]
        self.changes.append((task_id, state, reason or message))
        return {"updated": 1, "started": 1, "fields": {"status": state}}

    def _task(self, task_id: Any, *, states: tuple[str, ...] | None = None) -> dict[str, Any]:
        if task_id not in self.tasks:
            raise Rejected(f"Invalid task id: id={task_id}")
        task = self.tasks[task_id]
        if states is not None and task["status"] not in states:
            raise Rejected(f"Invalid task status: expected={states}, status={task['status']}")
        return task

    def _to_edit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return self._task(asked["task"], states=OPEN if asked.get("force") else ("created",))

    def _add_task(self, content: dict[str, Any]) -> str:
        empty: dict[str, Any] = {"script": {}, "execution": {}, "hyperparams": {}, "configuration": {}, "output": {}}
        empty |= {"runtime": {}, "container": {}, "tags": [], "system_tags": [], "project": None, "type": "training"}
        given = {key: value for key, value in content.items() if value is not None}
        task = {"id": uuid.uuid4().hex, "status": "created", "status_message": "", "company": "a company", "user": "me"}
        task |= {"last_iteration": 0, "last_metrics": {}, "created": _now(), "last_update": _now(), **empty, **given}
        # What is made is a copy: an answer must not be changed by what comes later.
        task["models"] = {"input": [], "output": [], **task.get("models", {})}
        self.tasks[task["id"]] = task
        return str(task["id"])

    def add_task(self, **content: Any) -> str:
        """Add a task that somebody else has made."""
        return self._add_task(content)

    def _tasks_create(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"id": self._add_task(asked), "created": True}

    def _tasks_get_by_id(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"task": copy.deepcopy(self._task(asked["task"]))}

    def _tasks_get_all(self, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"tasks": copy.deepcopy(found_tasks(self.tasks.values(), asked))}
        except ValueError as error:
            raise Rejected(str(error)) from None

    _tasks_get_all_ex = _tasks_get_all

    def _tasks_clone(self, asked: dict[str, Any]) -> dict[str, Any]:
        new = self.clone(asked["task"], asked.get("new_task_name"))
        given = {key: f"new_task_{key}" for key in ("tags", "parent", "project", "comment")}
        self.tasks[new] |= {key: asked[name] for key, name in given.items() if asked.get(name) is not None}
        for key, value in (asked.get("execution_overrides") or {}).items():
            self.tasks[new]["execution"][key] = value
        return {"id": new}

    def _tasks_edit(self, asked: dict[str, Any]) -> dict[str, Any]:
        task = self._task(asked["task"], states=None if asked.get("force") else ("created",))
        task.update({key: value for key, value in asked.items() if key not in ("task", "force") and value is not None})
        task["last_update"] = _now()
        return {"updated": 1, "fields": {}}

    def _tasks_update(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self._tasks_edit({**asked, "force": True})

    def _tasks_set_requirements(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._task(asked["task"])["script"]["requirements"] = asked["requirements"]
        return {"updated": 1, "fields": {}}

    def _tasks_edit_hyper_params(self, asked: dict[str, Any]) -> dict[str, Any]:
        parameters = self._to_edit(asked)["hyperparams"]
        replaced = asked.get("replace_hyperparams")
        for section in parameters if replaced == "all" else {item["section"] for item in asked["hyperparams"]}:
            if replaced in ("all", "section"):
                parameters[section] = {}
        for item in asked["hyperparams"]:
            parameters.setdefault(item["section"], {})[item["name"]] = item
        return {"updated": 1}

    def _tasks_delete_hyper_params(self, asked: dict[str, Any]) -> dict[str, Any]:
        parameters = self._to_edit(asked)["hyperparams"]
        for item in asked["hyperparams"]:
            parameters.get(item["section"], {}).pop(item.get("name"), None)
        return {"deleted": 1}

    def _tasks_edit_configuration(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._to_edit(asked)["configuration"].update({item["name"]: item for item in asked["configuration"]})
        return {"updated": 1}

    def _tasks_add_or_update_artifacts(self, asked: dict[str, Any]) -> dict[str, Any]:
        there = self._to_edit(asked)["execution"].setdefault("artifacts", [])
        new = {item["key"]: item for item in asked["artifacts"]}
        there[:] = [*(item for item in there if item["key"] not in new), *new.values()]
        return {"updated": 1}

    def _tasks_add_or_update_model(self, asked: dict[str, Any]) -> dict[str, Any]:
        there = self._task(asked["task"], states=OPEN)["models"][asked["type"]]
        there[:] = [*(one for one in there if one["name"] != asked["name"]), {k: asked[k] for k in ("name", "model")}]
        return {"updated": 1}

    def _tasks_stop(self, asked: dict[str, Any]) -> dict[str, Any]:
        task = self._task(asked["task"])
        by_agent = "development" not in task["system_tags"] and task.get("last_worker")
        if task["status"] == "queued" or not by_agent:
            self._take_from_queues(asked["task"])
            return self.change(asked["task"], "stopped", {**asked, "status_message": "Stopped by me"})
        return self.change(asked["task"], task["status"], {**asked, "status_message": "stopping"})

    def _tasks_enqueue(self, asked: dict[str, Any]) -> dict[str, Any]:
        queue = asked.get("queue") or self._queue_of(asked["queue_name"])
        if self._task(asked["task"])["status"] == "queued":
            raise Rejected("Task already in requested status")
        done = self.change(asked["task"], "queued", asked)
        self.queues.setdefault(queue, []).append(asked["task"])
        self.tasks[asked["task"]]["execution"]["queue"] = queue
        return {**done, "queued": 1}

    def _tasks_dequeue(self, asked: dict[str, Any]) -> dict[str, Any]:
        task = self._task(asked["task"])
        self._take_from_queues(asked["task"])
        if task["status"] not in ("queued", "in_progress"):
            return {"dequeued": 1, "updated": 0}
        new = asked.get("new_status") or task.get("enqueue_status") or "created"
        done = self.change(asked["task"], new, {**asked, "force": True})
        task.pop("enqueue_status", None)
        return {**done, "dequeued": 1}

    def _take_from_queues(self, task: str) -> None:
        for waiting in self.queues.values():
            if task in waiting:
                waiting.remove(task)

    def _tasks_ping(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._task(asked["task"])["last_update"] = _now()
        return {}

    def _tasks_reset(self, asked: dict[str, Any]) -> dict[str, Any]:
        task = self._task(asked["task"])
        task["models"]["output"], task["last_iteration"], task["runtime"] = [], 0, {}
        task["last_metrics"] = {}
        for name in ("last_worker", "started", "completed", "enqueue_status"):
            task.pop(name, None)
        self._events = {key: event for key, event in self._events.items() if event.get("task") != asked["task"]}
        return self.change(asked["task"], "created", asked)

    def _events_scalar_metrics_iter_histogram(self, asked: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, dict[str, Any]] = {}
        for event in sorted(self.scalars_of(asked["task"]), key=lambda event: event["iter"]):
            series = found.setdefault(event["metric"], {})
            points = series.setdefault(event["variant"], {"name": event["variant"], "x": [], "y": []})
            points["x"].append(event["iter"])
            points["y"].append(event["value"])
        return found

    def scalars_of(self, task: str) -> list[dict[str, Any]]:
        """Return the points of the curves of a task."""
        kept = [event for event in self.events if event.get("task") == task]
        return [event for event in kept if event["type"] == "training_stats_scalar" and event["metric"] != SINGLE]

    # -- everything else ---------------------------------------------------------------------------------------

    def _auth_login(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"token": _token()}

    def _projects_create(self, asked: dict[str, Any]) -> dict[str, Any]:
        id_ = uuid.uuid4().hex
        self.projects[id_] = asked["name"]
        return {"id": id_}

    def _projects_get_all(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked.get("name") or ""
        return {
            "projects": [{"id": id_, "name": known} for id_, known in self.projects.items() if re.search(name, known)]
        }

    _projects_get_all_ex = _projects_get_all

    def _projects_get_by_id(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = self.projects.get(asked["project"], "of the stand-in")
        return {"project": {"id": asked["project"], "name": name}}

    def _models_create(self, asked: dict[str, Any]) -> dict[str, Any]:
        new = {"id": uuid.uuid4().hex, "company": "a company", "ready": False, "metadata": {}, **asked}
        self.models[new["id"]] = new
        return {"id": new["id"], "created": True}

    def _models_edit(self, asked: dict[str, Any]) -> dict[str, Any]:
        model = self.models[asked["model"]]
        model.update({key: value for key, value in asked.items() if key != "model" and value is not None})
        if asked.get("iteration") and model.get("task") in self.tasks:
            task = self.tasks[model["task"]]
            task["last_iteration"] = max(task["last_iteration"], asked["iteration"])
        return {"updated": 1, "fields": {}}

    _models_update = _models_edit

    def _models_get_by_id(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["model"] not in self.models:
            raise Rejected(f"Invalid model id: id={asked['model']}")
        return {"model": copy.deepcopy(self.models[asked["model"]])}

    def _models_get_all(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = [model for model in self.models.values() if not asked.get("id") or model["id"] in asked["id"]]
        if asked.get("uri"):
            found = [model for model in found if model.get("uri") in asked["uri"]]
        return {"models": copy.deepcopy(found)}

    _models_get_all_ex = _models_get_all

    def _models_add_or_update_metadata(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.models[asked["model"]]["metadata"].update({item["key"]: item for item in asked["metadata"]})
        return {"updated": 1}

    def _queue_of(self, name: str) -> str:
        """Return the id of a queue, which is made where there is none."""
        self.queues.setdefault(f"queue-{name}", [])
        return f"queue-{name}"

    def _queues_get_all(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = (asked.get("name") or "").strip("^$").replace("\\", "")
        found = [self._queue_of(name)] if name else list(self.queues)
        wanted = asked.get("id") or found
        return {
            "queues": [
                {"id": id_, "name": id_.removeprefix("queue-"), "tags": [], "system_tags": []}
                for id_ in dict.fromkeys([*found, *wanted])
                if id_ in wanted
            ]
        }

    _queues_get_all_ex = _queues_get_all

    def _queues_get_next_task(self, asked: dict[str, Any]) -> dict[str, Any]:
        waiting = self.queues.get(asked["queue"]) or []
        return {"entry": {"task": waiting.pop(0)}} if waiting else {}

    def _workers_register(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.workers[asked["worker"]] = asked.get("queues") or []
        return {}

    def _workers_unregister(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.workers.pop(asked["worker"], None)
        return {}

    def _workers_get_all(self, asked: dict[str, Any]) -> dict[str, Any]:
        def shown(queue: str) -> dict[str, Any]:
            return {"id": queue, "name": queue.removeprefix("queue-"), "num_tasks": len(self.queues.get(queue, ()))}

        return {"workers": [{"id": id_, "queues": [*map(shown, of)]} for id_, of in self.workers.items()]}

    def _workers_get_runtime_properties(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"runtime_properties": []}

    def _workers_status_report(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked.get("task") in self.tasks:
            self.tasks[asked["task"]]["last_worker"] = asked.get("worker")
        return {}
