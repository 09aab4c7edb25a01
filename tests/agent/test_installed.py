"""How an agent gets this package: by the wheel that the task names."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.agent.agent import ROOT, Agent
from tests.agent.test_trained import CONFIG

OF_ITS_OWN = ("ignite_hooks", "__editable__", "pip", "__pycache__")
"""What an environment does not take over from that of the tests."""
PACKAGES = 'agent.package_manager {{ pip_version: ">=20", pytorch_resolve: "none", extra_index_url: [] }}\n'


def test_an_agent_installs_the_wheel_that_the_task_names(agent: Agent, tmp_path: Path) -> None:
    """What both environments have already, torch above all, is not fetched again: nothing can be fetched here."""
    wheel = built(tmp_path / "wheels")
    here, there = with_our_packages(tmp_path / "here"), with_our_packages(tmp_path / "there")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": "/dev/null"}
    told = {**agent.environment, **offline}
    subprocess.run([here, "-m", "pip", "install", "--quiet", wheel], env=told, check=True)
    (tmp_path / "digits.yaml").write_text(CONFIG)
    queued = [here, "-m", "ignite_hooks", "train", "digits.yaml", "--queue", "later"]
    subprocess.run(queued, env=told, cwd=tmp_path, check=True)
    [task] = agent.server.tasks
    needed = agent.server.tasks[task]["script"]["requirements"]["pip"]
    assert f"ignite-hooks[clearml] @ {wheel.as_uri()}" in needed.replace("%5B", "[").replace("%5D", "]").splitlines()

    agent.settings.write_text(agent.settings.read_text() + PACKAGES.format())
    chosen = {"CLEARML_AGENT_SKIP_PYTHON_ENV_INSTALL": "0", "CLEARML_AGENT_SKIP_PIP_VENV_INSTALL": str(there)}
    said = agent.execute(task, **chosen, **offline)
    assert agent.server.tasks[task]["status"] == "completed", said[-3000:]
    [kept] = (agent.home / "runs").rglob("last.pth")
    assert task in str(kept)
    found = subprocess.run([there, "-c", WHERE], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(tmp_path / "there")


WHERE = "import ignite_hooks; print(ignite_hooks.__file__)"


def built(folder: Path) -> Path:
    """Return a wheel of this tree; the build leaves its traces in a copy."""
    copy = folder / "source"
    left_out = shutil.ignore_patterns(
        ".*", "work_dirs", "tests", "docs", "notebooks", "benchmarks", "site", "__pycache__"
    )
    shutil.copytree(ROOT, copy, ignore=left_out)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, copy]
    subprocess.run(command, check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def with_our_packages(folder: Path) -> Path:
    """Make an environment that has what the tests have, but for this package, and return its Python.

    So is an image of a container in which torch is installed.
    """
    venv.create(folder, with_pip=True, symlinks=True)
    theirs = folder / "theirs"
    theirs.mkdir()
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if not one.name.startswith(OF_ITS_OWN):
            (theirs / one.name).symlink_to(one)
    [site] = folder.glob("lib/python*/site-packages")
    for one in site.iterdir():
        # Its setuptools is too old for torch, and would come first.
        if not one.name.startswith("pip"):
            shutil.rmtree(one) if one.is_dir() else one.unlink()
    (site / "theirs.pth").write_text(f"{theirs}\n")
    return folder / "bin" / "python"
