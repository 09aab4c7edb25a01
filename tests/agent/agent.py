"""The real agent of ClearML against the stand-in for its server, in a home of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.writers.trackers.clearml_server import ClearMLServer

ROOT = Path(__file__).parent.parent.parent
VARIABLE = "IGNITE_HOOKS_AGENT"
"""The variable with the environment in which the agent is installed; ``make agent`` sets it."""
PATIENCE = 280.0
"""The seconds that a command may take."""
SETTINGS = """
api {{ }}
sdk {{ development {{ worker {{ report_period_sec: 1, ping_period_sec: 1, report_event_flush_threshold: 1 }} }} }}
agent {{ venvs_dir: "{home}/venvs", vcs_cache {{ enabled: false }}, reload_config: false }}
"""


@dataclass
class Agent:
    """An agent, and processes by hand on the same machine."""

    server: ClearMLServer
    home: Path

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.settings = self.home / "clearml.conf"
        self.settings.write_text(SETTINGS.format(home=self.home))

    @property
    def environment(self) -> dict[str, str]:
        """The variables of this machine, without those of the tests and of another agent."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CLEARML_", "TRAINS_"))}
        hosts = {f"CLEARML_{which}_HOST": self.server.url for which in ("API", "WEB", "FILES")}
        return {
            **kept,
            **hosts,
            "HOME": str(self.home),
            "CLEARML_API_ACCESS_KEY": "a",
            "CLEARML_API_SECRET_KEY": "b",
            "CLEARML_CONFIG_FILE": str(self.settings),
            "CLEARML_CPU_ONLY": "1",
            "CLEARML_AGENT_SKIP_PYTHON_ENV_INSTALL": "1",
            "IGNITE_HOOKS_WORK_DIR": str(self.home / "runs"),
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
        }

    def by_hand(self, *command: Any, folder: Path, code: int = 0, timeout: float = PATIENCE, **variables: str) -> str:
        """Run a command of Python in a folder, and return what it said."""
        return self._run([self._bin("python"), *command], folder, code, variables, timeout)

    def execute(self, task: str, *more: str, code: int = 0, **variables: str) -> str:
        """Run a task as the agent does, and return what was said."""
        return self._run(self._execute(task, *more), self.home, code, variables)

    @contextlib.contextmanager
    def executing(self, task: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a task in a process group of its own, which is gone when the context ends."""
        command = self._execute(task, "--standalone-mode")
        with (self.home / "execute.log").open("a") as file, self._group(command, file) as process:
            yield process

    def _execute(self, task: str, *more: str) -> list[str]:
        return [self._bin("clearml-agent"), "execute", "--id", task, *more]

    @contextlib.contextmanager
    def _group(
        self, command: list[str], log: IO[str], folder: Path | None = None, **variables: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        environment = {**self.environment, **variables}
        process = subprocess.Popen(
            command, env=environment, cwd=folder or self.home, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @contextlib.contextmanager
    def beside(self, *command: Any, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command of Python in a folder beside what the context does; what it says is in ``beside.log`` there."""
        words = [self._bin("python"), *(str(word) for word in command)]
        with (folder / "beside.log").open("a") as file, self._group(words, file, folder) as process:
            yield process

    @contextlib.contextmanager
    def daemon(self, queue: str, *, dies: bool = False, looks_every: int = 1) -> Iterator[Path]:
        """Let an agent take tasks from a queue for as long as the context lasts; yield the file with its log.

        Args:
            queue: The name of the queue.
            dies: Whether it is killed at the end, with what it runs.
            looks_every: The seconds between two looks at the queue and at the state of its task.
        """
        log = self.home / "daemon.log"
        command = [self._bin("clearml-agent"), "daemon", "--foreground", "--queue", queue, "--standalone-mode"]
        with (
            log.open("a") as file,
            self._group(command, file, CLEARML_AGENT_QUEUE_POLL_FREQ_SEC=str(looks_every)) as process,
        ):
            yield log
            if dies:
                return
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)

    def _bin(self, name: str) -> str:
        return str(Path(os.environ[VARIABLE]).absolute() / "bin" / name)

    def _run(
        self, command: list[Any], folder: Path, code: int, variables: dict[str, str], timeout: float = PATIENCE
    ) -> str:
        done = subprocess.run(
            [str(word) for word in command],
            env={**self.environment, **variables},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, said[-6000:]
        return said
