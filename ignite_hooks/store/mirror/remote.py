"""A folder behind an fsspec URL, where every operation ends: by itself, or at its deadline."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ignite_hooks.errors import CheckpointError
from ignite_hooks.secrets import MASK, SHORTEST, Masks, is_secret, masked

QUICK: Final = 30.0
"""Seconds for an operation on a small file."""
SLOWEST: Final = 250_000
"""Bytes per second: what is slower than this is taken for silent."""
MOST_STUCK: Final = 4
"""Operations that may hang in threads before no other is begun."""
LOCAL: Final = ("file", "local")
TEMPORARY: Final = ".tmp-mirror-"


class MirrorError(CheckpointError):
    """A mirror that cannot be read or written, now."""


class Remote:
    """A folder behind a URL. Everything that fails raises `MirrorError`, at the latest at its deadline.

    A write to a server that has fallen silent may never end by itself: an operation of an asynchronous file system is
    cancelled, one of another is left to its thread.

    Args:
        url: Where it is, as fsspec writes it; credentials come from the environment.
        quick: The seconds for an operation on a small file.
    """

    def __init__(self, url: str, *, quick: float = QUICK) -> None:
        self.shown = hidden(url).rstrip("/")
        """The URL for messages."""
        self._quick = quick
        self._stuck: list[threading.Thread] = []
        try:
            with _random_numbers_kept():
                from fsspec.core import url_to_fs

                # Listings are asked for rarely, and then have to be true.
                self._files, self._root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        except Exception as error:
            raise MirrorError(f"{self.shown}: {_reason(error)}") from error
        protocol = self._files.protocol
        self._is_local = not {protocol, *(protocol if isinstance(protocol, tuple) else ())}.isdisjoint(LOCAL)

    def read(self, name: str, *, most: int) -> bytes | None:
        """Return the content of a small file; None if there is none."""
        try:
            # Not a part of it: a range beyond the end is an error of some stores.
            size = int(self._run("info", self._path(name))["size"] or 0)
            if size > most:
                raise MirrorError(f"{self.shown}/{name}: {size} bytes, expected {most} at most")
            return bytes(self._run("cat_file", self._path(name), size=size))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a small file, as a whole where the file system can."""
        place = self._written(name)
        self._run("pipe_file", place, content)
        self._publish(place, name)

    def put(self, name: str, path: str, size: int) -> None:
        """Copy a file of this machine there."""
        place = self._written(name)
        self._run("put_file", path, place, size=size)
        self._publish(place, name)

    def fetch(self, name: str, path: str, size: int) -> bool:
        """Copy a file from there; return False if it is not there."""
        try:
            self._run("get_file", self._path(name), path, size=size)
        except FileNotFoundError:
            return False
        return True

    def holds(self, name: str) -> bool:
        """Return whether a file is there, whatever is in it."""
        try:
            self._run("info", self._path(name))
        except FileNotFoundError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        try:
            # Not all file systems tell when there is none.
            self._run("rm_file", self._path(name))
        except FileNotFoundError:
            return

    def move(self, name: str, target: str, size: int) -> None:
        """Rename a file, if it is there; an object store copies it."""
        self._make_folder(target)
        try:
            self._run("cp_file", self._path(name), self._path(target), size=size)
        except FileNotFoundError:
            return
        self.remove(name)

    def names(self) -> list[str]:
        """Return the names of the files and folders in it."""
        try:
            found = self._run("ls", self._root, False)
        except FileNotFoundError:
            return []
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _written(self, name: str) -> str:
        """Return where to write a file: where a copy can be cut off in the middle, not under its own name."""
        self._make_folder(name)
        return self._path(f"{TEMPORARY}{name.replace('/', '-')}" if self._is_local else name)

    def _publish(self, place: str, name: str) -> None:
        if self._is_local:
            self._run("mv", place, self._path(name))

    def _make_folder(self, name: str) -> None:
        # Object stores have no folders, and asking for one may mean to make a bucket.
        if not self._files.async_impl:
            self._run("makedirs", self._path(name).rpartition("/")[0], True)

    def _run(self, method: str, *args: Any, size: int = 0) -> Any:
        seconds = self._quick + size / SLOWEST
        try:
            if self._files.async_impl:
                from fsspec.asyn import sync

                return sync(self._files.loop, getattr(self._files, f"_{method}"), *args, timeout=seconds)
            return self._in_thread(lambda: getattr(self._files, method)(*args), seconds)
        except (FileNotFoundError, MirrorError):
            raise
        except TimeoutError as error:
            raise MirrorError(f"{self.shown}: no answer within {seconds:.0f} s") from error
        except Exception as error:
            # Those of botocore and others are no OSErrors.
            raise MirrorError(f"{self.shown}: {_reason(error)}") from error

    def _in_thread(self, action: Callable[[], Any], seconds: float) -> Any:
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        if len(self._stuck) >= MOST_STUCK:
            raise MirrorError(f"{self.shown}: {MOST_STUCK} earlier operations have not ended")
        outcome: list[Any] = []
        problem: list[BaseException] = []

        def act() -> None:
            try:
                outcome.append(action())
            except BaseException as error:
                problem.append(error)

        thread = threading.Thread(target=act, name="mirror operation", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            self._stuck.append(thread)
            raise TimeoutError
        if problem:
            raise problem[0]
        return outcome[0]


def mirror_of(url: str, work_dir: Path) -> str:
    """Return where a mirror is: a path without a protocol is relative to the work directory.

    Example:
        >>> mirror_of("s3://bucket/run", Path("/runs/a")), mirror_of("../b", Path("/runs/a"))
        ('s3://bucket/run', '/runs/b')
    """
    return url if "://" in url or "::" in url else os.path.normpath(work_dir / Path(url).expanduser())


def why_no_mirror(url: str) -> str | None:
    """Return why nothing can be mirrored to a URL, without asking whether it is there; None if it can."""
    if not url.strip():
        return "is empty: give a URL, as s3://bucket/run"
    if "://" not in url and "::" not in url:
        return None
    try:
        with _random_numbers_kept():
            from fsspec import get_filesystem_class

            get_filesystem_class(url.partition("://")[0].partition("::")[0])
    except ImportError as error:
        remedy = "pip install 'ignite-hooks[remote]'" if url.startswith("s3") else hidden(str(error))
        return f"{hidden(url)} cannot be reached: {remedy}"
    except ValueError as error:
        return f"{hidden(url)} cannot be reached: {hidden(str(error))}"
    return None


@contextlib.contextmanager
def _random_numbers_kept() -> Iterator[None]:
    """Leave the random numbers of the script as they were: some libraries draw from them when they are imported."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


def hidden(text: str) -> str:
    """Return a text without credentials: those in URLs, and those of the environment."""
    for name, value in os.environ.items():
        if is_secret(name) and len(value) >= SHORTEST:
            text = text.replace(value, MASK)
    return Masks().text(masked(text))


def _reason(error: BaseException) -> str:
    """Return an error as one line without credentials."""
    lines = hidden(str(error)).splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
