"""Scripts and notebooks of others do the same with our line and without it.

Each runs three times, in folders of its own: without our line, with an empty list of hooks, and with the default set.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.clients.line import LINES


@dataclass(frozen=True)
class Script:
    """One script with its arguments."""

    path: str
    arguments: tuple[str, ...] = ()
    ranks: int = 1
    smaller: tuple[tuple[str, str], ...] = ()
    """Texts of the script and what they are replaced by, so that it takes seconds and downloads nothing."""
    ending: str = "end"
    """How it ends without our line."""


_CIFAR10 = (
    "run",
    "--data_path=data",
    "--output_path=out",
    "--batch_size=32",
    "--num_epochs=3",
    "--num_warmup_epochs=1",
    "--num_workers=0",
    "--validate_every=1",
    "--checkpoint_every=4",
    "--log_every_iters=2",
)
_MNIST = ("--epochs=2", "--batch_size=32", "--log_interval=2")
_UNET = (
    ("128, 128, 128", "64, 64, 64"),
    ("range(40)", "range(8)"),
    ("images[:20], segs[:20]", "images[:4], segs[:4]"),
    ("images[-20:], segs[-20:]", "images[-2:], segs[-2:]"),
    ("[96, 96, 96]", "[16, 16, 16]"),
    ("(96, 96, 96)", "(16, 16, 16)"),
    ("(16, 32, 64, 128, 256)", "(2, 4, 8)"),
    ("strides=(2, 2, 2, 2)", "strides=(2, 2)"),
    ("num_workers=4", "num_workers=0"),
)
_HANDS = """os.makedirs(os.path.join(extract_dir, "MedNIST", "Hand"), exist_ok=True)
    from PIL import Image
    for number in range(8):
        pixels = np.random.RandomState(number).randint(0, 255, (64, 64), dtype=np.uint8)
        Image.fromarray(pixels).save(os.path.join(extract_dir, "MedNIST", "Hand", f"{number}.png"))"""
_GAN = (
    ("download_and_extract(mednist_url, tar_save_path, extract_dir, md5_value)", _HANDS),
    ("os.listdir(hand_dir)", "sorted(os.listdir(hand_dir))"),
    ("batch_size = 300", "batch_size = 4"),
    ("num_workers=10", "num_workers=0"),
    ("num_epochs = 50", "num_epochs = 3"),
    ("disc_train_steps = 5", "disc_train_steps = 2"),
)
_GUIDES = "ignite-examples/how-to-guides/"

SCRIPTS = (
    Script("ignite/examples/mnist/mnist.py", _MNIST),
    Script("ignite/examples/mnist/mnist_save_resume_engine.py", (*_MNIST, "--checkpoint_every=3", "--log_dir=logs")),
    Script("ignite/examples/mnist/mnist_with_tensorboard.py", (*_MNIST, "--log_dir=logs")),
    Script("ignite/examples/mnist/mnist_with_tqdm_logger.py", ("--epochs=2", "--batch_size=32")),
    Script("ignite/examples/cifar10/main.py", _CIFAR10),
    Script("ignite/examples/cifar10/main.py", (*_CIFAR10, "--stop_iteration=7")),
    Script("ignite/examples/cifar10/main.py", (*_CIFAR10, "--backend=gloo"), ranks=2),
    Script(
        "ignite/examples/gan/dcgan.py",
        (
            "--dataset=fake",
            "--dataroot=.",
            "--workers=0",
            "--epochs=1",
            "--batch-size=2",
            "--g-filters=4",
            "--d-filters=4",
            "--output-dir=out",
        ),
    ),
    Script(
        "ignite/examples/siamese_network/siamese_network.py",
        ("--epochs=2", "--batch-size=32", "--no-cuda"),
    ),
    Script("ignite/examples/super_resolution/main.py", ("--upscale_factor=2", "--crop_size=32", "--threads=0")),
    Script("ignite/examples/reinforcement_learning/reinforce.py", ("--max-episodes=4",)),
    Script("ignite/examples/reinforcement_learning/actor_critic.py", ("--max-episodes=4",)),
    Script(
        "ignite/examples/transformers/main.py",
        ("run", "--batch_size=16", "--num_epochs=3", "--num_warmup_epochs=1", "--num_workers=0", "--output_dir=out"),
    ),
    Script(_GUIDES + "03-time-profiling.ipynb"),
    Script(_GUIDES + "04-fastai-lr-finder.ipynb", smaller=(("batch_size=128", "batch_size=4"),)),
    Script(_GUIDES + "06-data-iterator.ipynb"),
    Script(_GUIDES + "07-cross-validation.ipynb"),
    Script(_GUIDES + "08-custom-events.ipynb"),
    Script(_GUIDES + "09-switch-data-training.ipynb"),
    Script(_GUIDES + "11-load-checkpoint.ipynb"),
    Script("ignite-examples/tutorials/beginner/01-getting-started.ipynb"),
    Script("ignite/examples/notebooks/HandlersTimeProfiler_MNIST.ipynb"),
    Script("ignite/examples/notebooks/VAE.ipynb"),
    Script("monai-tutorials/modules/engines/unet_training_dict.py", smaller=_UNET),
    Script("monai-tutorials/modules/engines/gan_training.py", smaller=_GAN),
)


def differences(source: Path, script: Script, root: Path) -> Iterator[str]:
    """Run a script with every line and yield what differs from the run without."""
    records = {line: list(_records(source, script, line, root / line)) for line in LINES}
    plain = records.pop("none")
    for number, record in enumerate(plain):
        if record["ending"] != script.ending:
            yield f"none, rank {number}: {record['ending']}"
        if not record["events"]:
            yield f"none, rank {number}: no event was fired"
    for line, others in records.items():
        for number, (one, other) in enumerate(zip_longest(plain, others, fillvalue={})):
            for what in ("ending", "steps", "events"):
                if one.get(what) != other.get(what):
                    yield f"{line}, rank {number}: {what}: {_first_difference(one.get(what), other.get(what))}"


def _first_difference(one: Any, other: Any) -> str:
    if not isinstance(one, list) or not isinstance(other, list):
        return f"{one!r}, with our line {other!r}"
    at = next(n for n, (a, b) in enumerate(zip_longest(one, other)) if a != b)
    return f"number {at} of {len(one)} and {len(other)}: {one[at : at + 3]}, with our line {other[at : at + 3]}"


def _records(source: Path, script: Script, line: str, folder: Path) -> Iterator[dict[str, Any]]:
    folder.mkdir(parents=True)
    (folder / "samples").mkdir()
    command = [sys.executable, "-m"]
    if script.ranks > 1:
        command += ["torch.distributed.run", "--standalone", f"--nproc-per-node={script.ranks}", "-m"]
    out = folder / "record.json"
    path = source / script.path
    if script.smaller:
        text = path.read_text(encoding="utf-8")
        for long, short in script.smaller:
            if long not in text:
                raise ValueError(f"{path} has no {long!r}: it has changed")
            text = text.replace(long, short)
        path = folder / path.name
        path.write_text(text, encoding="utf-8")
    command += ["tests.clients.record", "--line", line, "--out", str(out), str(path), *script.arguments]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH", "")])),
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
    }
    with (folder / "output.txt").open("wb") as output:
        subprocess.run(
            command, cwd=folder, env=variables, stdout=output, stderr=subprocess.STDOUT, timeout=900, check=False
        )
    ranks = [""] if script.ranks == 1 else [str(rank) for rank in range(script.ranks)]
    for rank in ranks:
        path = Path(f"{out}{rank}")
        if path.exists():
            yield json.loads(path.read_text())
        else:
            text = (folder / "output.txt").read_text(errors="replace")
            yield {"ending": f"no record: {text[-300:]}", "steps": [], "events": []}


def main(source: Path, chosen: str = "") -> int:
    """Run all scripts whose path has the chosen text; return how many differ."""
    bad = 0
    for number, script in enumerate(SCRIPTS):
        if chosen not in script.path:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = list(differences(source, script, Path(folder)))
            if found and (keep := os.environ.get("CLIENTS_KEEP")):
                import shutil

                shutil.copytree(folder, Path(keep) / str(number), dirs_exist_ok=True)
        bad += bool(found)
        name = " ".join([script.path, *(["on 2 ranks"] if script.ranks > 1 else []), *script.arguments[-1:]])
        print("differs" if found else "same   ", name, flush=True)
        for each in found:
            print("   ", each, flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(bool(main(Path(os.environ["CLIENTS_SOURCES"]), *sys.argv[1:2])))
