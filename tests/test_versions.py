"""`tests.matrix`: its table, its interpreters, and the stand-ins for CUDA."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from tests.matrix import __main__ as matrix
from tests.matrix.__main__ import (
    BEGIN,
    END,
    ENVIRONMENTS,
    HEAD,
    PAGE,
    interpreter,
    read_results,
    with_row,
    without_cuda,
)
from tests.matrix.stand_ins import NO_DEVICE, add_stand_ins

RESULTS = """<testsuites><testsuite>
<testcase classname="tests.a" name="one"/>
<testcase classname="tests.a" name="two"><failure>no</failure></testcase>
<testcase classname="tests.a" name="three"><skipped/></testcase>
<testcase classname="tests.b" name="four"><error>no</error></testcase>
</testsuite></testsuites>"""


def test_results_are_counted_and_failures_named(tmp_path: Path) -> None:
    (tmp_path / "results.xml").write_text(RESULTS)
    assert read_results(tmp_path / "results.xml") == ((1, 1, 2), ["tests.a::two", "tests.b::four"])


def test_a_row_replaces_the_earlier_one_of_its_environment() -> None:
    page = f"# Title\n\n{BEGIN}\n{END}\n\nEnd\n"
    page = with_row(page, ["newest", *"abcdefghijk"], ["tests.a::two"])
    page = with_row(page, ["lowest", *"abcdefghijk"], ["tests.b::four"])
    assert "- `newest`: `tests.a::two`" in page
    page = with_row(page, ["newest", *"lmnopqrstuv"], [])
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert rows[2:] == [f"| lowest | {' | '.join('abcdefghijk')} |", f"| newest | {' | '.join('lmnopqrstuv')} |"]
    assert [line for line in page.splitlines() if line.startswith("- ")] == ["- `lowest`: `tests.b::four`"]
    assert page.startswith("# Title\n")
    assert page.endswith("\nEnd\n")


def test_the_page_has_the_columns_of_the_table() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells[0] == HEAD
    assert {len(row) for row in cells} == {len(HEAD)}
    assert {row[0] for row in cells[2:]} <= set(ENVIRONMENTS)


def test_an_interpreter_that_does_not_start_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert interpreter("3.99") is None
    shim.write_text("#!/bin/sh\nexit 0\n")
    assert interpreter("3.99") == str(shim)


def test_what_torch_requires_for_cuda_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "torch-2.15.0.dist-info"
    folder.mkdir()
    lines = ["nvidia-cudnn-cu13==9; platform_system == 'Linux'", "triton==3", "sympy>=1", "cuda-bindings<14"]
    (folder / "METADATA").write_text("".join(f"Requires-Dist: {line}\n" for line in lines))
    words = without_cuda(tmp_path, tmp_path).read_text().splitlines()
    assert words == [f"{name}; python_version < '3'" for name in ("cuda-bindings", "nvidia-cudnn-cu13", "triton")]


def test_a_name_that_is_no_environment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        matrix.main(["3.9"])
    assert "no such environment: 3.9" in capsys.readouterr().err


SOURCE = "int cudaGetDeviceCount(int *); int ask(void) { return cudaGetDeviceCount(0); }"
REAL = "int cudaGetDeviceCount(int *n) { return 0; } const char *cudaGetErrorString(int e) { return 0; }"


def test_stand_ins_say_that_there_is_no_device(tmp_path: Path) -> None:
    real, torch = tmp_path / "real", tmp_path / "torch"
    for folder in (real, torch):
        folder.mkdir()
    (real / "versions").write_text("libcudart.so.13 { global: *; };\n")
    named = ["-Wl,-soname,libcudart.so.13", f"-Wl,--version-script,{real / 'versions'}"]
    compiled(REAL, real / "libcudart.so.13", *named)
    compiled(SOURCE, torch / "libtorch_cuda.so", str(real / "libcudart.so.13"), "-Wl,-rpath,$ORIGIN")
    assert add_stand_ins(torch) == ["libcudart.so.13"]
    assert add_stand_ins(torch) == []
    assert ctypes.CDLL(str(torch / "libtorch_cuda.so")).ask() == NO_DEVICE


def compiled(source: str, path: Path, *options: str) -> None:
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", *options, "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)
