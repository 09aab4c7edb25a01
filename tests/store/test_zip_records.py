"""`zip_records.py`: records of a zip file whose places are known before their contents."""

from __future__ import annotations

import io
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_hooks.store import zip_records
from ignite_hooks.store.zip_records import ALIGNMENT, Records, end_of_archive
from tests.properties import tried

SIZES = st.integers(0, 300)


@pytest.mark.hypothesis
@pytest.mark.parametrize("limit", [zip_records.NEEDS_ZIP64, 100, 5000])
def test_a_zip_reader_reads_what_was_written(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if numbers above these did not fit into 32 bits.
    monkeypatch.setattr(zip_records, "NEEDS_ZIP64", limit)

    @tried(30)
    @given(st.lists(SIZES, min_size=1, max_size=30), st.lists(SIZES, min_size=1, max_size=10), st.binary(min_size=1))
    def check(first: list[int], second: list[int], piece: bytes) -> None:
        contents = [(piece * size)[:size] for size in (*first, *second)]
        records = Records(first)
        others = Records(second, records)
        file = io.BytesIO()
        for number, content in enumerate(contents):
            group, place = (records, number) if number < len(first) else (others, number - len(first))
            group.write(file, place, [content[:7], content[7:]])
            assert (group.starts[place] % ALIGNMENT, group.sizes[place]) == (0, len(content))
        assert file.tell() == others.end
        file.write(end_of_archive([others, records]))
        with zipfile.ZipFile(file) as archive:
            assert archive.testzip() is None
            assert {name: archive.read(name) for name in archive.namelist()} == {
                f"archive/data/{number}": content for number, content in enumerate(contents)
            }
            assert archive.namelist()[0] == f"archive/data/{len(first)}", "the directory has an order of its own"

    check()


def test_more_records_than_16_bits_count_are_read() -> None:
    records = Records([0] * 70_000)
    file = io.BytesIO()
    for number in range(len(records)):
        records.write(file, number, [])
    file.write(end_of_archive([records]))
    with zipfile.ZipFile(file) as archive:
        assert len(archive.namelist()) == 70_000


def test_records_are_used_for_another_content() -> None:
    records = Records([3])
    for content in (b"one", b"two"):
        file = io.BytesIO()
        records.write(file, 0, [content])
        file.write(end_of_archive([records]))
        with zipfile.ZipFile(file) as archive:
            assert (archive.read("archive/data/0"), archive.infolist()[0].CRC) == (content, zlib.crc32(content))
