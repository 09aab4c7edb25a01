"""Mutated configurations are refused with a ConfigError, or run."""

from __future__ import annotations

import collections
import copy
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ignite.engine import Engine

from ignite_hooks import BaseHook, ConfigError, HookError, attach_hooks
from ignite_hooks.config.read import default_set
from ignite_hooks.text import shown
from tests.config.tools import CONFIGS, deep, state_of
from tests.properties import tried

pytestmark = [pytest.mark.usefixtures("_elsewhere"), pytest.mark.faults]


NAN, INF = float("nan"), float("inf")
KINDS: dict[str, tuple[list[Any], list[Any]]] = {
    # kind: values that fit, values that do not
    "positive": ([1, 2, 7, 10**6, 10**90], [0, -1, True, 1.0, "1", None, NAN, INF, [], {}, [1], 10**5000]),
    "natural": ([0, 1, 5, 10**6], [-1, False, 0.0, "0", None, NAN, [], {}]),
    "kept": ([-1, 1, 3], [0, -2, True, "3", None, 2.5, INF, []]),
    "flag": ([True, False], [0, 1, "true", "yes", None, [], {}, 1.0]),
    "amount": ([0, 0.0, 0.1, 3, 1e300], [-0.1, -1, True, "0.1", None, NAN, INF, []]),
    "number?": ([None, -1, 0.5, 1e300], [True, "0.5", NAN, INF, -INF, [], {}]),
    "text?": ([None, "sub", "a/b"], [3, True, ["a"], {}, NAN, "../up"]),
    "rule": (["greater", "max", "auto"], ["grater", "", "MAX", None, True, 1, []]),
    "mode": (["min", "auto", "less"], ["mni", "", None, True, 1, []]),
    "template": (
        ["e{}.pth", "m_{:04d}.pt"],
        ["e.pth", "../{}.pth", "{}{}", "{x}", "{0.__class__}", "", 3, None, [], "/a{}"],
    ),
    "seconds": ([1, 3600], [0, -1, True, 1.5, "60", NAN, []]),
    "mapping?": ([None], [3, "Accuracy", ["Accuracy"], True, {"a": "Acuracy"}, {"a": 3}]),
    "function?": ([None], [3, "f", [], {}, True]),
}
HOOK_KINDS = {
    "CheckpointHook": {
        "interval": "positive",
        "by_epoch": "flag",
        "start": "natural",
        "save_optimizer": "flag",
        "save_scheduler": "flag",
        "max_keep_ckpts": "kept",
        "save_last": "flag",
        "rule": "rule",
        "out_dir": "text?",
        "filename_tmpl": "template",
    },
    "EvalHook": {
        "interval": "positive",
        "by_epoch": "flag",
        "start": "natural",
        "save_best": "flag",
        "rule": "rule",
        "efficient_test": "flag",
        "metrics": "mapping?",
        "test_fn": "function?",
    },
    "EarlyStoppingHook": {
        "patience": "positive",
        "min_delta": "amount",
        "mode": "mode",
        "baseline": "number?",
        "restore_best_weights": "flag",
        "check_finite": "flag",
        "stopping_threshold": "number?",
        "divergence_threshold": "number?",
    },
    "LoggerHook": {"interval": "positive", "by_epoch": "flag", "log_metric_by_epoch": "flag", "ignore_last": "flag"},
    "IterTimerHook": {"interval": "positive", "log_eta": "flag"},
    "RuntimeInfoHook": {},
    "ignite.handlers.TimeLimit": {"limit_sec": "seconds"},
}
COMMON_KINDS: dict[str, tuple[list[Any], list[Any]]] = {
    "priority": (
        ["HIGH", "very_low", 0, 100, 35, {"after_epoch": 3}, {"before_run": "LOW"}],
        [
            "HIHG",
            "",
            "50",
            101,
            -1,
            True,
            1.5,
            None,
            NAN,
            [50],
            {"after_epch": 3},
            {"after_epoch": "LWO"},
            {3: 3},
            10**5000,
        ],
    ),
    "on_error": (["raise", "warn", "disable"], ["wran", "", None, True, 3, ["raise"]]),
    "name": (["mine", "Mine_2"], ["", 3, True, ["a"], {}]),
}
EVERY_BAD = ["", "5", "0 iter", "-1 epoch", "1.5 epoch", "5 moons", "iter 5", 5, True, ["5 iter"], "nan s", "inf min"]
EVALUATING = [
    {
        "hooks": [
            {
                "type": "CheckpointHook",
                "interval": 1,
                "max_keep_ckpts": 3,
                "save_best": True,
                "best_metric": "accuracy",
            },
            {"type": "LoggerHook", "interval": 50},
            {"type": "EvalHook", "interval": 1, "save_best": True, "metric": "accuracy", "rule": "greater"},
            {"type": "EarlyStoppingHook", "monitor": "val_loss", "patience": 10, "mode": "min"},
            {"type": "IterTimerHook", "interval": 50},
        ]
    },
    {"default_hooks": {"logger": {"interval": 1}, "checkpoint": {"max_keep_ckpts": 1}, "eval": {"interval": 1}}},
    [{"type": "EvalHook"}, {"type": "EarlyStoppingHook", "patience": 1, "min_delta": 0.1}],
]
PLAIN = [
    {
        "experiment_dir": "experiments/my_experiment",
        "model": {"type": "cnn"},
        "training": {"epochs": 50},
        "hooks": [
            {"type": "CheckpointHook", "interval": 1},
            {"type": "LoggerHook"},
            {"type": "ignite.handlers.TimeLimit", "limit_sec": 3600},
        ],
    },
    {"custom_hooks": [{"type": "ignite.handlers.TimeLimit", "limit_sec": 60, "name": "limit"}], "seed": 3},
    {"default_hooks": {"timer": None, "logger": {"interval": 1, "priority": "LOW"}}, "writers": ["MemoryWriter"]},
    [{"type": "CheckpointHook", "interval": 1, "by_epoch": False}, {"type": "IterTimerHook", "interval": 1}],
]
RUBBISH = [None, NAN, INF, -INF, 10**40, -(10**40), 10**5000, -1, 0, 1, 1.5, "", "x", "@model", "@", "\n\n", [], {}]
RUBBISH += [True, [[[]]], {"type": "x"}, {"a": {"b": [{}]}}, "é" * 1000, {1: 2}, {None: None}, [None], b"x", object()]

