"""Damaged files in the folder of a real run: never accepted, and the newest whole one is found."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_trainer

from ignite_hooks import BaseHook, CheckpointError, attach_hooks
from ignite_hooks.store import FolderStore
from ignite_hooks.store.manifest import FILE_NAME
from tests.faults.tools import drawn, in_memory, times

pytestmark = [pytest.mark.faults, pytest.mark.timeout(times(240, 3600))]

# The best comes after a periodic one of the same iteration, and the last before it.
NEWEST_FIRST = ["last.pth", "epoch_4.pth", "epoch_3.pth", "epoch_2.pth", "best_accuracy_epoch_2.pth", "epoch_1.pth"]
RESUMED_FIRST = [name for name in NEWEST_FIRST if "best" not in name] + ["best_accuracy_epoch_2.pth"]
"""The order in which runs resume from them: the best was saved before its epoch had ended, so that it is not exact."""
LENGTH = 3
PAGE = 4096

Damage = Callable[[bytes, random.Random], bytes | None]


def flipped(data: bytes, draw: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 8])):
        damaged[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def zeroed(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(0, len(data), PAGE)
    return data[:start] + bytes(min(PAGE, len(data) - start)) + data[start + PAGE :]


def miswritten(data: bytes, draw: random.Random) -> bytes:
    """Change one digit: in a manifest, this makes a plausible number or checksum."""
    damaged = bytearray(data)
    at = draw.choice([place for place, byte in enumerate(data) if byte in b"0123456789"])
    damaged[at] = draw.choice(b"0123456789")
    return bytes(damaged)


def exchanged(data: bytes, draw: random.Random) -> bytes:
    """Swap two pieces: the size and the sum of all bytes stay the same."""
    size = min(PAGE, len(data) // 4)
    pages = [data[start : start + size] for start in range(0, len(data), size)]
    one, other = draw.randrange(len(pages)), draw.randrange(len(pages))
    pages[one], pages[other] = pages[other], pages[one]
    return b"".join(pages)


def cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def cut_and_filled(data: bytes, draw: random.Random) -> bytes:
    """Fill the end with zeros, as after a power cut: the size stays the same."""
    return data[: draw.randrange(len(data))].ljust(len(data), b"\0")


def emptied(data: bytes, draw: random.Random) -> bytes:
    return b""


def appended(data: bytes, draw: random.Random) -> bytes:
    return data + draw.randbytes(draw.randrange(1, 2 * PAGE))


def missing(data: bytes, draw: random.Random) -> None:
    return None


DAMAGES: list[Damage] = [flipped, miswritten, zeroed, exchanged, cut, cut_and_filled, emptied, appended, missing]


def attached(folder: Path, *hooks: Any, **options: Any) -> tuple[Any, Any, Any]:
    """Return a runner, its trainer and its model; the second of four epochs is the best."""
    model = torch.nn.Linear(64, 48)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
    scores = {1: 0.1, 2: 0.9}
    evaluator = Engine(lambda engine, batch: engine.state.metrics.update(accuracy=scores.get(trainer.state.epoch, 0.5)))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([0]))
    saving = {"type": "CheckpointHook", "max_keep_ckpts": -1}
    options = {"work_dir": folder, "model": model, "optimizer": optimizer, "evaluators": evaluator, **options}
    return attach_hooks(trainer, [saving, *hooks], **options), trainer, model


def train(trainer: Any, epochs: int) -> None:
    trainer.run([(torch.randn(2, 64), torch.randn(2, 48)) for _ in range(LENGTH)], max_epochs=epochs)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield the folder of a run of four epochs."""
    with in_memory() as made:
        _, trainer, _ = attached(Path(made) / "run")
        train(trainer, 4)
        yield Path(made) / "run"


class Folder:
    """A folder that can be damaged and healed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.whole = {name: (path / name).read_bytes() for name in [*NEWEST_FIRST, FILE_NAME]}
        self.states = {name: torch.load(path / name, weights_only=True) for name in NEWEST_FIRST}

    def damage(self, name: str, damage: Damage, draw: random.Random) -> None:
        data: bytes | None = self.whole[name]
        while data == self.whole[name]:  # zeros may have become zeros
            data = damage(self.whole[name], draw)
        if data is None:
            (self.path / name).unlink()
        else:
            (self.path / name).write_bytes(data)

    def heal(self, *names: str) -> None:
        for name in names:
            (self.path / name).write_bytes(self.whole[name])


def iteration(state: dict[str, Any]) -> int:
    return int(state["meta"]["iter"])


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two states have the same weights and come from the same iteration."""
    weights = zip(one["state_dict"].values(), other["state_dict"].values(), strict=True)
    return iteration(one) == iteration(other) and all(torch.equal(mine, theirs) for mine, theirs in weights)


def test_the_order_of_this_file_matches_a_whole_folder(folder: Path) -> None:
    entries = {entry.name: entry for entry in FolderStore(folder).entries()}
    assert {path.name for path in folder.glob("*.pth")} == set(NEWEST_FIRST) == entries.keys()
    iterations = [entries[name].iteration for name in NEWEST_FIRST]
    assert iterations == [12, 12, 9, 6, 6, 3] == [iteration(torch.load(folder / name)) for name in NEWEST_FIRST]


