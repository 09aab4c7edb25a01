"""Installs what is in dist/ into an empty environment, and uses it there as a stranger would: ``make dist``.

With ``--tests`` the quick tests of the core run there, too, from the unpacked sdist: ``make dist ARGS=--tests``.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]

SCRIPT = """
import torch
from ignite_hooks import attach_hooks
from ignite_hooks.testing import tiny_trainer

trainer, data = tiny_trainer()
runner = attach_hooks(trainer, work_dir="run")
trainer.run(data, max_epochs=2)
print(runner.report())
assert torch.load("run/last.pth", weights_only=True)["meta"]["epoch"] == 2
assert "site-packages" in __import__("ignite_hooks").__file__
"""


def missing_in(sdist: Path) -> list[str]:
    """Return the files of the repository that an sdist lacks; tools of one's own editor need not be there."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with tarfile.open(sdist) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    private = (".ci/", ".gitignore", ".pre-commit")
    return sorted(name for name in listed.splitlines() if name not in there and not name.startswith(private))


def main() -> int:
    """Return 0 if the sdist is whole, and the wheel installs and works."""
    (sdist,), (wheel,) = (ROOT / "dist").glob("*.tar.gz"), (ROOT / "dist").glob("*.whl")
    if missing := missing_in(sdist):
        print(f"{sdist.name} lacks {', '.join(missing[:10])}: name them in MANIFEST.in")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin", "python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-c", ROOT / "constraints.txt"]
        subprocess.run([*pip, wheel], check=True)
        for command in ([python, "-c", SCRIPT], [python, "-m", "ignite_hooks", "list"]):
            subprocess.run(command, cwd=folder, check=True)
        subprocess.run([*pip, f"ignite-hooks[demo] @ {wheel.as_uri()}"], check=True)
        subprocess.run([Path(folder, "bin", "ignite-hooks"), "demo"], cwd=folder, check=True)
        print(f"{wheel.name} installs, trains and shows the demo")
        return tested(sdist, Path(folder), pip) if "--tests" in sys.argv else 0


def tested(sdist: Path, folder: Path, pip: list[str | Path]) -> int:
    """Unpack an sdist and run the quick tests in it, with what the extra `test` brings; return their exit code."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "sdist", filter="data")
    (source,) = (folder / "sdist").iterdir()
    subprocess.run([*pip, "-e", f"{source}[test]"], check=True)
    command = [folder / "bin" / "python", "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal"]
    return subprocess.run([*command, "-m", "not (slow or faults)"], cwd=source, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
