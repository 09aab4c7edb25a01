"""Runs one script or notebook of somebody else and records what it did: weights after every step, events, ending.

``python -m tests.clients.record --line default --out record.json SCRIPT [ARGUMENTS]``: `tests/clients/scripts.py`
starts it once for every line and compares the records.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import runpy
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine
from torch.optim.optimizer import register_optimizer_step_post_hook

from tests.clients import line

STAND_INS = Path(__file__).with_name("standins")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


class Record:
    """What a script did."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        """A checksum of the parameters after every step of an optimizer."""
        self.events: list[str] = []
        """The number of the engine and the event, for every event of Ignite or the script."""
        self.ending = ""
        self._engines: list[Engine] = []

    def watch(self) -> None:
        """Begin to record."""
        register_optimizer_step_post_hook(self._stepped)
        plain_fire = Engine._fire_event
        record = self

        def fire(engine: Engine, name: Any, *args: Any, **kwargs: Any) -> None:
            record._fired(engine, name)
            plain_fire(engine, name, *args, **kwargs)

        Engine._fire_event = fire  # type: ignore[method-assign]

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        checksum = 0
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                checksum = zlib.crc32(parameter.detach().cpu().contiguous().numpy().tobytes(), checksum)
        self.steps.append(checksum)

    def _fired(self, engine: Engine, name: Any) -> None:
        if type(name).__module__.startswith("ignite_hooks"):
            return
        if not any(engine is known for known in self._engines):
            self._engines.append(engine)
        number = next(n for n, known in enumerate(self._engines) if known is engine)
        self.events.append(f"{number} {getattr(name, 'name', name)}")


def without_addresses(text: str) -> str:
    """Return a message without the addresses of objects, which differ in every process."""
    return _ADDRESS.sub("0x...", text)


def main() -> int:
    """Run the script; exit with 0 however it ends, as the record says how."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--line", choices=line.LINES, default="none")
    parser.add_argument("--out", required=True)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    out = Path(options.out + os.environ.get("RANK", "")).absolute()
    sys.path.insert(0, str(Path(options.script).parent.absolute()))
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    if "transformers" in options.script:  # this library looks for parts of torchvision that the stand-in does not have
        from tests.clients import hub

        hub.install()
    else:
        sys.path.insert(0, str(STAND_INS))
    record = Record()
    record.watch()
    line.install(options.line)
    sys.argv = [options.script, *options.arguments]
    try:
        _run(Path(options.script))
        record.ending = "end"
    except SystemExit as error:
        record.ending = f"exit {error.code or 0}"
    except BaseException as error:
        record.ending = without_addresses(f"{type(error).__name__}: {error}")
        import traceback

        traceback.print_exc()
    out.write_text(json.dumps({"steps": record.steps, "events": record.events, "ending": record.ending}))
    return 0


def _run(script: Path) -> None:
    if script.suffix == ".ipynb":
        names: dict[str, Any] = {"__name__": "__main__", "display": print}
        for number, cell in enumerate(json.loads(script.read_text(encoding="utf-8"))["cells"]):
            if cell["cell_type"] == "code":
                source = "".join(cell["source"])
                plain = "\n".join(text for text in source.splitlines() if not text.lstrip().startswith(("!", "%")))
                exec(compile(plain, f"{script.name}[{number}]", "exec"), names)
    else:
        runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    sys.exit(main())
