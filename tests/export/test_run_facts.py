from __future__ import annotations

from pathlib import Path

import torch

from ignite_hooks import attach_hooks
from ignite_hooks.checkpoint.delivered import deliver
from ignite_hooks.export.run_facts import facts_of, figures_of
from ignite_hooks.run.state import Delivered
from ignite_hooks.testing import tiny_trainer


def test_secrets_and_the_machine_stay_out_of_the_facts(tmp_path: Path) -> None:
    trainer, data = tiny_trainer()
    config = {"api_key": "k-12345678", "model": {"type": "tiny"}, "work_dir": "/home/me", "dataset": "toys"}
    runner = attach_hooks(
        trainer, [{"type": "LoggerHook", "interval": 1}], work_dir=tmp_path, config=config, class_names=["a", "b"]
    )
    trainer.run(data, max_epochs=2)
    facts = facts_of(runner, "the last weights", preprocessing={"token": "k-12345678"})
    assert "k-12345678" not in repr(facts)
    assert str(Path.cwd()) not in repr(facts)
    assert facts.configuration["model"] == {"type": "tiny"}
    assert (facts.data, facts.class_names, facts.progress) == ("toys", ["a", "b"], "2 epochs, 6 iterations")
    assert "work_dir" not in facts.configuration
    assert facts.curves is not None
    assert facts.curves.startswith(b"\x89PNG")


def test_figures_are_those_of_the_weights_that_are_delivered(tmp_path: Path) -> None:
    trainer, data = tiny_trainer()
    runner = attach_hooks(trainer, [], work_dir=tmp_path, model=torch.nn.Linear(1, 1))
    trainer.run(data, max_epochs=1)
    runner.metrics.publish({"val_loss": 2.0, "test_loss": 3.0}, runner.global_step)
    runner.metrics.publish({"val_old": 9.0}, 1)
    assert figures_of(runner) == {"val": {"loss": 2.0}, "test": {"loss": 3.0}}
    deliver(runner, Delivered("the best val_loss", 1, 2, "val_loss", 1.0))
    assert figures_of(runner)["val"] == {"loss": 1.0}
