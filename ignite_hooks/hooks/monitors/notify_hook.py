"""Notifies somebody at the start, end or failure of a run."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from annotated_types import Gt, MinLen

from ignite_hooks.distributed.collectives import is_main_process
from ignite_hooks.errors import SettingError
from ignite_hooks.hooks.base_hook import BaseHook, OnError, Situation, settings
from ignite_hooks.results.outcome import is_stop
from ignite_hooks.secrets import Secret, masked
from ignite_hooks.system.host import kill_session

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner

Moment = Literal["start", "end", "failure"]
PLACEHOLDERS = ("message", "status", "work_dir", "epoch", "iteration")
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish")
MAX_LENGTH = 1500
"""Maximum length of a message: Discord accepts 2000 characters, and a command line is limited too."""


@settings
class NotifyHook(BaseHook):
    """Run a command, post to a webhook or tell a service when a run ends or fails; only rank 0 does.

    A command is a list of arguments and runs without a shell. In each argument ``{message}``, ``{status}``,
    ``{work_dir}``, ``{epoch}`` and ``{iteration}`` are replaced. A webhook receives these as JSON, the message also as
    ``text`` and ``content``, as Slack, Mattermost and Discord expect it. Mail, Telegram, Teams and a hundred other
    services are told by Apprise (``pip install 'ignite-hooks[notify]'``). A run never waits longer than the timeout.

    Args:
        command: The command with its arguments: ``[notify-send, "{message}"]``.
        webhook: The address to post to; it is treated as a secret.
        apprise: One or several addresses as Apprise writes them, such as ``tgram://TOKEN/CHAT``; secrets, too.
        at: When to notify: at the start, at the end (stopped early or not), at a failure.
        timeout: Seconds after which a command is killed, and a webhook that does not answer is given up.
    """

    command: Annotated[Sequence[str], MinLen(1)] | None = None
    webhook: str | Secret | None = None
    apprise: str | Secret | Sequence[str | Secret] | None = None
    at: Sequence[Moment] = ("end", "failure")
    timeout: Annotated[float, Gt(0)] = 10.0
    on_error: OnError = "warn"

    may_end_a_run: ClassVar[bool] = False
    # After all other hooks, which may log something about the end.
    point_priority: ClassVar[dict[str, int]] = {"cleanup": 0}

    def __post_init__(self) -> None:
        if isinstance(self.command, str):
            raise SettingError("command", f"a list of arguments is needed, as there is no shell: [{self.command!r}]")
        if self.command is not None and (script := placeholder_in_script(self.command)):
            raise SettingError(
                "command",
                f"a shell would run the text that replaces {script}: pass it as a separate argument, "
                f'[sh, -c, \'... "$0"\', "{script}"]',
            )
        if isinstance(self.at, str):
            raise SettingError("at", f"a list is needed: [{self.at}]")
        if self.webhook is not None and urlsplit(revealed(self.webhook)).scheme not in ("http", "https"):
            raise SettingError("webhook", "an address that begins with https:// or http:// is needed")
        for address in addresses_of(self.apprise):
            if not address.partition("://")[2]:
                raise SettingError("apprise", "addresses such as mailto://... or tgram://TOKEN/CHAT are needed")
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def check(self, situation: Situation) -> Iterator[tuple[str, str]]:
        addresses = addresses_of(self.apprise)
        if situation.complete and self.command is None and self.webhook is None and not addresses:
            yield "command", "set a command, a webhook, or addresses for apprise"
        if addresses and find_spec("apprise") is None:
            yield "apprise", "pip install 'ignite-hooks[notify]'"

    def before_run(self, runner: Runner) -> None:
        self._error = None
        if "start" in self.at:
            # Joined only at the end, so that the training begins at once.
            self._notify(runner, "started")

    def on_exception(self, exception: BaseException) -> None:
        self._error = exception

    def cleanup(self, runner: Runner) -> None:
        """Send the notification of the end or the failure, and wait for all that are under way."""
        error, self._error = self._error, None
        fails = error is not None and not is_stop(error)
        if error is not None and fails and "failure" in self.at:
            self._notify(runner, "failed", error_line(error))
        elif not fails and "end" in self.at:
            stopped = runner.stop_reason or (error_line(error) if error is not None else None)
            self._notify(runner, "stopped" if stopped else "ended", stopped or "")
        self._wait(runner)

    def _notify(self, runner: Runner, status: str, why: str = "") -> None:
        if not is_main_process():
            return
        facts = facts_of(runner, status, why)
        if self.command is not None:
            self._in_thread(runner, "the command", lambda: run_command(self.command or (), facts, self.timeout))
        if self.webhook is not None:
            address = revealed(self.webhook)
            recipient = urlsplit(address).hostname or "the webhook"
            self._in_thread(runner, recipient, lambda: post(address, facts, self.timeout), address)
        for address in addresses_of(self.apprise):
            act = partial(tell_service, address, facts)
            self._in_thread(runner, address.partition("://")[0], act, address)

    def _in_thread(self, runner: Runner, recipient: str, action: Callable[[], None], hidden: str | None = None) -> None:
        logger = runner.logger

        def work() -> None:
            try:
                action()
            except Exception as error:
                text = masked(error_line(error))
                logger.warning(
                    "%s could not be notified: %s", recipient, text if hidden is None else text.replace(hidden, "***")
                )

        # A daemon thread: a slow server delays neither the run nor the end of the process.
        thread = threading.Thread(target=work, name=f"NotifyHook {recipient}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _wait(self, runner: Runner) -> None:
        threads, self._threads = self._threads, []
        # A little more than the timeout of each, to log its error; all threads run at the same time.
        until = time.monotonic() + self.timeout + 0.5
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                recipient = thread.name.removeprefix("NotifyHook ")
                runner.logger.warning("%s does not answer within %g s and is given up", recipient, self.timeout)


def facts_of(runner: Runner, status: str, why: str = "") -> dict[str, Any]:
    """Return the facts of a notification, without the secrets of the run."""
    epoch, iteration = int(runner.trainer.state.epoch), runner.global_step
    words = [f"run {runner.work_dir.name} on {socket.gethostname()} {status}"]
    if status != "started":
        words.append(f"epoch {epoch}, iteration {iteration}")
    words += [why] if why else []
    words += [f"best {name} {record.score:.4g}" for name, record in runner.best.items()]
    return {
        "message": sendable(masked(runner.masks.text("; ".join(words)))),
        "status": status,
        "work_dir": str(runner.work_dir),
        "epoch": epoch,
        "iteration": iteration,
    }


def error_line(error: BaseException) -> str:
    """Return the type and the message of an error in one line.

    Example:
        >>> error_line(ValueError("no such luck")), error_line(KeyboardInterrupt())
        ('ValueError: no such luck', 'KeyboardInterrupt')
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def sendable(message: str, most: int = MAX_LENGTH) -> str:
    """Return a message that can be sent: without its middle if too long, and without null characters.

    Example:
        >>> sendable("an error\\0 as long as a book", most=15)
        'an erro ... ook'
    """
    message = message.replace("\0", "")
    half = most // 2
    return message if len(message) <= most else f"{message[:half]} ... {message[half + 5 - most :]}"


