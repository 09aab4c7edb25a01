"""Everything that the package imports is declared: ``python tests/declared.py``. deptry does not read setup.cfg."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
OF_USERS = ("test", "dev", "docs", "all")
"""Extras for those who work on the package, and one that repeats others."""


def requirements() -> list[str]:
    """Return the requirements of the package and of its extras for users."""
    found = ConfigParser(comment_prefixes=("#",))
    found.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = [text for name, text in found["options.extras_require"].items() if name not in OF_USERS]
    lines = "\n".join([found["options"]["install_requires"], *extras]).splitlines()
    # pytest itself loads the module that is its plugin.
    return sorted({line for line in lines if line.strip() and not line.startswith("ignite-hooks[")} | {"pytest"})


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("\n".join(requirements()) + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "deptry", "ignite_hooks", "--requirements-files", str(listed), "--no-ansi"]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
