"""The quick tests with other versions: ``make matrix``, or ``python -m tests.matrix lowest 3.13 -- tests/plan``.

    python -m tests.matrix [NAME ...] [--here NAME] [-- what pytest is told]

Each name is an environment of its own in ``.venv-matrix``, with the light extra ``test``. Where there is no GPU, torch
comes without the libraries of CUDA: see `stand_ins`. ``--here`` runs the tests with the Python that runs this, in
whatever environment somebody has made, under a name. Every run writes its row into ``docs/versions.md``.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.__main__ import processes
from tests.matrix.stand_ins import add_stand_ins

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv-matrix"
PAGE = ROOT / "docs" / "versions.md"
SHOWN = ("torch", "pytorch-ignite", "pydantic", "numpy")
HEAD = ["environment", "Python", *SHOWN, "tests", "passed", "skipped", "failed", "system", "day"]
BEGIN, END = "<!-- rows of make matrix -->", "<!-- end -->"
CERTIFICATES = {"UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true", "UV_NO_PROGRESS": "1"}


@dataclass(frozen=True)
class Environment:
    """Versions that are tested together.

    Args:
        python: The version of Python.
        constraints: A file with versions; without it the newest are taken.
        nightly: Whether Ignite is what will be released next.
    """

    python: str
    constraints: str = ""
    nightly: bool = False


ENVIRONMENTS = {
    "lowest": Environment("3.11", ".github/lowest.txt"),
    "newest": Environment("3.11"),
    "nightly": Environment("3.11", nightly=True),
    "3.12": Environment("3.12"),
    "3.13": Environment("3.13"),
    "3.14": Environment("3.14"),
}


def main(arguments: list[str]) -> int:
    """Run the tests in each environment; return 1 if any failed."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    mine, told = arguments[:at], arguments[at + 1 :]
    parser = argparse.ArgumentParser(prog="python -m tests.matrix")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(ENVIRONMENTS)}")
    parser.add_argument("--here", metavar="NAME", help="only here, in an environment that is called so")
    given = parser.parse_args(mine)
    if unknown := [name for name in given.names if name not in ENVIRONMENTS]:
        parser.error(f"no such environment: {', '.join(unknown)}")
    if given.here:
        return run(given.here, sys.executable, told)
    codes = []
    for name in given.names or ENVIRONMENTS:
        python = interpreter(ENVIRONMENTS[name].python)
        if python is None:
            print(f"{name}: no Python {ENVIRONMENTS[name].python} here: put one on PATH", flush=True)
            continue
        codes.append(run(name, prepare(name, ENVIRONMENTS[name], python), told))
    return max(codes, default=1)