def fill(argument: str, facts: dict[str, Any]) -> str:
    """Return an argument with the facts filled in; other braces stay.

    Example:
        >>> fill("{status}: {json}", {"message": "{status}", "status": "ended", "work_dir": "", "epoch": 1})
        'ended: {json}'
    """
    places = "|".join(PLACEHOLDERS)
    return re.sub(rf"\{{({places})\}}", lambda found: str(facts.get(found[1], "")), argument)


def placeholder_in_script(command: Sequence[str]) -> str | None:
    """Return a placeholder in the script that a command passes to a shell, or None; an error could hold ``$(rm ...)``.

    Example:
        >>> (
        ...     placeholder_in_script(["bash", "-lc", "echo {message}"]),
        ...     placeholder_in_script(["sh", "-c", "$0", "{message}"]),
        ... )
        ('{message}', None)
    """
    if os.path.basename(command[0]) not in SHELLS:
        return None
    flags = [index for index, word in enumerate(command) if re.fullmatch(r"-[a-z]*c", word)]
    script = command[flags[0] + 1] if flags and flags[0] + 1 < len(command) else ""
    return next((f"{{{place}}}" for place in PLACEHOLDERS if f"{{{place}}}" in script), None)


def run_command(command: Sequence[str], facts: dict[str, Any], timeout: float) -> None:
    """Run a command; if it fails, raise an error with the last line it printed."""
    # Into a file: a background process of the command would keep a pipe open.
    with tempfile.TemporaryFile() as errors:
        running = subprocess.Popen(
            [fill(argument, facts) for argument in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = running.wait(timeout)
        except subprocess.TimeoutExpired:
            # Together with the processes it has started.
            kill_session(running)
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


def tell_service(address: str, facts: dict[str, Any]) -> None:
    """Tell a service that Apprise knows, whose own warnings show no addresses."""
    import apprise

    service = apprise.Apprise()
    if not service.add(address):
        raise ValueError("Apprise knows no such address: see its list of services")
    title, _, body = facts["message"].partition("; ")
    if not service.notify(title=title, body=body or title):
        raise RuntimeError("the service has refused it, or cannot be reached")


def addresses_of(apprise: str | Secret | Sequence[str | Secret] | None) -> list[str]:
    """Return the addresses themselves.

    Example:
        >>> addresses_of("json://localhost"), addresses_of(["a://b", Secret("c://d")]), addresses_of(None)
        (['json://localhost'], ['a://b', 'c://d'], [])
    """
    if apprise is None:
        return []
    return [revealed(apprise)] if isinstance(apprise, (str, Secret)) else [revealed(each) for each in apprise]


def revealed(address: str | Secret) -> str:
    """Return the address itself."""
    return address.reveal() if isinstance(address, Secret) else address
