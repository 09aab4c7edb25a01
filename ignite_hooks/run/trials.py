"""The trial of a search that a run is: whom a hook asks whether the run goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

from ignite_hooks.secrets import masked

MISSING = "Optuna is needed: pip install 'ignite-hooks[search]'"


@runtime_checkable
class Trial(Protocol):
    """What is asked: Optuna's trials, or any object with these two methods."""

    def report(self, value: float, step: int) -> None:
        """Tell the value of the metric at a step."""

    def should_prune(self) -> bool:
        """Return whether the trial is to be stopped."""


_current: ContextVar[Trial | None] = ContextVar("trial of a search", default=None)


def current_trial() -> Trial | None:
    """Return the trial that `search` is running in this thread; None outside of one."""
    return _current.get()


@contextlib.contextmanager
def running_trial(trial: Trial) -> Iterator[None]:
    """Make this the trial of every run that begins within the context."""
    token = _current.set(trial)
    try:
        yield
    finally:
        _current.reset(token)


def stored_trial(storage: str, study: str, number: int, pruner: Any) -> Trial:
    """Return a trial of a study that another process has asked for.

    Args:
        storage: The address of the storage.
        study: The name of the study.
        number: The number of the trial.
        pruner: Who judges: the name of a pruner, or a mapping with type and settings.
    """
    optuna = _optuna()
    # The sampler draws nothing here; that of Optuna's default would load the history of the study.
    found = optuna.load_study(
        study_name=study,
        storage=storage_of(storage),
        sampler=optuna.samplers.RandomSampler(),
        pruner=make_pruner(pruner),
    )
    trials = {trial.number: trial._trial_id for trial in found.get_trials(deepcopy=False)}
    if number not in trials:
        raise ValueError(masked(f"number: the study {study!r} in {storage} has no trial {number}"))
    trial: Trial = optuna.trial.Trial(found, trials[number])
    return trial


def storage_of(url: str, beat: int | None = None, patience: int | None = None) -> Any:
    """Return the storage at an address.

    Args:
        url: The address.
        beat: Seconds between two signs of life of a trial, where several machines share the storage.
        patience: Seconds without a sign of life after which a trial is lost.
    """
    optuna = _optuna()
    # Processes wait for each other where it is a file; connections to a server may have been cut.
    settings = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {"pool_pre_ping": True}
    return optuna.storages.RDBStorage(url, settings, heartbeat_interval=beat, grace_period=patience)


def close_storage(storage: Any) -> None:
    """Close the connections of a storage to its database; a later question opens new ones."""
    backend = getattr(storage, "_backend", storage)
    if (session := getattr(backend, "scoped_session", None)) is not None:
        session.remove()
    if (engine := getattr(backend, "engine", None)) is not None:
        engine.dispose()


def make_pruner(wanted: str | Mapping[str, Any] | None) -> Any:
    """Return a pruner of Optuna; None prunes nothing.

    Raises:
        ValueError: If Optuna has no such pruner, or it does not take such settings.
    """
    optuna = _optuna()
    settings = {"type": wanted or "NopPruner"} if not isinstance(wanted, Mapping) else dict(wanted)
    name = str(settings.pop("type", None))
    known = {each.removesuffix("Pruner").lower(): each for each in optuna.pruners.__all__ if each.endswith("Pruner")}
    cls = getattr(optuna.pruners, known.get(name.removesuffix("Pruner").lower(), ""), None)
    if cls is None:
        raise ValueError(f"no pruner is called {name!r}; there are {', '.join(sorted(known.values()))}")
    try:
        return cls(**settings)
    except TypeError as error:
        raise ValueError(f"{cls.__name__}: {str(error).rpartition(') ')[2] or error}") from error


def pruned_error(trial: object, message: str) -> BaseException | None:
    """Return the exception that a library wants for a trial of its own that was pruned; None if it wants none."""
    if type(trial).__module__.partition(".")[0] != "optuna":
        return None
    error: BaseException = _optuna().TrialPruned(message)
    return error


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError(MISSING) from error
    return optuna