def interpreter(version: str) -> str | None:
    """Return a Python of this version, on PATH or of pyenv."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for path in (shutil.which(f"python{version}"), *map(str, of_pyenv)):
        # A shim of pyenv may stand for a version that is not chosen.
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return None


def prepare(name: str, wanted: Environment, python: str) -> str:
    """Make an environment, or bring it up to date; return its Python."""
    folder = FOLDER / name
    if not (FOLDER / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", FOLDER / "uv"], check=True)
        subprocess.run([FOLDER / "uv" / "bin" / "python", "-m", "pip", "install", "--quiet", "uv"], check=True)
    uv = [str(FOLDER / "uv" / "bin" / "uv")]
    if not folder.exists():
        subprocess.run([*uv, "venv", "--quiet", "--python", python, folder], check=True, env=os.environ | CERTIFICATES)
    found = str(folder / "bin" / "python")
    constraints = ["--constraint", str(ROOT / wanted.constraints)] if wanted.constraints else []

    def install(*words: str) -> None:
        command = [*uv, "pip", "install", "--quiet", "--python", found, *constraints, *words]
        subprocess.run(command, check=True, cwd=ROOT, env=os.environ | CERTIFICATES)

    overrides: list[str] = []
    if sys.platform == "linux" and shutil.which("nvidia-smi") is None:
        install("--no-deps", "torch")
        packages = next(folder.glob("lib/python*/site-packages"))
        add_stand_ins(packages / "torch" / "lib")
        overrides = ["--overrides", str(without_cuda(packages, folder))]
    install(*overrides, "torch", "-e", ".[test]")
    if wanted.nightly:
        install("--no-deps", "--upgrade", "--prerelease", "allow", "pytorch-ignite")
    return found


def without_cuda(packages: Path, folder: Path) -> Path:
    """Write a file that makes uv leave out what torch requires for CUDA."""
    [metadata] = packages.glob("torch-*.dist-info/METADATA")
    names = re.findall(r"^Requires-Dist: ((?:nvidia|cuda|triton)[\w.-]*)", metadata.read_text("utf-8"), re.MULTILINE)
    listed = folder / "without-cuda.txt"
    listed.write_text("".join(f"{name}; python_version < '3'\n" for name in sorted({*names})), encoding="utf-8")
    return listed


def run(name: str, python: str, told: list[str]) -> int:
    """Run the tests, write the row of the environment, and return pytest's code."""
    chosen = [word for word in told if not word.startswith("-")]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [python, "-m", "pytest", "-q", "--numprocesses", str(processes()), "--dist", "worksteal"]
        command += ["-p", "no:cacheprovider", "-m", "not (slow or faults)", f"--junit-xml={results}", *told]
        print(f"== {name}: {' '.join(command)}", flush=True)
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if not results.exists():
            return code or 1
        row, failed = read_results(results)
    versions = subprocess.run([python, "-c", ASK, *SHOWN], capture_output=True, text=True, check=True).stdout.split()
    which = " ".join(chosen) or "all quick ones"
    system = f"{platform.system()} {platform.machine()}"
    cells = [name, *versions, which, *map(str, row), system, time.strftime("%Y-%m-%d")]
    PAGE.write_text(with_row(PAGE.read_text("utf-8"), cells, failed), encoding="utf-8")
    return code


ASK = """
import platform, sys
from importlib.metadata import version
print(platform.python_version(), *map(version, sys.argv[1:]))
"""


def read_results(path: Path) -> tuple[tuple[int, int, int], list[str]]:
    """Return how many tests passed, were skipped and failed, and the names of those that failed."""
    cases = list(ElementTree.parse(path).iter("testcase"))
    failed = [f"{case.get('classname')}::{case.get('name')}" for case in cases if has(case, "failure", "error")]
    skipped = sum(has(case, "skipped") for case in cases)
    return (len(cases) - skipped - len(failed), skipped, len(failed)), sorted(failed)


def has(case: ElementTree.Element, *kinds: str) -> bool:
    return any(case.find(kind) is not None for kind in kinds)


def with_row(page: str, cells: list[str], failed: list[str]) -> str:
    """Return a page whose table has this row, in place of an earlier one of the same environment.

    Example:
        >>> page = with_row(f"{BEGIN}\\n{END}\\n", ["3.13"] * 12, ["tests.a::b"])
        >>> print(with_row(page, ["3.13", *"abcdefghijk"], []).splitlines()[3])
        | 3.13 | a | b | c | d | e | f | g | h | i | j | k |
    """
    before, rest = page.split(BEGIN)
    lines, after = rest.split(END)
    rows = {line.split("|")[1].strip(): line for line in lines.splitlines() if line.startswith("|")}
    rows = {name: line for name, line in rows.items() if name not in (HEAD[0], "---")}
    notes = {line.split("`")[1]: line for line in lines.splitlines() if line.startswith("- ")}
    rows[cells[0]] = f"| {' | '.join(cells)} |"
    notes.pop(cells[0], None)
    if failed:
        notes[cells[0]] = f"- `{cells[0]}`: {', '.join(f'`{one}`' for one in failed)}"
    table = [f"| {' | '.join(HEAD)} |", f"|{' --- |' * len(HEAD)}", *(rows[name] for name in sorted(rows))]
    told = ["", "Failed:", "", *(notes[name] for name in sorted(notes))] if notes else []
    return "\n".join([f"{before}{BEGIN}", *table, *told, f"{END}{after}"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
