"""The command ``export``: the model of a run as files that others load."""

from __future__ import annotations

import argparse
from typing import Any

FORMATS = ("safetensors", "pth", "pt2", "onnx")


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    export = commands.add_parser("export", help="export the model of a run: safetensors, .pth, torch.export, ONNX")
    export.add_argument(
        "run", metavar="DIR|FILE", help="its work directory, its configuration, or one of its checkpoints"
    )
    export.add_argument(
        "--checkpoint",
        metavar="delivered|best|last|PATH",
        help="the weights to export: by default those that the run delivers",
    )
    export.add_argument(
        "--weights",
        metavar="raw|ema|NAME",
        help="raw weights, their averages, or further averages by name; by default as evaluations of the run",
    )
    export.add_argument(
        "--format",
        choices=FORMATS,
        action="append",
        dest="formats",
        help="a format, may be repeated; by default all that are possible here",
    )
    export.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), help="the type of the weights")
    export.add_argument(
        "--batch",
        choices=("dynamic", "fixed"),
        default="dynamic",
        help="whether a call may have any number of samples, or as many as in the training (%(default)s)",
    )
    export.add_argument("--tolerance", metavar="X", type=float, help="the largest difference from the model")
    export.add_argument("--to", metavar="DIR", help="where the files go, by default 'export' in the work directory")
    export.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="override a setting, as in dataset.path=/data; may be repeated",
    )
    export.set_defaults(command=_export)


def _export(options: argparse.Namespace) -> int:
    from ignite_hooks.trainer import commands

    return commands.export(
        options.run,
        checkpoint=options.checkpoint,
        weights=options.weights,
        formats=options.formats,
        dtype=options.dtype,
        batch=options.batch,
        tolerance=options.tolerance,
        folder=options.to,
        overrides=options.overrides,
    )
