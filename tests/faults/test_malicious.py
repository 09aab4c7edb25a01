"""Checkpoint files made to do harm: nothing in them is ever run, and nothing outside of the work directory changes.

Every file lies where a run looks for it, with a manifest made to match. It is opened in a forked process that notes
each attempt to start something, to connect, or to write anywhere else.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import io
import logging
import math
import operator
import os
import pickle
import random
import resource
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_trainer

from ignite_hooks import BaseHook, CheckpointError, attach_hooks
from ignite_hooks.store import FolderStore
from ignite_hooks.store.manifest import FILE_NAME, Manifest
from tests.faults.pickles import Scene, fields, hidden, mutated, pickled, spliced, strange, wrapped
from tests.faults.tools import Life, Tell, drawn, in_memory, times

pytestmark = [pytest.mark.faults, pytest.mark.timeout(times(240, 3600))]

FORBIDDEN = {
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn"),
    *("os.putenv", "os.unsetenv", "os.kill", "os.chdir", "socket.connect", "socket.bind", "ctypes.dlopen"),
}
CHANGING = {
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.symlink", "os.link", "os.truncate", "os.chmod"),
    *("os.chown", "os.utime", "os.mkfifo", "shutil.copyfile", "shutil.move", "tempfile.mkdtemp", "shutil.rmtree"),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MEMORY = 3 * 1024**3
"""What a file may ask for before it is told that there is no more."""


class Watch:
    """Notes what this process does beyond its work directory; there is no way to end it but with the process."""

    def __init__(self, work: Path, scene: Scene) -> None:
        self.work, self.scene = os.path.realpath(work), scene
        self.seen: list[str] = []
        self.environment = dict(os.environ)
        self.before = self.outside()
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in FORBIDDEN:
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)) and arguments[2] & WRITING:
            self.changing(event, arguments[0])
        elif event in CHANGING:
            for path in arguments[:2]:
                if isinstance(path, (str, bytes, os.PathLike)):
                    self.changing(event, path)

    def changing(self, event: str, path: Any) -> None:
        real = os.path.join(
            os.path.realpath(os.path.dirname(os.fsdecode(path)) or "."), os.path.basename(os.fsdecode(path))
        )
        if real not in (self.work, "/dev/null") and not real.startswith(self.work + os.sep):
            self.seen.append(f"{event} {real}")

    def outside(self) -> dict[str, bytes | None]:
        found = [*self.scene.folder.rglob("*"), *self.scene.folder.parent.glob("*")]
        return {str(path): path.read_bytes() if path.is_file() else None for path in found}

    def harm(self) -> list[str]:
        """Return the harm that was done since the last call."""
        harm, self.seen = self.seen, []
        if self.outside() != self.before:
            harm.append("files outside have changed")
        if dict(os.environ) != self.environment or os.getenv("IGNITE_HOOKS_CANARY"):
            harm.append("the environment has changed")
        return harm


class Arrival(BaseHook):
    """Notes that a run has got past loading."""

    def __init__(self) -> None:
        self.arrived = False

    def before_train(self) -> None:
        self.arrived = True


def attached(work: Path, **options: Any) -> tuple[Any, Any, Arrival]:
    """Return a run that saves much: weights, optimizer, scheduler, a service, best, early stopping."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
    evaluator = Engine(lambda engine, batch: engine.state.metrics.update(accuracy=trainer.state.epoch / 100))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([0]))
    arrival = Arrival()
    hooks = [
        {"type": "CheckpointHook", "max_keep_ckpts": 1},
        {"type": "EarlyStoppingHook", "monitor": "accuracy", "patience": 50},
        arrival,
    ]
    objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "average": torch.nn.Linear(1, 1)}
    return attach_hooks(trainer, hooks, work_dir=work, evaluators=evaluator, **objects, **options), trainer, arrival


def train(trainer: Any, epochs: int) -> None:
    trainer.run([(torch.ones(2, 3), torch.ones(2, 2))] * 2, max_epochs=epochs)