def test_damaged_files_are_refused_and_the_newest_whole_one_found(folder: Path) -> None:
    draw, counts, fallen_back_to = drawn(), Counter[str](), Counter[str]()
    files = Folder(folder)
    while counts.total() < times(520, 5_500):
        # Half of the time the newest few, else any: often some are left, now and then none.
        newest = NEWEST_FIRST[: draw.randint(1, 6)]
        victims = newest if draw.random() < 0.5 else draw.sample(NEWEST_FIRST, draw.randint(1, 3))
        for name in victims:
            damage = draw.choice(DAMAGES)
            files.damage(name, damage, draw)
            counts[damage.__name__] += 1
        store = FolderStore(folder)
        for name in victims:
            with pytest.raises(CheckpointError, match=rf"cannot load .*{name}"):
                store.load(folder / name)
        left = [name for name in NEWEST_FIRST if name not in victims]
        if left:
            found = store.newest()
            assert found == folder / left[0], victims
            assert same(store.load(found), files.states[left[0]])
        else:
            with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used") as caught:
                store.newest()
            assert all(name in str(caught.value) for name in NEWEST_FIRST)
        fallen_back_to[left[0] if left else "none"] += 1
        files.heal(*victims)
    print(f"{counts.total()} damaged files, none accepted: {dict(counts)}; newest whole: {dict(fallen_back_to)}")
    assert fallen_back_to.keys() >= {*NEWEST_FIRST[1:], "none"}
    assert counts.keys() == {damage.__name__ for damage in DAMAGES}


def test_a_damaged_manifest_is_noticed_or_its_damage_changes_nothing(folder: Path) -> None:
    draw, outcomes = drawn(), Counter[str]()
    files = Folder(folder)
    honest = FolderStore(folder).entries()
    for trial in range(times(60, 400)):
        damage = draw.choice(DAMAGES)
        files.damage(FILE_NAME, damage, draw)
        # A damaged file beside it must not slip through.
        files.damage("last.pth", flipped, draw)
        reader = FolderStore(folder)
        if damage is missing:
            outcome = "missing: each file is verified by its own checksums"
            found = reader.newest()
            assert found is not None
            # Bytes between the records of an archive have no checksum, and mean nothing.
            weights, whole = torch.load(found, weights_only=True)["state_dict"], files.states[found.name]["state_dict"]
            assert all(torch.equal(weights[name], value) for name, value in whole.items())
        else:
            try:
                assert reader.entries() == honest
                outcome = "read as it was"
                assert reader.newest() == folder / "epoch_4.pth"
            except CheckpointError:
                outcome = "refused"
        outcomes[outcome] += 1
        if trial % 4 == 0:
            copy = folder.parent / f"opened_{trial}"
            shutil.copytree(folder, copy)
            with FolderStore(copy) as store:
                if outcome == "refused":
                    assert list(copy.glob(f"{FILE_NAME}.damaged-*"))
                    with pytest.raises(CheckpointError, match="manifest was damaged"):
                        store.newest()
                assert {path.name for path in copy.glob("*.pth")} == set(NEWEST_FIRST), "no file is lost over it"
            shutil.rmtree(copy)
        files.heal(FILE_NAME, "last.pth")
    print(f"{outcomes.total()} damaged manifests: {dict(outcomes)}")
    assert outcomes["refused"]


class Arrival(BaseHook):
    """Notes with which weights and where a run goes on."""

    def before_train(self, runner: Any) -> None:
        weights = {name: weight.clone() for name, weight in runner.model.state_dict().items()}
        self.state = {"meta": {"iter": runner.global_step}, "state_dict": weights}


def test_a_run_resumes_from_the_newest_whole_file_or_fails(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    draw, resumed_from = drawn(), Counter[str]()
    files = Folder(folder)
    trials = times(20, 100)
    for trial in range(trials):
        copy = folder.parent / f"resumed_{trial}"
        victims = RESUMED_FIRST[: 1 + trial % 6] if trial % 7 else [FILE_NAME]
        for name in victims:
            files.damage(name, draw.choice([damage for damage in DAMAGES if damage is not missing]), draw)
        shutil.copytree(folder, copy)
        files.heal(*victims)
        left = [name for name in RESUMED_FIRST if name not in victims]
        arrival = Arrival()
        caplog.clear()
        runner, trainer, _ = attached(copy, arrival, resume="auto")
        expected = left[0] if left else "none"
        try:
            train(trainer, 5)
        except CheckpointError:
            assert victims == [FILE_NAME] or not left
            assert trainer.state.iteration == 0
            expected = "none"
        else:
            # Nothing but white space of the manifest may change unnoticed.
            assert left
            assert runner.state.resumed_from == copy / expected
            assert same(arrival.state, files.states[expected])
            assert trainer.state.epoch == 5
            for name in victims:
                assert name == FILE_NAME or f"{name} in {copy} cannot be used" in caplog.text
            passed_over = expected == "epoch_1.pth"
            assert ("a resume from it is approximate: name it to resume from it" in caplog.text) == passed_over
        resumed_from[expected] += 1
        shutil.rmtree(copy)
    print(f"{trials} damaged folders: {dict(resumed_from)}")
    assert resumed_from.keys() >= {*RESUMED_FIRST[1:], "none"}
