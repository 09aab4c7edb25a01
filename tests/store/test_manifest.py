"""`manifest.py`: the list of checkpoints, and what it refuses to read."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store import Entry, FolderStore, Manifest
from ignite_hooks.store.manifest import FILE_NAME, KINDS, CheckpointFile, DamagedManifestError, _checksum, content_of
from tests.properties import ANY_TEXT, PLAIN, tried

OUTSIDE = [
    "../victim",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "..",
    ".",
    ".hidden",
    "",
    "a b",
    "a\n",
    "u\u0308",
    "a\0",
    "x" * 201,
]
GOOD = Entry("epoch_1.pth", 10, "sha256:" + "ab" * 32, 1, 100, {"val/loss": 0.5}, "periodic")


def write_signed(folder: Path, content: dict[str, Any]) -> None:
    content["checksum"] = _checksum(content)
    (folder / FILE_NAME).write_text(json.dumps(content))


def signed_content(**changes: Any) -> dict[str, Any]:
    entry = {"name": "a.pth", "size": 1, "checksum": "xxh3_128:" + "0" * 32, "epoch": 1, "iteration": 1, "metrics": {}}
    return {"format": 2, "entries": [entry | {"kind": "best"} | changes], "pending": None, "deleting": []}


def test_it_reads_what_it_wrote(tmp_path: Path) -> None:
    other = replace(GOOD, name="best@acc=0.9+x.pth", kind="best", metrics={"acc": 1.0, "n": 3})
    manifest = Manifest((GOOD,), pending=other, deleting=(replace(GOOD, name="old.pth"),))
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path) == manifest
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_no_file_is_an_empty_manifest(tmp_path: Path) -> None:
    assert Manifest.load(tmp_path / "nowhere") == Manifest()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_not_finite_becomes_null(tmp_path: Path, number: float) -> None:
    manifest = Manifest((replace(GOOD, metrics={"loss": number}),))
    manifest.save(tmp_path)
    text = (tmp_path / FILE_NAME).read_text()
    assert json.loads(text, parse_constant=pytest.fail)["entries"][0]["metrics"] == {"loss": None}
    assert Manifest.load(tmp_path) == manifest


@pytest.mark.parametrize("name", [*OUTSIDE, FILE_NAME, f"{FILE_NAME}.damaged-1", None, 3])
def test_a_name_that_could_mean_another_file_is_refused(name: Any) -> None:
    with pytest.raises(CheckpointError, match="is not a name for a checkpoint"):
        replace(GOOD, name=name)


@pytest.mark.parametrize(
    "changes",
    [
        *({"name": name} for name in OUTSIDE),
        {"name": None},
        {"size": "1"},
        {"size": 1.0},
        {"size": True},
        {"size": -1},
        {"epoch": None},
        {"iteration": [1]},
        {"checksum": "0" * 64},
        {"checksum": "xxh3_128:" + "0" * 31},
        {"checksum": "md5:" + "0" * 32},
        {"checksum": 0},
        {"checksum": None},
        {"kind": "newest"},
        {"kind": ["best"]},
        {"kind": None},
        {"metrics": []},
        {"metrics": {"a": "1"}},
        {"metrics": {"a": True}},
        {"metrics": {"a": 10**400}},
        {"path": "/etc"},
    ],
    ids=repr,
)
def test_a_wrong_entry_is_damage_even_with_a_right_checksum(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_signed(tmp_path, signed_content(**changes))
    with pytest.raises(DamagedManifestError):
        Manifest.load(tmp_path)


def test_the_unchanged_entry_of_these_tests_is_read(tmp_path: Path) -> None:
    write_signed(tmp_path, signed_content())
    assert [entry.name for entry in Manifest.load(tmp_path).entries] == ["a.pth"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "{",
        '{"format": 2}',
        '{"format": NaN}',
        '{"name": "a web page"}',
        "[" * 100_000,
        "9" * 9999,
    ],
    ids=lambda text: text[:20],
)
def test_a_foreign_file_is_set_aside_and_nothing_is_lost(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with FolderStore(tmp_path) as store:
        assert store.entries() == []
    assert (tmp_path / f"{FILE_NAME}.damaged-1").read_text() == text
    assert "starting an empty one" in caplog.text


def test_a_second_damage_does_not_overwrite_the_first(tmp_path: Path) -> None:
    for text in "one", "two":
        (tmp_path / FILE_NAME).write_text(text)
        FolderStore(tmp_path).open().close()
    assert (tmp_path / f"{FILE_NAME}.damaged-1").read_text() == "one"
    assert (tmp_path / f"{FILE_NAME}.damaged-2").read_text() == "two"


@pytest.mark.parametrize("where", ["entries", "pending", "deleting"])
@pytest.mark.parametrize("absolute", [True, False])
def test_a_manifest_never_reaches_outside_its_folder(tmp_path: Path, where: str, absolute: bool) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    content = signed_content(name=str(victim) if absolute else "../victim", kind="periodic", size=8)
    (entry,) = content.pop("entries")
    places = {"entries": [entry], "pending": entry, "deleting": [entry]}
    write_signed(folder, content | {"entries": [], where: places[where]})
    with FolderStore(folder) as store:
        store.save("last.pth", {}, kind="last", epoch=0, iteration=0, retire=lambda entries: entries)
    assert victim.read_text() == "precious"


def test_a_name_listed_twice_is_refused() -> None:
    with pytest.raises(CheckpointError, match="twice"):
        Manifest((GOOD, GOOD))


NAME_LETTERS = "abzAZ09_"
NAMES = st.builds("{}{}.pth".format, st.sampled_from(NAME_LETTERS), st.text(f"{NAME_LETTERS}@=.+-", max_size=20))
DIGITS = st.text("0123456789abcdef", min_size=64, max_size=64)
ENTRIES = st.builds(
    Entry,
    name=NAMES,
    size=st.integers(0, 2**60),
    checksum=DIGITS.flatmap(lambda digits: st.sampled_from([f"xxh3_128:{digits[:32]}", f"sha256:{digits}"])),
    epoch=st.integers(0, 2**40),
    iteration=st.integers(0, 2**40),
    metrics=st.dictionaries(ANY_TEXT, st.floats() | st.integers(-(2**53), 2**53), max_size=3),
    kind=st.sampled_from(KINDS),
    run=st.just("") | DIGITS,
)


@tried(100)
@given(
    entries=st.lists(ENTRIES, max_size=4, unique_by=lambda entry: entry.name),
    pending=st.none() | ENTRIES,
    deleting=st.lists(ENTRIES, max_size=2),
)
def test_any_manifest_is_read_as_it_was_written(
    entries: list[Entry], pending: Entry | None, deleting: list[Entry]
) -> None:
    manifest = Manifest(tuple(entries), pending, tuple(deleting))
    assert Manifest.decode(manifest.encode(), "here") == manifest


WRITTEN = Manifest((GOOD, replace(GOOD, name="last.pth", kind="last")))


@pytest.mark.hypothesis
def test_any_damage_is_noticed_or_harmless() -> None:
    data = WRITTEN.encode()
    found = {"noticed": 0, "harmless": 0}

    @tried(300)
    @given(at=st.integers(0, len(data) - 1), bits=st.integers(1, 255))
    def check(at: int, bits: int) -> None:
        damaged = bytearray(data)
        damaged[at] ^= bits
        try:
            assert Manifest.decode(bytes(damaged), "here") == WRITTEN
            found["harmless"] += 1
        except DamagedManifestError:
            found["noticed"] += 1

    check()
    assert found["noticed"] > found["harmless"], "what is harmless is white space"


PLACES: list[list[Any]] = [[], ["entries"], ["entries", 0], ["entries", 0, "metrics"]]


@tried(300)
@given(place=st.sampled_from(PLACES), data=st.data(), value=PLAIN | st.sampled_from(["../x", True, 1.0, "best", [{}]]))
def test_any_other_value_is_damage_or_read_as_it_is(place: list[Any], data: st.DataObject, value: Any) -> None:
    content: Any = signed_content(metrics={"loss": 0.5})
    at = content
    for key in place:
        at = at[key]
    value = value % 2**53 if type(value) is int else value  # larger metrics are rounded
    at[data.draw(st.sampled_from([0] if isinstance(at, list) else [*at, "other"]))] = value
    content["checksum"] = _checksum(content)
    try:
        manifest = Manifest.decode(json.dumps(content).encode(), "here")
    except DamagedManifestError:
        return
    # Not the checksum, in which 1 and 1.0 differ.
    assert json.loads(manifest.encode()) | {"checksum": content["checksum"]} == content


# -- sharded checkpoints -----------------------------------------------------------------------------------------

PARTS = (
    CheckpointFile("__0_0.distcp", 3, "xxh3_128:" + "1" * 32),
    CheckpointFile("state.pth", 4, "sha256:" + "2" * 64),
)
SHARDED = Entry("epoch_1", *content_of(PARTS), 1, 100, files=PARTS)


def test_it_lists_every_file_of_a_folder(tmp_path: Path) -> None:
    Manifest((GOOD, SHARDED)).save(tmp_path)
    assert Manifest.load(tmp_path) == Manifest((GOOD, SHARDED))


@pytest.mark.parametrize("name", [*OUTSIDE, "a.pth", "__0_0.distcp2", "__0.distcp", "metadata", None, 3])
def test_other_names_of_files_in_a_folder_are_refused(name: Any) -> None:
    with pytest.raises(CheckpointError, match="is not a name for a file of a sharded checkpoint"):
        replace(PARTS[0], name=name)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 8},
        {"checksum": "xxh3_128:" + "0" * 32},
        {"files": (*PARTS, PARTS[0])},
        {"files": PARTS[:1]},
    ],
)
def test_an_entry_that_contradicts_its_files_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        replace(SHARDED, **changes)


@pytest.mark.parametrize("files", [None, {}, "ab", [1], [{}], [{"name": "state.pth"}], [{"name": "../x", "size": 1}]])
def test_files_that_are_none_make_a_damaged_manifest(files: Any, tmp_path: Path) -> None:
    write_signed(tmp_path, signed_content(files=files))
    with pytest.raises(DamagedManifestError):
        Manifest.load(tmp_path)
