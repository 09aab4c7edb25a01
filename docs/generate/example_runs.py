"""Runs the example of a hook for its page: what it prints, draws and writes is what is shown."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import random
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
import yaml

from docs.generate.scenes import Scene, scene_of
from ignite_hooks import attach_hooks, read_run
from ignite_hooks.run.logger import LOGGER_NAME
from ignite_hooks.run.runner import Runner

EXAMPLES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("examples.yaml").read_text(encoding="utf-8")
)
"""For each hook the text of its `hooks`, and what is shown of the run besides what it prints."""
LONG = 76
"""The length from which an entry is broken into lines."""
TRACKERS = ("ClearMLHook", "MLflowHook", "TrackioHook", "WandbHook")
"""Import a tracker, which takes seconds."""
HIDDEN = (".lock", "result.json")
"""Files of every run."""
_COSTS = re.compile(r"^what the hooks cost:\n(?:hook .*\n)(?:\S+ +\d.*\n?)*", re.MULTILINE)
_SUMMARY = re.compile(r"^summary\n(?:  .*\n?)*", re.MULTILINE)
_OF_THE_MACHINE = re.compile("^run ended after|waited for a processor|^USDT:|CPUAllocator")
"""Lines of every run, and those that say how busy the machine was."""


@dataclass(frozen=True)
class Shown:
    """What the run of an example has shown."""

    printed: str
    pictures: Mapping[str, bytes]
    """PNG files, by what they are called in the folder of the run."""
    files: tuple[str, ...]
    texts: Mapping[str, str]
    numbers: Mapping[str, float]
    plan: tuple[Mapping[str, str], ...]
    """Where and how often the hook acts, as rows of a table."""
    calls: int = 0
    typical: float = 0.0
    """Seconds of the middle one of the timed calls."""
    longest: float = 0.0


def configuration(hook: str) -> str:
    """Return the example of a hook as the text of a file; long entries have a line for each setting."""
    lines: list[str] = []
    for line in EXAMPLES[hook]["hooks"].splitlines():
        lines += [line] if len(line) < LONG else _in_lines(yaml.safe_load(line)[0])
    return "hooks:\n" + "\n".join(f"  {line}" for line in lines) + "\n"


def _in_lines(entry: dict[str, Any]) -> list[str]:
    """Return an entry with a line for each of its settings."""
    values = [yaml.safe_dump([value], default_flow_style=True, width=200).strip()[1:-1] for value in entry.values()]
    return [f"{'  ' if n else '- '}{key}: {value}" for n, (key, value) in enumerate(zip(entry, values, strict=True))]


def run_example(hook: str) -> Shown:
    """Train with the example of a hook, in a folder of its own, and return what was to be seen."""
    with tempfile.TemporaryDirectory() as folder, _alone(Path(folder)):
        scene, work = scene_of(hook), Path(folder) / "work_dirs" / "example"
        out = io.StringIO()
        handler = logging.StreamHandler(out)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger = logging.getLogger(LOGGER_NAME)
        before = logger.handlers[:], logger.level, logger.propagate
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                runner = _trained(scene, configuration(hook), work)
        finally:
            logger.handlers, logger.level, logger.propagate = before
        return _seen(hook, runner, work, out.getvalue().replace(f"{work}", "work_dirs/example"))


def _trained(scene: Scene, text: str, work: Path) -> Runner:
    """Attach the hooks of a configuration and train; a failure that belongs to the scene is what it shows."""
    runner = attach_hooks(scene.trainer, yaml.safe_load(text), work_dir=work, **scene.services)
    try:
        scene.trainer.run(scene.data, max_epochs=scene.epochs)
    except BaseException as error:
        if scene.fails is None or not isinstance(error, scene.fails):
            raise
    if "test" in runner.hooks:
        runner.test()
    return runner


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Use one thread, random numbers of our own, and nothing of the user's: trackers keep files at home."""
    settings = {
        "CLEARML_CACHE_DIR": f"{folder}/clearml",
        "CLEARML_CONFIG_FILE": f"{folder}/clearml.conf",
        "CLEARML_OFFLINE_MODE": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "WANDB_CACHE_DIR": f"{folder}/wandb-cache",
        "WANDB_CONFIG_DIR": f"{folder}/wandb-config",
        "WANDB_DATA_DIR": f"{folder}/wandb-data",
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
    }
    before = {name: os.environ.get(name) for name in settings}
    threads, python, array = torch.get_num_threads(), random.getstate(), numpy.random.get_state()
    (folder / "clearml.conf").write_text(f'sdk {{ development {{ detect_with_pip_freeze: "{os.devnull}" }} }}')
    os.environ |= settings
    torch.set_num_threads(1)
    try:
        with contextlib.chdir(folder), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            yield
    finally:
        torch.set_num_threads(threads)
        random.setstate(python)
        numpy.random.set_state(array)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _seen(hook: str, runner: Runner, work: Path, printed: str) -> Shown:
    asked = EXAMPLES[hook]
    files = {path.relative_to(work).as_posix(): path for path in sorted(work.rglob("*")) if path.is_file()}
    pictures = [name for name in files if name.endswith(".png")]
    recorded = read_run(work).metrics if asked.get("numbers") and work.exists() else {}
    numbers = {name: one.value for name, one in recorded.items() if re.fullmatch(asked["numbers"], name)}
    own = next(name for name, one in runner.hooks.items() if type(one).__name__ == hook)
    tally = runner.report().hooks().get(own)
    return Shown(
        _tidy(printed, keep_summary=hook == "LoggerHook"),
        {name: files[name].read_bytes() for name in pictures[-asked.get("pictures", 1) :]},
        tuple(name for name in files if name not in HIDDEN),
        {name: files[name].read_text(encoding="utf-8") for name in asked.get("texts", ())},
        numbers,
        tuple(_rows(runner, own)),
        tally.calls if tally else 0,
        tally.percentile(0.5) if tally and tally.timed else 0.0,
        tally.worst if tally else 0.0,
    )


def _rows(runner: Runner, hook: str) -> Iterator[Mapping[str, str]]:
    """Yield where and how often a hook acts."""
    point = ""
    for row in runner.plan.rows():
        point = row["point"] or point
        if row["hook"] == hook:
            yield {"point": point, "priority": row["priority"], "how often": row["how often"]}


def _tidy(text: str, *, keep_summary: bool) -> str:
    """Return what was printed without what every run prints, and without escape sequences."""
    text = _COSTS.sub("", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text))
    text = text if keep_summary else _SUMMARY.sub("", text)
    # A bar is drawn over and over on one line.
    lines = [line.rpartition("\r")[2].rstrip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line and not _OF_THE_MACHINE.search(line))
