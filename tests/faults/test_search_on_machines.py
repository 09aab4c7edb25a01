"""Searches on several machines, which share a real PostgreSQL: one is lost, and nobody tells the password."""

from __future__ import annotations

import functools
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.search.from_config import ConfigSearch
from tests.faults.tools import until
from tests.search.searched import searched

pytest.importorskip("optuna", reason="the extra 'search' is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(900)]
SERVERS = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
PASSWORD = "canary-7f3a91"
MACHINE = """
import sys
from ignite_hooks.search import study

study.BEAT, study.LOST_AFTER = 1, 4
from ignite_hooks.cli.app import main

sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """Start a server, as a user that it accepts, and return its address."""
    if not SERVERS:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    driver = next((name for name in ("psycopg", "psycopg2") if _there(name)), None)
    if driver is None:
        pytest.skip("no client of PostgreSQL is installed: pip install 'psycopg[binary]'")
    # Not in a folder of pytest, which no other user may enter.
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    folder.chmod(0o755)
    as_user: list[str] = []
    if getpass.getuser() == "root":
        shutil.chown(folder, "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    (folder / "password").write_text(PASSWORD)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]

    def run(*command: str | Path) -> None:
        subprocess.run([*as_user, *map(str, command)], check=True, stdout=subprocess.DEVNULL, cwd=folder)

    bin, data = SERVERS[-1].parent, folder / "data"
    run(bin / "initdb", "-D", data, "-U", "me", f"--pwfile={folder / 'password'}", "-A", "scram-sha-256")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"
    run(bin / "pg_ctl", "-D", data, "-o", options, "-l", folder / "log", "-w", "start")
    yield f"postgresql+{driver}://me:$DATABASE_PASSWORD@127.0.0.1:{port}/postgres"
    run(bin / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    shutil.rmtree(folder)


def _there(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True


written = functools.partial(searched, epochs=6)


def test_machines_that_share_a_database_find_what_one_finds_though_one_is_lost(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = written(tmp_path)
    alone = ConfigSearch(config, folder=tmp_path / "alone", say=lambda line: None).run()
    environment = {**os.environ, "DATABASE_PASSWORD": PASSWORD}
    machines = []
    for name in ("lost", "lives"):
        command = [sys.executable, "-c", MACHINE, "search", config, "--work-dir", str(tmp_path / name)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command += ["--set", f"search.storage={database}"]
        machines.append(subprocess.Popen(command, env=environment, **pipes))
    lost, lives = machines
    until(lambda: list((tmp_path / "lost" / "trials").glob("*/epoch_*.pth")), 200)
    lost.kill()
    said, _ = lives.communicate(timeout=600)
    lost.communicate()
    assert (lives.returncode, "of a lost machine will be repeated" in said) == (0, True), said

    # What is there of the search is the same on the machine that lives and on one that comes late.
    monkeypatch.setenv("DATABASE_PASSWORD", PASSWORD)
    late = ConfigSearch(config, [f"search.storage={database}"], tmp_path / "late", lambda line: None).run()
    assert sum(row.repeated for row in late.trials) == 1, said
    values = [
        sorted((row.index, json.dumps(row.values), row.value) for row in each.trials if not row.repeated)
        for each in (alone, late)
    ]
    assert values[0] == values[1]
    texts = [(tmp_path / name / "best.yaml").read_text().partition("\n")[2] for name in ("alone", "lives", "late")]
    assert len(set(texts)) == 1
    assert PASSWORD not in said
    assert [path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()] == []


def test_a_wrong_password_is_explained_and_not_shown(tmp_path: Path, database: str) -> None:
    address = database.replace("$DATABASE_PASSWORD", "wrong-canary-11")
    command = [sys.executable, "-m", "ignite_hooks", "search", written(tmp_path), "--work-dir", str(tmp_path / "w")]
    done = subprocess.run([*command, "--set", f"search.storage={address}"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the database of the search cannot be used" in done.stderr
    assert "wrong-canary" not in done.stdout + done.stderr


def test_no_other_user_reads_the_password_of_a_trial(tmp_path: Path, database: str) -> None:
    command = [
        sys.executable,
        "-m",
        "ignite_hooks",
        "search",
        written(tmp_path, storage=database, study="seen", trials=1),
    ]
    environment = {**os.environ, "DATABASE_PASSWORD": PASSWORD}
    search = subprocess.Popen([*command, "--work-dir", str(tmp_path / "w")], env=environment, stdout=subprocess.DEVNULL)
    until(lambda: list((tmp_path / "w" / "trials").glob("*/epoch_*.pth")), 200)
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
    search.send_signal(signal.SIGINT)
    search.wait(60)
    assert any(b"search.worker" in words for words in commands)
    assert not any(PASSWORD.encode() in words for words in commands)