Mutation = Callable[[random.Random, Any], Any]


def entries_of(cfg: Any) -> list[dict[str, Any]]:
    """Return the entries of a configuration that name their hook."""
    listed = cfg if isinstance(cfg, list) else [*cfg.get("hooks", []), *cfg.get("custom_hooks", [])]
    names = default_set(evaluates=True)
    defaults = {} if isinstance(cfg, list) else cfg.get("default_hooks") or {}
    return [e for e in listed if isinstance(e, dict)] + [e for n, e in defaults.items() if e is not None and n in names]


def type_of(cfg: Any, entry: dict[str, Any]) -> str:
    if "type" in entry:
        return str(entry["type"])
    return next(default_set(evaluates=True)[n]["type"] for n, e in cfg["default_hooks"].items() if e is entry)


def an_entry(r: random.Random, cfg: Any, *, listed: bool = False) -> dict[str, Any]:
    found = [entry for entry in entries_of(cfg) if "type" in entry or not listed]
    if not found:
        return {}
    return r.choice(found)


def reordered(r: random.Random, cfg: Any) -> Any:
    """Change the order of keys and entries, which is harmless."""
    if isinstance(cfg, list):
        return r.sample(cfg, len(cfg))
    keys = r.sample(list(cfg), len(cfg))
    return {key: r.sample(cfg[key], len(cfg[key])) if key == "hooks" else cfg[key] for key in keys}


