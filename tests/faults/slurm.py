"""A real Slurm for a test: its daemons run on this machine, on one node or on several network namespaces."""

from __future__ import annotations

import contextlib
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDED = ("slurmctld", "slurmd", "sbatch", "scontrol", "munged", "ip", "nsenter", "unshare")
SECONDS = 120

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={controller}
SlurmUser=root
AuthInfo=socket={folder}/munge/sock,cred_expire=5
SlurmctldPort={port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
FirstJobId={first}
{loopback}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Return why Slurm cannot run here."""
    if not os.environ.get("IGNITE_HOOKS_LONG"):
        return "Slurm takes minutes: make faults"
    if os.geteuid() != 0:
        return "only root can run the daemons of Slurm"
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        return f"no {', '.join(missing)}: apt-get install slurmctld slurmd slurm-client munge iproute2"
    return None


class Slurm:
    """A cluster that runs, and its jobs.

    Args:
        nodes: How many nodes it has, if more than one each in a namespace.
    """

    def __init__(self, nodes: int) -> None:
        # Everybody has to reach the socket of munge, and nobody else the folders of pytest.
        self.folder, self.nodes = Path(tempfile.mkdtemp(prefix="slurm-")), nodes
        folder = self.folder
        self.mark = secrets.token_hex(2)
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._spaces: list[str] = []
        scripts = str(Path(sys.executable).parent)
        self._variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "TORCHELASTIC"))},
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            **({"GLOO_SOCKET_IFNAME": "eth0"} if nodes > 1 else {}),
        }

    def run(self, *command: str) -> str:
        """Return what a command of Slurm prints."""
        done = subprocess.run(
            self._inside(command), env=self._variables, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}{self.logs()}")
        return done.stdout.strip()

    def submit(self, script: Path, *arguments: str, output: Path, options: Sequence[str] = ()) -> str:
        """Submit a batch script; return the number of the job."""
        said = self.run("sbatch", "--parsable", f"--output={output}", *options, str(script), *arguments)
        return said.partition(";")[0]

    def state(self, job: str) -> tuple[str, int]:
        """Return the state of a job, and how often it was restarted."""
        said = self.run("scontrol", "show", "job", "-o", job)
        state, restarts = re.search(r"JobState=(\w+)", said), re.search(r"Restarts=(\d+)", said)
        assert state is not None
        assert restarts is not None
        return state[1], int(restarts[1])

    def ended(self, job: str, output: Path) -> str:
        """Wait for the end of a job; return its state."""
        until = time.monotonic() + SECONDS
        while (state := self.state(job)[0]) in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED"):
            if time.monotonic() > until:
                raise TimeoutError(f"{state}\n{output.read_text() if output.exists() else ''}\n{self.logs()}")
            time.sleep(0.1)
        return state

    def logs(self) -> str:
        """Return the last lines of the daemons."""
        return "\n".join(f"{path}\n{path.read_text()[-2000:]}" for path in sorted((self.folder / "log").glob("*.log")))

    # -- the daemons ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def running(self) -> Iterator[Slurm]:
        """Start the daemons, and end them afterwards."""
        try:
            self._begin()
            yield self
        finally:
            for daemon in reversed(self._daemons):
                daemon.send_signal(signal.SIGTERM)
            for daemon in self._daemons:
                try:
                    daemon.wait(10)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
            for space in self._spaces:
                for process in _ip("netns", "pids", space).split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(process), signal.SIGKILL)
                _ip("netns", "del", space)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _begin(self) -> None:
        folder, dice = self.folder, random.SystemRandom()
        for name in ("munge", "state", "log"):
            (folder / name).mkdir(parents=True)
        folder.chmod(0o755)
        key = folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        names = [f"node{number}" for number in range(1, self.nodes + 1)] if self.nodes > 1 else [socket.gethostname()]
        for name in names:
            (folder / "spool" / name).mkdir(parents=True)
        if self.nodes > 1:
            self._lay_cables()
        nodes = [
            f"NodeName={name} NodeHostname={name} NodeAddr={f'10.78.0.{number}' if self.nodes > 1 else '127.0.0.1'} "
            "CPUs=4 RealMemory=1000"
            for number, name in enumerate(names, 1)
        ]
        (folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                folder=folder,
                controller="ctl(10.78.0.100)" if self.nodes > 1 else f"{names[0]}(127.0.0.1)",
                loopback="" if self.nodes > 1 else "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
                port=_free_port(),
                node_port=_free_port(),
                first=dice.randint(1000, 60000),
                nodes="\n".join(nodes),
            )
        )
        munge = folder / "munge"
        files = {"key-file": "key", "socket": "sock", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
        self._start("munged", "--foreground", *(f"--{option}={munge / name}" for option, name in files.items()))
        self._until(lambda: (munge / "sock").exists())
        self._start(*self._inside(["slurmctld", "-D", "-i"]))
        for number, name in enumerate(names, 1):
            daemon = ["slurmd", "-D", "-N", name]
            self._start(*(self._on(number, daemon) if self.nodes > 1 else daemon))
        self._until(lambda: self._idle() == self.nodes)

    def _until(self, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + SECONDS
        while not is_so():
            if time.monotonic() > until or any(daemon.poll() is not None for daemon in self._daemons):
                raise TimeoutError(f"Slurm does not start\n{self.logs()}")
            time.sleep(0.05)

    def _idle(self) -> int:
        command = self._inside(["sinfo", "-h", "-t", "idle", "-o", "%D"])
        said = subprocess.run(command, env=self._variables, capture_output=True, text=True).stdout
        return sum(int(word) for word in said.split())

    def _start(self, *command: str) -> None:
        log = (self.folder / "log" / f"{len(self._daemons)}-output.log").open("wb")
        with log:
            self._daemons.append(
                subprocess.Popen(command, env=self._variables, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
            )

    # -- the namespaces ---------------------------------------------------------------------------------------

    def _lay_cables(self) -> None:
        """Make a bridge in a namespace of its own, and a namespace for each node with a cable to it."""
        switch = f"ih-{self.mark}-sw"
        lines = ["127.0.0.1 localhost", "10.78.0.100 ctl"]
        lines += [f"10.78.0.{number} node{number}" for number in range(1, self.nodes + 1)]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")
        _ip("netns", "add", switch)
        self._spaces.append(switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        for words in (("link", "set", "br0", "up"), ("link", "set", "lo", "up")):
            _ip("-n", switch, *words)
        _ip("-n", switch, "addr", "add", "10.78.0.100/24", "dev", "br0")
        for number in range(1, self.nodes + 1):
            space = f"ih-{self.mark}-{number}"
            _ip("netns", "add", space)
            self._spaces.append(space)
            cable = ("link", "add", "eth0", "type", "veth", "peer", "name", f"p{number}", "netns", switch)
            _ip("-n", space, *cable)
            _ip("-n", switch, "link", "set", f"p{number}", "master", "br0", "up")
            _ip("-n", space, "addr", "add", f"10.78.0.{number}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                _ip("-n", space, "link", "set", interface, "up")

    def _inside(self, command: Sequence[str]) -> list[str]:
        """Return a command as the controller runs it."""
        return self._in(self._spaces[0], "ctl", command) if self._spaces else list(command)

    def _on(self, number: int, command: Sequence[str]) -> list[str]:
        return self._in(self._spaces[number], f"node{number}", command)

    def _in(self, space: str, host: str, command: Sequence[str]) -> list[str]:
        # Not `ip netns exec`, which mounts another /sys, without the control groups that slurmd needs.
        script = f'hostname {host}; mount --bind {self.folder / "hosts"} /etc/hosts; exec "$@"'
        apart = ["unshare", "-m", "-u"] if host == "ctl" else ["unshare", "-m", "-u", "-p", "-f", "--kill-child"]
        apart += [] if host == "ctl" else ["--mount-proc"]
        return ["nsenter", f"--net=/run/netns/{space}", *apart, "bash", "-c", script, "_", *command]


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
