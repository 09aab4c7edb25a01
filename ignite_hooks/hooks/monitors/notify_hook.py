"""Tells somebody that a run has ended."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from annotated_types import Gt, MinLen

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, OnError, Situation, settings
from ignite_hooks.secrets import Secret, masked

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

Moment = Literal["start", "end", "failure"]
PLACES = ("message", "status", "work_dir", "epoch", "iteration")
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish")
MOST = 1500
"""The longest message: Discord takes no more than 2000 characters, and a command not any number."""


@settings
class NotifyHook(BaseHook):
    """Run a command, or post to a webhook, when a run ends or fails, however it does; rank 0 alone does so.

    A command is a list of its arguments and never sees a shell. In each argument ``{message}``, ``{status}``,
    ``{work_dir}``, ``{epoch}`` and ``{iteration}`` are replaced. A webhook receives these as JSON, the message as
    ``text`` and ``content`` too, as Slack, Mattermost and Discord expect it. A run never waits longer than the timeout.

    Args:
        command: The command with its arguments: ``[notify-send, "{message}"]``.
        webhook: The address that is posted to; it is treated as a secret.
        at: When to tell: at the start, the end (stopped early or not), and a failure.
        timeout: After so many seconds a command is ended, and a webhook that does not answer is left alone.
    """

    command: Annotated[Sequence[str], MinLen(1)] | None = None
    webhook: str | Secret | None = None
    at: Sequence[Moment] = ("end", "failure")
    timeout: Annotated[float, Gt(0)] = 10.0
    on_error: OnError = "warn"

    may_end_a_run: ClassVar[bool] = False
    # When all others have said what they have to say of the end.
    point_priority: ClassVar[dict[str, int]] = {"cleanup": 0}

    def __post_init__(self) -> None:
        if isinstance(self.command, str):
            raise SettingError("command", f"a list of arguments is needed, as there is no shell: [{self.command!r}]")
        if self.command is not None and (script := script_with_a_place(self.command)):
            raise SettingError(
                "command",
                f"a shell would run what stands in place of {script}: write it as an argument of its own, "
                f'[sh, -c, \'... "$0"\', "{script}"]',
            )
        if isinstance(self.at, str):
            raise SettingError("at", f"a list is needed: [{self.at}]")
        if self.webhook is not None and urlsplit(revealed(self.webhook)).scheme not in ("http", "https"):
            raise SettingError("webhook", "an address that begins with https:// or http:// is needed")
        self._error: BaseException | None = None
        self._told: list[threading.Thread] = []

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        if situation.complete and self.command is None and self.webhook is None:
            yield "command", "give a command, or a webhook"

    def before_run(self, runner: Runner) -> None:
        self._error = None
        if "start" in self.at:
            # Waited for at the end only, so that the training begins at once.
            self._tell(runner, "started")

    def on_exception(self, exception: BaseException) -> None:
        self._error = exception

    def cleanup(self, runner: Runner) -> None:
        """Whatever has ended the run."""
        error, self._error = self._error, None
        if error is not None and "failure" in self.at:
            self._tell(runner, "failed", in_short(error))
        elif error is None and "end" in self.at:
            stopped = runner.stop_reason
            self._tell(runner, "stopped" if stopped else "ended", stopped or "")
        self._wait(runner)

    def _tell(self, runner: Runner, status: str, why: str = "") -> None:
        if not is_main_process():
            return
        facts = facts_of(runner, status, why)
        if self.command is not None:
            self._beside(runner, "the command", lambda: run_command(self.command or (), facts, self.timeout))
        if self.webhook is not None:
            address = revealed(self.webhook)
            self._beside(
                runner, urlsplit(address).hostname or "the webhook", lambda: post(address, facts, self.timeout)
            )

    def _beside(self, runner: Runner, whom: str, action: Callable[[], None]) -> None:
        logger, hidden = runner.logger, None if self.webhook is None else revealed(self.webhook)

        def work() -> None:
            try:
                action()
            except Exception as error:
                text = masked(in_short(error))
                logger.warning(
                    "%s could not be told: %s", whom, text if hidden is None else text.replace(hidden, "***")
                )

        # A daemon: a server that sends one byte a minute holds neither the run nor the end of the process.
        thread = threading.Thread(target=work, name=f"NotifyHook {whom}", daemon=True)
        thread.start()
        self._told.append(thread)

    def _wait(self, runner: Runner) -> None:
        threads, self._told = self._told, []
        # A little more than what each has been given itself, to hear of it; all of them wait at the same time.
        until = time.monotonic() + self.timeout + 0.5
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                whom = thread.name.removeprefix("NotifyHook ")
                runner.logger.warning("%s does not answer within %g s: it is left alone", whom, self.timeout)


def facts_of(runner: Runner, status: str, why: str = "") -> dict[str, Any]:
    """What there is to say, without the secrets of the run."""
    epoch, iteration = int(runner.trainer.state.epoch), runner.global_step
    words = [f"run {runner.work_dir.name} on {socket.gethostname()} {status}"]
    if status != "started":
        words.append(f"epoch {epoch}, iteration {iteration}")
    words += [why] if why else []
    words += [f"best {name} {record.score:.4g}" for name, record in runner.best.items()]
    return {
        "message": shortened(masked(runner.masks.text("; ".join(words)))),
        "status": status,
        "work_dir": str(runner.work_dir),
        "epoch": epoch,
        "iteration": iteration,
    }


def in_short(error: BaseException) -> str:
    """What kind of error it is and what it says, in one line.

    Example:
        >>> in_short(ValueError("no such luck")), in_short(KeyboardInterrupt())
        ('ValueError: no such luck', 'KeyboardInterrupt')
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def shortened(message: str, most: int = MOST) -> str:
    """A message that can be sent: its middle is left out where it is too long, and what no argument may hold.

    Example:
        >>> shortened("an error\\0 as long as a book", most=15)
        'an erro ... ook'
    """
    message = message.replace("\0", "")
    half = most // 2
    return message if len(message) <= most else f"{message[:half]} ... {message[half + 5 - most :]}"