def with_a_key_of_the_script(r: random.Random, cfg: Any) -> Any:
    """Harmless."""
    cfg = {"hooks": cfg} if isinstance(cfg, list) else cfg
    key = r.choice(["lr", "optimizer", "dataset", "batch_size", "note", "logging", "device", "amp", "epochs", "loader"])
    return {**cfg, key: copy.deepcopy(r.choice(RUBBISH))}


def within_range(r: random.Random, cfg: Any) -> Any:
    """Set a setting, or one of every hook, to a valid value, which is harmless."""
    entry = an_entry(r, cfg)
    kinds = HOOK_KINDS.get(type_of(cfg, entry) if entry else "", {})
    if kinds and r.random() < 0.7:
        setting = r.choice(list(kinds))
        if not (setting == "by_epoch" and "filename_tmpl" in entry):
            entry[setting] = copy.deepcopy(r.choice(KINDS[kinds[setting]][0]))
    elif entry:
        word = r.choice(["priority", "on_error"])
        entry[word] = copy.deepcopy(r.choice(COMMON_KINDS[word][0]))
    return cfg


def without_an_entry(r: random.Random, cfg: Any) -> Any:
    """Remove an entry, which is harmless: there is always an evaluator."""
    listed = cfg if isinstance(cfg, list) else cfg.get("hooks", [])
    if listed:
        listed.pop(r.randrange(len(listed)))
    return cfg


def with_a_hook_object(r: random.Random, cfg: Any) -> Any:
    """Harmless."""
    hook = BaseHook(name=f"object_{r.random()}", priority=r.randrange(101))
    if isinstance(cfg, list):
        return [*cfg, hook]
    return {**cfg, "custom_hooks": [*cfg.get("custom_hooks", []), hook]}


def misspelt(r: random.Random, word: str) -> str:
    at = r.randrange(1, len(word))
    return r.choice([word[:at] + word[at + 1 :], word[:at] + word[at - 1] + word[at:], word[:at] + "x" + word[at:]])


def _wrong_entry(mutate: Callable[[random.Random, dict[str, Any], dict[str, str]], bool]) -> Mutation:
    def mutated(r: random.Random, cfg: Any) -> Any:
        entry = an_entry(r, cfg)
        if not entry:
            cfg = [{"type": "LoggerHook"}]
            entry = cfg[0]
        kinds = HOOK_KINDS[type_of(cfg, entry)]
        return cfg if mutate(r, entry, kinds) else misspelt_type(r, [{"type": "LoggerHook"}])

    return mutated


def _misspelt_key(r: random.Random, entry: dict[str, Any], kinds: dict[str, str]) -> bool:
    known = {*kinds, *COMMON_KINDS, "every", "frequency", "begin", "start", "by_epoch", "interval", "clock", "metric"}
    slips = [s for word in (*kinds, "priority", "on_error") if (s := misspelt(r, word)) not in known]
    if slips:
        entry[r.choice(slips)] = r.choice([1, "a", True])
    return bool(slips)


def _wrong_value(r: random.Random, entry: dict[str, Any], kinds: dict[str, str]) -> bool:
    if not kinds:
        return False
    setting = r.choice(list(kinds))
    entry[setting] = copy.deepcopy(r.choice(KINDS[kinds[setting]][1]))
    return True


def _wrong_common(r: random.Random, entry: dict[str, Any], kinds: dict[str, str]) -> bool:
    word = r.choice(list(COMMON_KINDS))
    entry[word] = copy.deepcopy(r.choice(COMMON_KINDS[word][1]))
    return True


def _wrong_every(r: random.Random, entry: dict[str, Any], kinds: dict[str, str]) -> bool:
    entry.pop("interval", None)
    entry["every"] = r.choice(EVERY_BAD)
    return True


