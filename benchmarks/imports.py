"""What importing the package costs and loads, and how soon ``ignite-hooks validate`` answers.

Every import happens in a new interpreter; the interpreters take turns. What an import adds is timed after the others in
the same interpreter: the difference of two starts of torch would drown it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measure import Figure, Spread, arguments, interleaved, print_figures, print_table, write_json

MOST_MS = 60.0
VALIDATED = "ignite-hooks validate FILE"

BASE = "import torch, ignite"
ADDED = {
    "import ignite_hooks": "import ignite_hooks",
    "from ignite_hooks import attach_hooks": "from ignite_hooks import attach_hooks",
}

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

VALIDATE = "from ignite_hooks.cli import main; main(['validate', {file!r}])"

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
        """The milliseconds that the code found."""
        done = subprocess.run([sys.executable, "-c", self._code], check=True, capture_output=True, text=True)
        milliseconds, *self.loaded = done.stdout.splitlines()[-1].split()
        return float(milliseconds)


def all_scripts(folder: Path) -> dict[str, Script]:
    """The rows of the table."""
    scripts = {BASE: Script(TIMED.format(before="", timed=BASE, names=UNWANTED))}
    for name, code in ADDED.items():
        scripts[f"... then {name}"] = Script(TIMED.format(before=BASE, timed=code, names=UNWANTED))
    scripts["import ignite_hooks alone"] = Script(TIMED.format(before="", timed="import ignite_hooks", names=UNWANTED))
    if importlib.util.find_spec("ignite_hooks.cli") is None:
        print("no ignite_hooks.cli: `ignite-hooks validate` is not measured\n")
    else:
        file = folder / "config.json"
        file.write_text(json.dumps(CONFIG), encoding="utf-8")
        names = ("torch", "ignite", *UNWANTED)
        scripts[VALIDATED] = Script(TIMED.format(before="", timed=VALIDATE.format(file=str(file)), names=names))
    return scripts


def main() -> None:
    """Measure, print, write."""
    given = arguments(__doc__)
    count = 3 if given.quick else 9
    with tempfile.TemporaryDirectory() as folder:
        scripts = all_scripts(Path(folder))
        cases: dict[str, Callable[[], float]] = {name: script.run for name, script in scripts.items()}
        rounds = interleaved(cases, count)

    print(f"milliseconds in a new interpreter: {count} interleaved rounds\n")
    rows = [
        [name, *rounds.spread(name).text(",.1f"), " ".join(script.loaded) or "none"] for name, script in scripts.items()
    ]
    print_table(["case", "median", "quartiles", "unwanted modules it loads"], rows)

    figures = []
    for name in ADDED:
        added = f"... then {name}"
        share = rounds.combined(lambda a, b: a / b * 100, added, BASE)
        loaded = float(len(scripts[added].loaded))
        figures += [
            Figure(f"{name}, added", rounds.spread(added), "ms", MOST_MS),
            Figure("... of `import torch, ignite`", share, "%"),
            Figure("... trackers, matplotlib, tensorboard among it", Spread(loaded, loaded, loaded), "", 0),
        ]
    if VALIDATED in scripts:
        loaded = float(sum(name in ("torch", "ignite") for name in scripts[VALIDATED].loaded))
        figures.append(Figure("validate: torch and ignite imported", Spread(loaded, loaded, loaded), "", 0))
    print_figures(figures, form=".1f")
    write_json(given.json, rounds, figures)


if __name__ == "__main__":
    main()
