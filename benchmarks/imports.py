"""What importing the package costs and loads, and how soon ``ignite-hooks validate`` answers.

Every import happens in a new interpreter; the interpreters take turns. What an import adds is timed after the others in
the same interpreter: the difference of two starts of torch would drown it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measure import Chart, Figure, Result, Spread, exactly, interleaved, script
from peers import peers_there

MOST_MS = 60.0
VALIDATED = "ignite-hooks validate FILE"

BASE = "import torch, ignite"
ADDED = {
    "import ignite_hooks": "import ignite_hooks",
    "from ignite_hooks import attach_hooks": "from ignite_hooks import attach_hooks",
}

PEERS = {"MMEngine": "import mmengine.runner", "Lightning": "import lightning"}

UNWANTED = (
    *("clearml", "mlflow", "wandb", "comet_ml", "neptune", "visdom", "polyaxon"),
    *("matplotlib", "tensorboard", "tensorboardX", "torch.utils.tensorboard"),
)
"""Trackers, matplotlib, tensorboard: none of them may come with the package."""

TIMED = """
import sys, time
{before}
before = set(sys.modules)
start = time.perf_counter()
{timed}
seconds = time.perf_counter() - start
print(seconds * 1e3, *[name for name in {names!r} if name in sys.modules and name not in before])
"""

VALIDATE = "from ignite_hooks.cli.app import main; main(['validate', {file!r}])"

CONFIG = {
    "default_hooks": {"checkpoint": {"type": "CheckpointHook", "interval": 2}},
    "custom_hooks": [{"type": "EarlyStoppingHook", "monitor": "val_loss", "patience": 3}],
}


class Script:
    """Code run in a new interpreter each time; it prints milliseconds and then names of modules."""

    def __init__(self, code: str) -> None:
        self._code = code
        self.loaded: list[str] = []

    def run(self) -> float:
        """Return the milliseconds that the code has measured."""
        done = subprocess.run([sys.executable, "-c", self._code], check=True, capture_output=True, text=True)
        milliseconds, *self.loaded = done.stdout.splitlines()[-1].split()
        return float(milliseconds)


def all_scripts(folder: Path) -> dict[str, Script]:
    """Return the rows of the table."""
    scripts = {BASE: Script(TIMED.format(before="", timed=BASE, names=UNWANTED))}
    for name, code in ADDED.items():
        scripts[f"... then {name}"] = Script(TIMED.format(before=BASE, timed=code, names=UNWANTED))
    scripts["import ignite_hooks alone"] = Script(TIMED.format(before="", timed="import ignite_hooks", names=UNWANTED))
    scripts["import torch"] = Script(TIMED.format(before="", timed="import torch", names=UNWANTED))
    for name, code in PEERS.items():
        if name in peers_there():
            scripts[code] = Script(TIMED.format(before="", timed=code, names=UNWANTED))
    file = folder / "config.json"
    file.write_text(json.dumps(CONFIG), encoding="utf-8")
    names = ("torch", "ignite", *UNWANTED)
    scripts[VALIDATED] = Script(TIMED.format(before="", timed=VALIDATE.format(file=str(file)), names=names))
    return scripts


def measure(quick: bool) -> Result:
    """Run every script in a separate interpreter, in turn."""
    count = 2 if quick else 4
    with tempfile.TemporaryDirectory() as folder:
        scripts = all_scripts(Path(folder))
        cases: dict[str, Callable[[], float]] = {name: each.run for name, each in scripts.items()}
        rounds = interleaved(cases, count)

    figures = []
    for name in ADDED:
        added = f"... then {name}"
        share = rounds.combined(lambda a, b: a / b * 100, added, BASE)
        figures += [
            Figure(f"{name}, added", rounds.spread(added), "ms", MOST_MS if name == "import ignite_hooks" else None),
            Figure("... of `import torch, ignite`", share, "%"),
            Figure("... trackers, matplotlib, tensorboard among it", exactly(len(scripts[added].loaded)), "", 0),
        ]
    loaded = sum(name in ("torch", "ignite") for name in scripts[VALIDATED].loaded)
    figures.append(Figure("validate: torch and ignite imported", exactly(loaded), "", 0))

    def together(case: str) -> Spread:
        return rounds.combined(lambda a, b: a + b, BASE, case)

    bars = {"ours": together("... then from ignite_hooks import attach_hooks")}
    bars |= {name: rounds.spread(code) for name, code in PEERS.items() if code in rounds.values}
    limit = rounds.spread("import torch").median
    chart = Chart("imports", "Import, with torch and all it needs", "ms", bars, limit, "import torch")
    about = f"milliseconds in a new interpreter: {count} interleaved rounds"
    return Result(about, "ms", rounds.values, figures, [chart], ",.1f")


if __name__ == "__main__":
    script(measure, __doc__)