def filled(argument: str, facts: dict[str, Any]) -> str:
    """An argument with the facts in their places; other braces stay.

    Example:
        >>> filled("{status}: {json}", {"message": "{status}", "status": "ended", "work_dir": "", "epoch": 1})
        'ended: {json}'
    """
    places = "|".join(PLACES)
    return re.sub(rf"\{{({places})\}}", lambda found: str(facts.get(found[1], "")), argument)


def script_with_a_place(command: Sequence[str]) -> str | None:
    """The place in the script that a command gives a shell, if there is one: an error could say ``$(rm ...)``.

    Example:
        >>> script_with_a_place(["bash", "-lc", "echo {message}"]), script_with_a_place(["sh", "-c", "$0", "{message}"])
        ('{message}', None)
    """
    if os.path.basename(command[0]) not in SHELLS:
        return None
    flags = [index for index, word in enumerate(command) if re.fullmatch(r"-[a-z]*c", word)]
    script = command[flags[0] + 1] if flags and flags[0] + 1 < len(command) else ""
    return next((f"{{{place}}}" for place in PLACES if f"{{{place}}}" in script), None)


def run_command(command: Sequence[str], facts: dict[str, Any], timeout: float) -> None:
    """Run a command; an error says what it said where it fails."""
    # Into a file: what a command leaves running in the background would hold a pipe open.
    with tempfile.TemporaryFile() as errors:
        running = subprocess.Popen(
            [filled(argument, facts) for argument in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = running.wait(timeout)
        except subprocess.TimeoutExpired:
            # With all that it has started.
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            raise
        if code:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"{command[0]} ended with {code}{f': {said[0]}' if said else ''}")


def post(address: str, facts: dict[str, Any], timeout: float) -> None:
    """Post facts as JSON."""
    from urllib.request import Request, urlopen

    body = json.dumps({"text": facts["message"], "content": facts["message"], **facts}).encode()
    with urlopen(Request(address, body, {"Content-Type": "application/json"}), timeout=timeout) as answer:
        answer.read(1)


def revealed(address: str | Secret) -> str:
    """The address itself."""
    return address.reveal() if isinstance(address, Secret) else address
