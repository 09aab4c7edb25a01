"""`zip_records.py`: records of a zip file whose places are known before their contents."""

from __future__ import annotations

import io
import random
import zipfile
import zlib

import pytest

from ignite_hooks.store import zip_records
from ignite_hooks.store.zip_records import ALIGNMENT, Records, end_of_archive


@pytest.mark.parametrize("limit", [zip_records.NEEDS_ZIP64, 100, 5000])
def test_a_zip_reader_reads_what_was_written(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    # As if numbers above these did not fit into 32 bits.
    monkeypatch.setattr(zip_records, "NEEDS_ZIP64", limit)
    contents = [draw.randbytes(draw.randrange(300)) for _ in range(40)]
    records = Records([len(content) for content in contents[:30]])
    others = Records([len(content) for content in contents[30:]], records)
    file = io.BytesIO()
    for number, content in enumerate(contents):
        group, place = (records, number) if number < 30 else (others, number - 30)
        group.write(file, place, [content[:7], content[7:]])
        assert (group.starts[place] % ALIGNMENT, group.sizes[place]) == (0, len(content))
    assert file.tell() == others.end
    file.write(end_of_archive([others, records]))
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == {
            f"archive/data/{number}": content for number, content in enumerate(contents)
        }
        assert archive.namelist()[0] == "archive/data/30", "the directory has an order of its own"


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
