"""`archive.py`: files like those of `torch.save`."""

from __future__ import annotations

import io
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.serialization import config

from ignite_hooks.store import to_plain
from ignite_hooks.store.archive import PIECE, SMALL, Image, archive_size, host_memory, write_archive
from ignite_hooks.store.zip_records import ALIGNMENT, NEEDS_ZIP64, Records

DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.complex32),
]


def tied() -> list[torch.Tensor]:
    weight = torch.arange(12.0)
    return [weight, weight.view(3, 4), weight]


def pieces() -> list[torch.Tensor]:
    whole = torch.arange(12.0)
    return [whole[:5], whole[5:], whole]


def trained() -> list[dict[str, Any]]:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    return [model.state_dict(), optimizer.state_dict()]


STATES: dict[str, Callable[[], object]] = {
    "nothing": dict,
    "types": lambda: {"a": [1, 2.5, None, True, "text\ud800", b"\0\xff", (1, (2,)), {3}], "b": 2**2000, 4: -1},
    "sizes, types, devices": lambda: [torch.Size([2, 3]), torch.float16, torch.device("cpu"), torch.device("cuda:1")],
    "tied": tied,
    "pieces of one memory": pieces,
    "not contiguous": lambda: [torch.arange(6.0).view(2, 3).T, torch.arange(9)[::2], torch.ones(3).expand(4, 3)],
    "empty": lambda: [torch.zeros(0), torch.zeros(2, 0, 3, dtype=torch.int64), torch.tensor([])],
    "scalar": lambda: torch.tensor(3.5),
    "conj": lambda: [torch.tensor([1 + 2j, 3j]).conj(), torch.tensor([1 + 2j]).conj().imag],
    "sparse": lambda: [torch.eye(4).to_sparse(), torch.eye(4).to_sparse_csr(), torch.eye(4).to_sparse_bsc((2, 2))],
    "larger than a piece": lambda: [torch.randn(PIECE // 4 + 17), torch.randn(3), torch.randn(SMALL // 4)],
    "many": lambda: [torch.full((draw % 97,), draw) for draw in range(700)],
    "trained": trained,
    **{f"{dtype}": lambda dtype=dtype: torch.arange(4).to(dtype) for dtype in DTYPES},  # type: ignore[misc]
}


def written(state: object) -> bytes:
    file = io.BytesIO()
    write_archive(file, state)
    return file.getvalue()


def by_torch(state: object) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def raw(tensor: torch.Tensor) -> bytes:
    storage = tensor.untyped_storage()
    return bytes(host_memory(storage.data_ptr(), storage.nbytes()))


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape, one.layout) == (other.dtype, other.shape, other.layout)
        if one.layout == torch.strided:
            assert (one.stride(), one.storage_offset()) == (other.stride(), other.storage_offset())
            assert (one.is_conj(), one.is_neg()) == (other.is_conj(), other.is_neg())
            assert raw(one) == raw(other)
        else:
            assert torch.equal(one.to_dense(), other.to_dense())
    elif isinstance(one, dict):
        assert list(one) == list(other)
        assert_same(list(one.values()), list(other.values()))
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    else:
        assert one == other


def shared(value: object) -> list[int]:
    """Return for each tensor the position of the first one in the list that shares its memory."""
    items = value if isinstance(value, list) else []
    dense = [item for item in items if isinstance(item, torch.Tensor) and item.numel() and item.layout == torch.strided]
    addresses = [item.untyped_storage().data_ptr() for item in dense]
    return [addresses.index(address) for address in addresses]


@pytest.mark.filterwarnings("ignore:Sparse (CSR|BSC):UserWarning", "ignore:ComplexHalf:UserWarning")
@pytest.mark.parametrize("name", STATES)
def test_what_comes_back_is_what_torch_would_have_saved(name: str, tmp_path: Path) -> None:
    state = {"value": to_plain(STATES[name]())}
    (tmp_path / "ours.pth").write_bytes(written(state))
    expected = torch.load(io.BytesIO(by_torch(state)), weights_only=True)
    variants: list[dict[str, Any]] = [{}, {"map_location": "cpu"}, {"mmap": True}, {"weights_only": False}]
    for variant in variants:
        loaded = torch.load(tmp_path / "ours.pth", **{"weights_only": True, **variant})
        assert_same(loaded, expected)
        assert shared(loaded["value"]) == shared(expected["value"])


@pytest.mark.parametrize("name", ["trained", "empty", "many", "larger than a piece"])
def test_it_is_read_right_where_offsets_could_be_calculated(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_SERIALIZATION_DEBUG", "1")
    state = to_plain(STATES[name]())
    (tmp_path / "ours.pth").write_bytes(written(state))
    with config.patch("load.calculate_storage_offsets", True):
        assert_same(torch.load(tmp_path / "ours.pth", mmap=True, weights_only=True), state)


@pytest.mark.filterwarnings("ignore:Sparse (CSR|BSC):UserWarning")  # the first one in a process warns
@pytest.mark.parametrize("name", ["types", "tied", "trained", "many", "sparse"])
def test_equal_states_make_equal_files(name: str) -> None:
    state = STATES[name]()
    assert written(to_plain(state)) == written(to_plain(state))


def test_a_zip_reader_finds_it_whole_aligned_and_not_compressed() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    data = written([torch.zeros(draw.randrange(400)) for _ in range(100)])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        records = archive.infolist()
    assert len(records) == 105
    assert {record.compress_type for record in records} == {zipfile.ZIP_STORED}
    assert all(record.CRC for record in records if record.file_size)
    for record in records:
        names, extra = (int.from_bytes(data[record.header_offset + at :][:2], "little") for at in (26, 28))
        assert (record.header_offset + 30 + names + extra) % ALIGNMENT == 0, record.filename


def test_a_flipped_bit_is_found_by_a_zip_reader() -> None:
    data = bytearray(written({"weight": torch.zeros(100_000)}))
    data[len(data) // 2] ^= 1
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() == "archive/data/0"


def test_memory_seen_as_two_types_is_refused_as_by_torch() -> None:
    weight = torch.zeros(4)
    with pytest.raises(RuntimeError, match="different types"):
        by_torch([weight, weight.view(torch.int32)])
    with pytest.raises(RuntimeError, match="different types"):
        written([weight, weight.view(torch.int32)])


def test_copies_stand_for_the_memory_of_a_storage() -> None:
    weight = torch.zeros(4)
    copy = torch.ones(4)
    records = Records([16])
    image = Image(records, memoryview(bytearray(records.end)), {weight.untyped_storage()._cdata: 0})
    image.bytes_of(weight.untyped_storage()._cdata)[:] = raw(copy)
    file = io.BytesIO()
    write_archive(file, [weight, weight[2:], torch.full((2,), 5.0)], image)
    loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    assert [tensor.tolist() for tensor in loaded] == [[1, 1, 1, 1], [1, 1], [5, 5]]


def test_small_tensors_reach_the_file_together() -> None:
    class Counting(io.BytesIO):
        writes = 0

        def write(self, data: Any) -> int:
            self.writes += 1
            return super().write(data)

    file = Counting()
    write_archive(file, [torch.zeros(number) for number in range(1, 900)])
    assert file.writes == 1


class SparseFile:
    """A file that leaves a hole in place of large pieces, which are zeros here."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")

    def write(self, data: memoryview) -> int:
        if len(data) > SMALL:
            self.file.seek(len(data), os.SEEK_CUR)
        else:
            self.file.write(data)
        return len(data)


@pytest.mark.slow
def test_a_tensor_of_more_than_four_gigabytes_comes_back(tmp_path: Path) -> None:
    size = (1 << 32) + 100
    huge = torch.empty(size, dtype=torch.uint8)  # never touched: it takes no memory
    last = torch.arange(5.0)
    file = SparseFile(tmp_path / "huge.pth")
    write_archive(file, {"huge": huge, "last": last})
    file.file.close()
    loaded = torch.load(tmp_path / "huge.pth", weights_only=True, mmap=True)
    assert loaded["huge"].shape == (size,)
    assert loaded["last"].tolist() == last.tolist()
    with zipfile.ZipFile(tmp_path / "huge.pth") as archive:
        assert archive.getinfo("archive/data/0").file_size == size > NEEDS_ZIP64
        assert archive.read("archive/version") == b"3\n"


@pytest.mark.parametrize("name", [name for name in STATES if name != "sparse"])
@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
def test_the_size_of_an_archive_is_known_before_it_is_written(name: str) -> None:
    state = to_plain(STATES[name]())
    assert archive_size(state) == pytest.approx(len(written(state)), rel=0.05, abs=100)