class Stage:
    """The folder of a run of two epochs, whose newest file is exchanged and listed as if it were its own."""

    def __init__(self, work: Path, draw: random.Random) -> None:
        self.work, self.draw = work, draw
        _, trainer, _ = attached(work)
        train(trainer, 2)
        self.files = {path.name: path.read_bytes() for path in work.iterdir()}
        self.honest = self.files["last.pth"]
        self.state = torch.load(io.BytesIO(self.honest), weights_only=True)
        self.entries = FolderStore(work).entries()
        self.waiting: Any = None

    def put(self, data: bytes) -> Path:
        """Restore the folder except for one file."""
        for path in self.work.iterdir():
            if path.name not in self.files:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name, whole in self.files.items():
            if name not in (FILE_NAME, "last.pth"):
                (self.work / name).write_bytes(whole)
        path = self.work / "last.pth"
        path.write_bytes(data)
        checksum = "sha256:" + hashlib.sha256(data).hexdigest()
        entries = [
            dataclasses.replace(entry, size=len(data), checksum=checksum) if entry.name == path.name else entry
            for entry in self.entries
        ]
        Manifest(tuple(entries)).save(self.work)
        return path

    def load(self, path: Path) -> str:
        """Load a file into a run that is not running; how it went."""
        runner = self.waiting or attached(self.work)[0]
        try:
            runner.load_checkpoint(path)
        except CheckpointError as error:
            self.waiting = runner
            return refusal(error)
        except Exception as error:
            return escaped(error)
        self.waiting = None  # what it has taken up is for this file only
        return "loaded"

    def resume(self, path: Path) -> str:
        """Resume from the newest file, which is this one, and return the outcome."""
        runner, trainer, arrival = attached(self.work, resume="auto")
        try:
            train(trainer, 3)
        except Exception as error:
            if arrival.arrived:
                # Nonsense was taken up as a setting of an optimizer, say: that it fails is all that can be asked.
                return f"run failed: {type(error).__name__}"
            if isinstance(error, CheckpointError):
                return refusal(error)
            return escaped(error)
        finally:
            runner.detach()
        assert runner.state.resumed_from == path
        return "resumed"


def refusal(error: CheckpointError) -> str:
    """Return how a file was refused: because of its content, as its size and checksum are right."""
    by_checksum = "wrong checksum" in str(error) or "bytes instead" in str(error)
    return "refused unopened" if by_checksum or not str(error) else "refused"