def _wrong_key(r: random.Random, entry: dict[str, Any], kinds: dict[str, str]) -> bool:
    entry[r.choice([3, None, 1.5, True, ("a",)])] = 1
    return True


def _twice_the_same(r: random.Random, entry: dict[str, Any], kinds: dict[str, str]) -> bool:
    if "interval" not in kinds:
        return False
    entry.pop("every", None)
    entry["interval"] = 1
    entry[r.choice(["frequency", "every"])] = 1
    return True


def misspelt_type(r: random.Random, cfg: Any) -> Any:
    wanted = r.choice(["LoggerHook", "CheckpointHook", "ignite.handlers.TimeLimit"])
    bad = [misspelt(r, wanted), "os.system", "ignite.handlers.os", "ignite.engine.Engine", "", None, 3, [], {}, NAN]
    entry = {"type": r.choice(bad), "name": "unheard_of"}
    if r.random() < 0.2:
        del entry["type"]
    if isinstance(cfg, list):
        return [*cfg, entry]
    return {**cfg, "custom_hooks": [*cfg.get("custom_hooks", []), entry]}


def rubbish_as_entry(r: random.Random, cfg: Any) -> Any:
    bad = r.choice(
        [None, 3, 1.5, True, "Nope", [], ["LoggerHook"], {}, {"a": 1}, NAN, {None: 1}, object(), {"type": {}}]
    )
    if isinstance(cfg, list):
        return [*cfg, bad]
    return {**cfg, "custom_hooks": [*cfg.get("custom_hooks", []), bad]}


def the_same_name_twice(r: random.Random, cfg: Any) -> Any:
    new = [{"type": "LambdaHook", "name": "twin"}, {"type": "RuntimeInfoHook", "name": "twin"}]
    if isinstance(cfg, list):
        return [*cfg, *new]
    return {**cfg, "custom_hooks": [*cfg.get("custom_hooks", []), *new]}


def wrong_top_level(r: random.Random, cfg: Any) -> Any:
    cfg = {"hooks": cfg} if isinstance(cfg, list) else dict(cfg)
    wrong = {
        "seed": [-1, 2**32, 1.5, "3", True, [], NAN, 10**5000],
        "resume": [3, "", [], {}, 1.5, NAN],
        "work_dir": [3, "", " ", [], {}, True, "a\0b"],
        "writers": [
            3,
            "Nope",
            [None],
            [3],
            [{}],
            [{"type": "JsonlWriter"}],
            [{"type": "MemoryWriter", "x": 1}],
            [object()],
        ],
        "custom_hooks": [3, "LoggerHook", {}, True, 1.5],
        "hoks": [[]],
        "default_hook": [{}],
        "custom_hook": [[]],
        "wrters": [[]],
        "sede": [3],
        "resum": [True],
        "wrk_dir": ["a"],
    }
    if "hooks" in cfg:
        wrong |= {"hooks": [3, "LoggerHook", {}, True], "default_hooks": [{}, None, [], 3]}
    else:
        wrong |= {
            "default_hooks": [3, [], "logger", {"logger": 3}, {"loger": None}, {"zzz": {}}, {3: None}],
            "hooks": [[]],
        }
        if "default_hooks" not in cfg:
            del wrong["hooks"]
    key = r.choice(list(wrong))
    cfg[key] = copy.deepcopy(r.choice(wrong[key]))
    return cfg


