"""Says what a run runs on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ignite_hooks.hooks.base_hook import BaseHook, OnError, PriorityLike, settings
from ignite_hooks.points import Priority

if TYPE_CHECKING:
    from ignite_hooks.runner import Runner


@settings
class RuntimeInfoHook(BaseHook):
    """Log one line about the environment of the run, and give the writers the configuration.

    Reads: config, model, device.
    Writes: the configuration.
    """

    priority: PriorityLike = Priority.VERY_HIGH
    on_error: OnError = "warn"

    def before_run(self, runner: Runner, config: Any = None, model: Any = None, device: Any = None) -> None:
        import ignite.distributed as idist

        if isinstance(config, Mapping) and config:
            runner.writer.write_config(config)
        if idist.get_rank() == 0:
            seed = config.get("seed") if isinstance(config, Mapping) else None
            facts = [*_versions(), _device(model, device), *_processes(), *_size_of(model)]
            facts += [] if seed is None else [f"seed {seed}"]
            runner.logger.info("  ".join([*facts, f"work_dir {runner.work_dir}"]))


def _versions() -> Iterator[str]:
    import ignite
    import torch

    from ignite_hooks import __version__

    yield f"ignite_hooks {__version__}"
    yield f"torch {torch.__version__}"
    yield f"ignite {ignite.__version__}"


def _device(model: Any, device: Any) -> str:
    import ignite.distributed as idist
    import torch

    parameter = next(iter(model.parameters()), None) if isinstance(model, torch.nn.Module) else None
    found = torch.device(device or (idist.device() if parameter is None else parameter.device))
    return f"{found} ({torch.cuda.get_device_name(found)})" if found.type == "cuda" else str(found)


def _processes() -> Iterator[str]:
    import ignite.distributed as idist

    if idist.get_world_size() > 1:
        yield f"{idist.get_world_size()} processes ({idist.backend()})"


def _size_of(model: Any) -> Iterator[str]:
    import torch

    if not isinstance(model, torch.nn.Module):
        return
    # A lazy module has no size before its first batch.
    unknown = torch.nn.parameter.UninitializedParameter
    known = [parameter for parameter in model.parameters() if not isinstance(parameter, unknown)]
    trainable = sum(parameter.numel() for parameter in known if parameter.requires_grad)
    yield f"{trainable:,} of {sum(parameter.numel() for parameter in known):,} parameters trainable"
