"""A search for tests on several machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def searched(folder: Path, *, epochs: int, **search: Any) -> str:
    """Write a small table and a search of four trials over it, and return the file of the search."""
    (folder / "table.csv").write_text("a,b,kind\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(300)))
    config = {
        "model": {"type": "mlp", "hidden": [4]},
        "dataset": {"type": "csv", "path": str(folder / "table.csv"), "target": "kind"},
        "training": {"epochs": epochs, "batch_size": 64, "optimizer": {"type": "AdamW", "lr": 0.003}},
        "default_hooks": {"checkpoint": {"save_best": True, "best_metric": "val_loss"}, "logger": None},
        "search": {
            "space": {"training.optimizer.lr": {"log": [0.001, 0.1]}, "model.hidden": [[4], [8]]},
            "sampler": "random",
            "trials": 4,
            "cpus": 1,
            "seed": 5,
            **search,
        },
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)