def rubbish_anywhere(r: random.Random, cfg: Any) -> Any:
    """Put anything anywhere: the result may be right or wrong, but never a traceback."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            if key not in ("work_dir", "experiment_dir", "resume", "out_dir"):
                places.append((node, key))
                if isinstance(value, (dict, list)):
                    walk(value)

    walk(cfg)
    if places:
        node, key = r.choice(places)
        if r.random() < 0.2:
            del node[key]
        else:
            node[key] = copy.deepcopy(r.choice(RUBBISH))
    return cfg


HARMLESS: list[Mutation] = [reordered, with_a_key_of_the_script, within_range, without_an_entry, with_a_hook_object]
REFUSED: list[Mutation] = [
    _wrong_entry(_misspelt_key),
    _wrong_entry(_wrong_value),
    _wrong_entry(_wrong_value),
    _wrong_entry(_wrong_common),
    _wrong_entry(_wrong_every),
    _wrong_entry(_wrong_key),
    _wrong_entry(_twice_the_same),
    misspelt_type,
    rubbish_as_entry,
    the_same_name_twice,
    wrong_top_level,
]


def mutated(r: random.Random, base: Any) -> tuple[Any, str]:
    """Return a mutation of a valid configuration, and what must become of it."""
    cfg = copy.deepcopy(base)
    for _ in range(r.randrange(3)):
        cfg = r.choice(HARMLESS)(r, cfg)
    verdict = r.choice(["accepted", "refused", "refused", "either"])
    if verdict == "refused":
        cfg = r.choice(REFUSED)(r, cfg)
    for _ in range(r.randrange(1, 4) if verdict == "either" else 0):
        cfg = rubbish_anywhere(r, cfg)
    return cfg, verdict


MODEL = torch.nn.Linear(2, 2)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)


def measure(engine: Engine, batch: Any) -> None:
    engine.state.metrics |= {"accuracy": 0.5, "loss": 0.7}


def outcome(cfg: Any, evaluating: bool, folder: Path, run: bool = True) -> str:
    """Return what becomes of a configuration; raise errors that should not occur."""
    trainer = Engine(lambda engine, batch: 0.5)
    services: dict[str, Any] = {"model": MODEL, "optimizer": OPTIMIZER}
    if evaluating:
        services |= {
            "val_loader": [0, 1],
            "criterion": torch.nn.functional.cross_entropy,
            "evaluators": Engine(measure),
        }
    before, given = state_of(trainer), deep(cfg)
    try:
        runner = attach_hooks(trainer, cfg, work_dir=folder, **services)
    except ConfigError as error:
        assert state_of(trainer) == before
        assert deep(cfg) == given
        for problem in error.problems:
            assert problem.place
            assert len(str(problem)) < 400, problem
            assert "\n" not in str(problem), problem
        return "refused"
    assert str(runner.plan)
    if run:
        try:
            trainer.run([0, 1], max_epochs=1)
        except (HookError, ConfigError):
            pass
    runner.detach()
    return "accepted"


def attempt(r: random.Random, recipes: list[Any], folder: Path) -> str:
    """Mutate a configuration; return whether it was accepted or refused, and raise an error if that is wrong."""
    evaluating = r.random() < 0.5
    cfg, verdict = mutated(r, r.choice([*EVALUATING, *PLAIN] if evaluating else PLAIN))
    if r.random() < 0.05:
        cfg, verdict, evaluating = rubbish_anywhere(r, copy.deepcopy(r.choice(recipes))), "either", True
    try:
        found = outcome(cfg, evaluating, folder, run=verdict == "either" or r.randrange(4) == 0)
    except Exception as error:
        raise AssertionError(f"evaluating {evaluating}: {shown(cfg, 2000)}") from error
    assert verdict in (found, "either"), f"evaluating {evaluating}: {found}, not {verdict}: {shown(cfg, 2000)}"
    return found


def test_mutated_configurations_are_refused_with_a_config_error_or_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)  # thousands of checkpoints, none of which has to last
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    recipes = [yaml.safe_load(path.read_text()) for path in sorted(CONFIGS.glob("*.yaml"))]
    counts: collections.Counter[str] = collections.Counter()

    @tried(300)
    @given(st.randoms(use_true_random=False))
    def check(r: random.Random) -> None:
        counts[attempt(r, recipes, tmp_path / str(counts.total()))] += 1

    check()
    print(dict(counts))
    assert min(counts["accepted"], counts["refused"]) > 0.15 * counts.total(), counts
