"""The environment of a run, in words."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from ignite_hooks.model.parts import each, parts_of
from ignite_hooks.secrets import MASK, is_secret


def versions() -> Iterator[str]:
    """Yield the versions of this package, torch and ignite."""
    import ignite
    import torch

    from ignite_hooks.version import __version__

    yield f"ignite_hooks {__version__}"
    yield f"torch {torch.__version__}"
    yield f"ignite {ignite.__version__}"


def device_of(model: Any, device: Any) -> str:
    """Return the name of the device that was given, or of the device of the model."""
    import ignite.distributed as idist
    import torch

    modules = [one for one in each(model) if isinstance(one, torch.nn.Module)]
    parameter = next((parameter for one in modules for parameter in one.parameters()), None)
    found = torch.device(device or (idist.device() if parameter is None else parameter.device))
    return f"{found} ({torch.cuda.get_device_name(found)})" if found.type == "cuda" else str(found)


def processes() -> Iterator[str]:
    """Yield the number of processes, if there are several."""
    import ignite.distributed as idist

    if idist.get_world_size() > 1:
        yield f"{idist.get_world_size()} processes ({idist.backend()})"


def size_of(model: Any) -> Iterator[str]:
    """Yield the number of parameters of a model."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return
    # A lazy module has no size before its first batch.
    unknown = torch.nn.parameter.UninitializedParameter
    known = [parameter for parameter in model.parameters() if not isinstance(parameter, unknown)]
    trainable = sum(parameter.numel() for parameter in known if parameter.requires_grad)
    yield f"{trainable:,} of {sum(parameter.numel() for parameter in known):,} parameters trainable"


def command(words: Sequence[str]) -> str:
    """Return a command line without the values of options that are named like secrets.

    Example:
        >>> command(["train.py", "--api-key", "k-123", "--token=abc", "--epochs", "3"])
        "train.py --api-key '***' '--token=***' --epochs 3"
    """
    shown = []
    hidden = False
    for word in words:
        name, equals, _ = word.partition("=")
        secret = word.startswith("-") and is_secret(name.lstrip("-"))
        shown.append(f"{name}={MASK}" if secret and equals else MASK if hidden and not word.startswith("-") else word)
        hidden = secret and not equals
    return shlex.join(shown)


def environment_facts(model: Any = None, device: Any = None) -> dict[str, str]:
    """Return the facts about the environment by name, with the machine and the command line."""
    import os
    import platform
    import sys

    found = {
        "versions": ", ".join(versions()),
        "python": f"{platform.python_version()} ({sys.executable})",
        "device": device_of(model, device),
        "processes": ", ".join(processes()) or "one",
        "model": "; ".join(
            ", ".join([f"{name} {type(one).__name__}".strip(), *size_of(one)]) for name, one in parts_of(model).items()
        ),
        "machine": f"{platform.node()}, {platform.platform()}, {os.cpu_count()} cores",
        "command": command(sys.argv),
        "folder": os.getcwd(),
    }
    return {name: value for name, value in found.items() if value}
