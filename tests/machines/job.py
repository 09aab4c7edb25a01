"""What a rank of `make machines` trains: a small network whose every random number matters."""

from __future__ import annotations

import logging
import os
import random
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

SAMPLES = 240
"""Of the training data: 10 iterations of an epoch on two machines, with 12 samples on each."""
BATCH = 12
EPOCHS = 9


def train(
    *, folder: str, rank: int, ranks: int, master: str, port: int, pace: float, timeout: float, settings: dict[str, Any]
) -> None:
    """Train as one rank, going on from the newest checkpoint."""
    os.environ.update(
        MASTER_ADDR=master,
        MASTER_PORT=str(port),
        RANK=str(rank),
        WORLD_SIZE=str(ranks),
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="1",
        GLOO_SOCKET_IFNAME="eth0",
    )
    import ignite.distributed as idist
    import numpy
    import torch
    from ignite.engine import Engine, Events
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    from ignite_hooks import attach_hooks

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    idist.initialize("gloo", timeout=timedelta(seconds=timeout))
    torch.set_num_threads(1)
    torch.manual_seed(1000 + rank)
    random.seed(1000 + rank)
    numpy.random.seed(1000 + rank)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 2))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    dice = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 5, generator=dice)
    data = TensorDataset(x, (x.sum(1) > 0).long(), torch.arange(SAMPLES))
    loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
    seen = Path(folder) / "seen.txt"

    def step(engine: Engine, batch: Any) -> float:
        model.train()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch[0] + 0.01 * random.random()), batch[1])
        loss.backward()
        optimizer.step()
        words = " ".join(map(str, batch[2].tolist()))
        with seen.open("a") as file:
            file.write(f"{engine.state.iteration} {engine.state.epoch} {ranks} {words}\n")
        time.sleep(pace)
        return float(loss.detach())

    trainer = Engine(step)
    saving = {"type": "CheckpointHook", "by_epoch": False, "interval": 2, "max_keep_ckpts": 3, "save_best": False}
    attach_hooks(
        trainer,
        [{**saving, **settings}, {"type": "DistSamplerSeedHook"}],
        model=model,
        optimizer=optimizer,
        work_dir=folder,
        resume="auto",
    )

    @trainer.on(Events.STARTED)
    def begin() -> None:
        print("BEGINS", trainer.state.iteration, flush=True)

    @trainer.on(Events.ITERATION_COMPLETED)
    def say() -> None:
        print("DONE", trainer.state.iteration, flush=True)

    trainer.run(loader, max_epochs=EPOCHS)
    print("ENDED", trainer.state.iteration, flush=True)
    idist.finalize()