def escaped(error: Exception) -> str:
    """Return which exception other than a CheckpointError was raised, and from which line of ours."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/ignite_hooks/" in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: {frames[-1].line}"
    return f"escaped: {type(error).__name__}: {error!s:.100} in {place}"


Case = tuple[str, bytes]
"""What a file is, and the file."""


def payloads(stage: Stage, scene: Scene) -> Iterator[Case]:
    """Yield each payload, hidden somewhere."""
    known = scene.payloads()
    while True:
        for name, payload in stage.draw.sample(list(known.items()), len(known)):
            place, state = hidden(payload, stage.draw)
            make, data = wrapped(stage.honest, pickled(state, stage.draw.choice([2, 2, 2, 0, 4])), stage.draw)
            yield f"{name} as {place}, {make}", data


def strangers(stage: Stage, scene: Scene) -> Iterator[Case]:
    """Yield each unusual but allowed value, alone or in the place of a part of an honest state."""
    known = strange()
    while True:
        for name, state in stage.draw.sample(list(known.items()), len(known)):
            yield f"strange: {name}", spliced(stage.honest, pickled(state))


def mutants(stage: Stage, scene: Scene) -> Iterator[Case]:
    """Yield honest files, honest pickles and payloads with some changed bytes."""
    honest = pickle_of(stage.state)
    known = [pickled({"state_dict": payload}) for payload in scene.payloads().values()]
    while True:
        yield "mutated file", mutated(stage.honest, stage.draw)
        yield "mutated pickle", spliced(stage.honest, mutated(honest, stage.draw))
        yield "mutated payload", spliced(stage.honest, mutated(stage.draw.choice(known), stage.draw))


def unexpected(texts: list[str]) -> list[Any]:
    """Return plain values that no state holds in these places."""
    nested: Any = []
    for _ in range(200):
        nested = [nested]
    values: list[Any] = [
        None,
        True,
        -1,
        0,
        1.5,
        10**30,
        -(10**30),
        math.inf,
        -math.inf,
        math.nan,
        [],
        {},
        [1],
        {"a": 1},
        (),
        nested,
    ]
    values += [
        torch.zeros(0),
        torch.full((3, 3), math.nan),
        torch.tensor(3),
        torch.ones(2, dtype=torch.bool),
        b"x",
        {1},
    ]
    values += [torch.empty(2, device="meta"), torch.eye(2).to_sparse(), torch.float16, torch.device("meta")]
    values += [{text: text for text in texts}, {text: {"name": text, "file": text, "rule": text} for text in texts}]
    return values


def values(stage: Stage, scene: Scene) -> Iterator[Case]:
    """Yield valid files of plain types with some unexpected values or names."""
    texts = [
        *(
            "../victim.pth",
            "victim.pth",
            scene.victim,
            "home",
            "../outside/home",
            "/",
            ".",
            "..",
            "~",
            "",
            "\0",
            "a\nb",
        ),
        *("os.system", "evil_module", "evil_module:main", "!!python/object/apply:os.system", "{0.__class__}", "%s%n%d"),
        *("__class__", "__import__('os').system('touch canary')", "$(touch canary)", "; touch canary", "x" * 10_000),
    ]
    places = fields(stage.state)
    interesting = [
        place for place in places if {"hooks", "best", "meta", "trainer", "services", "metrics", "random"} & {place[0]}
    ]
    while True:
        state, said = copy.deepcopy(stage.state), []
        for _ in range(stage.draw.choice([1, 1, 2, 5])):
            *way, last = stage.draw.choice(stage.draw.choice([places, interesting]))
            try:
                target = functools.reduce(operator.getitem, way, state)
            except (KeyError, TypeError, IndexError):
                continue  # what was there has just been exchanged
            if not isinstance(target, dict) or last not in target:
                way, target, last = [], state, stage.draw.choice(list(state))
            value = stage.draw.choice([stage.draw.choice(texts), stage.draw.choice(unexpected(texts))])
            match stage.draw.randrange(4):
                case 0 | 1:
                    target[last] = value
                case 2:
                    target[stage.draw.choice(texts)] = target.pop(last)
                case 3:
                    del target[last]
            said.append(f"{'.'.join(map(str, (*way, last)))} = {type(value).__name__} {value!r:.60}")
        yield f"values: {'; '.join(said)}", saved(state)


def saved(state: Any) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def pickle_of(state: Any) -> bytes:
    import zipfile

    with zipfile.ZipFile(io.BytesIO(saved(state))) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))


Kind = Callable[[Stage, Scene], Iterator[Case]]


def suffer(tell: Tell, work: Path, scene: Scene, kind: Kind, resumes: float, seed: int, count: int) -> None:
    """Open so many files of one kind in this process."""
    logging.getLogger("ignite_hooks").setLevel(logging.CRITICAL)
    os.fsync = lambda descriptor: None  # nothing here survives the machine
    os.chdir(scene.folder)
    sys.path.insert(0, str(scene.folder))
    draw = random.Random(seed)
    stage = Stage(work, draw)
    assert stage.load(stage.put(stage.honest)) == "loaded"
    assert stage.resume(stage.put(stage.honest)) == "resumed"
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
    tempfile.tempdir = str(work)  # torch unpacks its oldest format there
    watch = Watch(work, scene)
    cases = kind(stage, scene)
    for number in range(count):
        name, data = next(cases)
        way = "resume" if draw.random() < resumes else "load"
        tell("opens", number, f"{name}, {way}")
        path = stage.put(data)
        outcome = stage.load(path) if way == "load" else stage.resume(path)
        tell("found", number, outcome, watch.harm())


@pytest.fixture
def folder() -> Iterator[Path]:
    with in_memory() as made:
        yield Path(made)


@pytest.fixture
def scene(folder: Path) -> Scene:
    made = Scene(folder / "outside")
    made.set()
    (folder / "victim.pth").write_text("dear")
    return made


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("kind", "count", "resumes", "possible"),
    [
        (payloads, times(150, 1500), 0.15, {"refused"}),
        (strangers, times(65, 300), 0.15, {"refused", "loaded", "resumed", "run failed"}),
        (mutants, times(45, 600), 0.15, {"refused", "loaded", "resumed", "run failed"}),
        (values, times(60, 800), 0.5, {"refused", "loaded", "resumed", "run failed"}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_no_file_runs_code_and_all_raise_a_checkpoint_error(
    kind: Kind, count: int, resumes: float, possible: set[str], scene: Scene, folder: Path
) -> None:
    seed = drawn().randrange(2**32)
    outcomes, opened, wrong = Counter[str](), "the first", dict[str, str]()
    with Life(lambda tell: suffer(tell, folder / "work", scene, kind, resumes, seed, count)) as life:
        for word, _, what, *harm in life.tells():
            if word == "opens":
                opened = what
                continue
            outcome = what.partition(":")[0]
            outcomes[outcome] += 1
            if harm != [[]] or outcome not in possible:
                wrong[f"{what}; harm: {harm}"] = opened
        ended = life.wait()
    print(f"{outcomes.total()} files: {dict(outcomes)}")
    assert ended == 0, f"{opened} ended the process: {ended}"
    assert not wrong, "\n".join(f"{what}\n    by {which}" for what, which in wrong.items())
    assert outcomes.total() == count


def test_every_payload_does_noticeable_harm_if_really_unpickled(scene: Scene, folder: Path) -> None:
    def unpickle(tell: Tell, data: bytes) -> None:
        os.chdir(scene.folder)
        sys.path.insert(0, str(scene.folder))
        watch = Watch(folder / "work", scene)
        try:
            pickle.loads(data)
        except Exception as error:
            tell("raised", repr(error))
        tell("harm", watch.harm())

    (folder / "work").mkdir()
    for name, payload in scene.payloads().items():
        data = pickled(payload)
        with Life(lambda tell: unpickle(tell, data)) as life:  # noqa: B023
            assert list(life.tells())[-1] != ["harm", []], name
        shutil.rmtree(scene.folder)
        scene.set()
