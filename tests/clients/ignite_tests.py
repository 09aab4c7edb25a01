"""Ignite's own tests pass with our line before every run, but for those that `docs/clients.md` explains."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.clients import line as line_module

PLUGIN = "our_line"
FOLDERS = ("engine", "handlers")
DOCS = Path(__file__).parents[2] / "docs" / "clients.md"


def outcomes(source: Path, line: str, folder: Path, only: Collection[str] = ()) -> dict[str, bool]:
    """Run the tests with one line; return which of them passed and which failed, without those that were skipped.

    Args:
        source: The folder of the sources.
        line: The line.
        folder: Where the tests may write, and their report and output are kept.
        only: The functions to run; all where none is named.
    """
    title = f"{line}-again" if only else line
    report, work = folder / f"{title}.xml", folder / title
    work.mkdir(exist_ok=True)
    # Under a name of its own: Ignite's tests are in a package that is called tests, too.
    shutil.copy(Path(line_module.__file__), work / f"{PLUGIN}.py")
    tests = source / "ignite" / "tests" / "ignite"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--timeout=600"]
    chosen = " or ".join(sorted({name.partition("::")[2] for name in only}))
    command += ["-p", PLUGIN, "-c", os.devnull, f"--rootdir={source / 'ignite'}"]
    command += ["-k", f"not dist and ({chosen})" if only else "not dist"]
    command += [f"--junitxml={report}", *(str(tests / name) for name in FOLDERS)]
    variables = {
        **os.environ,
        "IGNITE_HOOKS_LINE": line,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(work), str(Path.cwd()), os.environ.get("PYTHONPATH", "")])),
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
    }
    with (folder / f"{title}.txt").open("wb") as output:
        subprocess.run(command, cwd=work, env=variables, stdout=output, stderr=subprocess.STDOUT, check=False)
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        states = {child.tag for child in case}
        if "skipped" not in states:
            found[name] = not states & {"failure", "error"}
    return found


def explained() -> set[str]:
    """Return the tests that the page explains: the first column of its tables that begins with a test."""
    return set(re.findall(r"^\| `(\w+::[^`]+)` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE))


def _of_all_values(name: str) -> str:
    """Return the name of a test without the values it has been called with."""
    return name.partition("[")[0]


def failing_more(found: Mapping[str, bool], plain: Mapping[str, bool]) -> set[str]:
    """Return the functions of which more tests fail than without our line: names of values may differ between runs."""
    before, now = (
        Counter(_of_all_values(name) for name, passed in one.items() if not passed) for one in (plain, found)
    )
    return {name for name, count in now.items() if count > before[name]}


def main(source: Path) -> int:
    """Run the tests with every line; return how many fail because of it and are not explained."""
    known = explained()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.environ.get("CLIENTS_KEEP", temporary))
        plain = outcomes(source, "none", folder)
        print(f"{sum(plain.values())} of {len(plain)} tests of Ignite pass here", flush=True)
        bad: set[str] = set()
        for line in line_module.LINES[1:]:
            failing = failing_more(outcomes(source, line, folder), plain)
            if unexplained := failing - known:
                # Some measure time and fail on a busy machine, in any line: once more, alone.
                failing -= unexplained - failing_more(outcomes(source, line, folder, unexplained), plain)
            print(f"with the line {line!r} {len(failing)} functions fail, {len(failing - known)} of them unexplained")
            print("".join(f"    {name}\n" for name in sorted(failing - known)), end="", flush=True)
            bad |= failing - known
    return len(bad)


if __name__ == "__main__":
    sys.exit(bool(main(Path(os.environ["CLIENTS_SOURCES"]))))
