"""Everything that is wrong with a configuration, at once, each with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from ignite_hooks import BaseTrainer, ConfigError
from ignite_hooks.trainer.datasets import Data
from tests.trainer.tools import blobs, config

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no section of a trainer": ({"modle": "cnn"}, "modle: not a section of a trainer, did you mean 'model'?"),
    "nearly a key of hooks": ({"hoks": []}, "hoks: not a key of ours, did you mean 'hooks'?"),
    "no model": ({"model": None}, "model: missing: a trainer needs it, as model: cnn"),
    "an unknown model": ({"model": "cnnn"}, "model.type: no model is called 'cnnn', did you mean 'cnn'?"),
    "a setting of another name": (
        {"model": {"type": "mlp", "hiden": [3]}},
        "model.hiden: not a setting of MLP, did you",
    ),
    "a setting of another type": (
        {"model": {"type": "mlp", "hidden": "many"}},
        "model.hidden: a list of whole numbers",
    ),
    "a model without type": ({"model": {"channels": [3]}}, "model: needs 'type', the name of a model: CNN, Detector"),
    "what only the model knows": (
        {"model": {"type": "vit", "patch_size": 3}},
        "model.patch_size: images of 4 x 4 cannot be cut into patches of 3",
    ),
    "an unknown data set": (
        {"dataset": "digit"},
        "dataset.type: no data set is called 'digit', did you mean 'digits'?",
    ),
    "data that is not there": (
        {"dataset": {"type": "cifar10", "root": "/no"}},
        "dataset.root: there is nothing of it in",
    ),
    "no epochs": ({"training": {"epochs": 0}}, "training.epochs: a whole number of at least 1 is needed, not 0"),
    "a word of the training": (
        {"training": {"epoch": 3}},
        "training.epoch: not a setting of Training, did you mean 'ep",
    ),
    "an unknown optimizer": (
        {"training": {"optimizer": "Adm"}},
        "training.optimizer.type: no optimizer is called 'Adm',",
    ),
    "a setting of it": (
        {"training": {"optimizer": {"type": "SGD", "lrr": 1}}},
        "training.optimizer.lrr: not a setting of",
    ),
    "no type, misspelt": (
        {"training": {"optimizer": {"typ": "SGD"}}},
        "training.optimizer: needs 'type', the name of an optimizer: ASGD, Adadelta, Adagrad, Adam, AdamW, Adamax ...; "
        "'typ' is not it",
    ),
    "what it fails on": (
        {"training": {"optimizer": {"type": "SGD", "lr": "abc"}}},
        "training.optimizer: SGD cannot be made with {'lr': 'abc'}: TypeError: '<' not supported",
    ),
    "an unknown scheduler": (
        {"training": {"scheduler": "Cosine"}},
        "no scheduler is called 'Cosine'; there are ConstantLR, CosineAnnealingLR,",
    ),
    "what it refuses": ({"training": {"optimizer": {"type": "SGD", "lr": -1}}}, "training.optimizer: Invalid learning"),
    "a scheduler without": (
        {"training": {"scheduler": "StepLR"}},
        "training.scheduler.step_size: missing: StepLR needs",
    ),
    "its words": (
        {"training": {"scheduler": {"type": "StepLR", "step_size": 1, "by_epoch": 3}}},
        "scheduler.by_epoch: t",
    ),
    "a loss": ({"training": {"criterion": "CrossEntropy"}}, "training.criterion.type: no criterion is called"),
    "a norm": ({"training": {"clip_grad": {"norm_type": 1}}}, "training.clip_grad.max_norm: missing"),
    "no device": ({"training": {"device": "gpu"}}, "training.device: cpu, cuda, cuda:0 or mps is needed, not 'gpu'"),
    "two seeds": ({"seed": 1}, "seed: training.seed says 0: give one of them"),
    "a metric": ({"evaluation": {"metrics": ["acuracy"]}}, "evaluation.metrics[0].type: no metric is called 'acuracy'"),
    "a word of evaluation": (
        {"evaluation": {"metric": "loss"}},
        "evaluation.metric: not a setting of Evaluation, did you",
    ),
    "a module": ({"imports": ["no_such_module"]}, "imports[0]: 'no_such_module' cannot be imported"),
    "no list of modules": ({"imports": "os"}, "imports: a list of modules is needed, not 'os'"),
    "a class that is not there": (
        {"imports": ["json"], "model": "json:Net"},
        "model.type: json has no class or function",
    ),
    "a path without imports": (
        {"model": "torch.nn.Linear"},
        "for one of your own: imports: [torch.nn] and type: torch.n",
    ),
    "no module of torch": ({"imports": ["json"], "model": "json:dumps"}, "model.obj: missing: dumps needs it"),
    "a hook": ({"hooks": [{"type": "LoggerHook", "intervall": 1}]}, "hooks[0].intervall: not a setting of LoggerHook"),
}


@pytest.mark.parametrize(("sections", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_reported_with_its_place(sections: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        BaseTrainer(config(**sections), work_dir=tmp_path)
    assert message in str(caught.value)
    assert len(caught.value.problems) == 1, caught.value
    assert list(tmp_path.iterdir()) == []


def nothing() -> TensorDataset:
    return TensorDataset(torch.zeros(0, 1, 4, 4), torch.zeros(0, dtype=torch.int64))


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "nothing to learn from": ({"dataset": {"type": nothing}}, "dataset: nothing: its part 'train' is empty"),
    "nothing to test with": (
        {"dataset": {"type": lambda: Data(blobs().train, test=nothing(), num_classes=4, shape=(1, 4, 4))}},
        "its part 'test' is empty: leave it out",
    ),
    "a model of another task": (
        {"dataset": "digits", "model": "segmenter"},
        "model.type: Segmenter is for segmentation, and digits are for classification: CNN, MLP or ViT is needed",
    ),
    "data of another task": (
        {"dataset": {"type": "digits_detection", "count": 10}, "model": "cnn"},
        "model.type: CNN is for classification, and digits_detection are for detection: Detector is needed",
    ),
}


@pytest.mark.parametrize(("sections", "message"), UNFIT.values(), ids=UNFIT)
def test_what_would_fail_in_the_run_is_reported_before(sections: dict[str, Any], message: str, tmp_path: Path) -> None:
    if "digits" in str(sections):
        pytest.importorskip("sklearn")
    with pytest.raises(ConfigError) as caught:
        BaseTrainer(config(**sections), work_dir=tmp_path)
    assert message in str(caught.value)


def test_data_without_a_part_for_the_test_says_so(tmp_path: Path) -> None:
    trainer = BaseTrainer(
        config(dataset={"type": lambda: Data(blobs().train, num_classes=4, shape=(1, 4, 4))}), work_dir=tmp_path
    )
    with pytest.raises(ConfigError, match="the data set has no part 'test', and no hook evaluates one of this name"):
        trainer.test()


def test_a_module_that_cannot_be_imported_is_not_proposed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not listed under imports: write imports: \[my_models\]"):
        BaseTrainer(config(imports=["my_modles"], model="my_models:Net"), work_dir=tmp_path)


def test_all_problems_are_reported_at_once_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("model: cnnn\ndataset: digit\ntraining: {epoch: 3}\nhooks: [{type: LogerHook}]\n")
    with pytest.raises(ConfigError) as caught:
        BaseTrainer(path, overrides=["training.optimizer.type=Adm", "hooks.7.interval=1"])
    places = [problem.place for problem in caught.value.problems]
    assert places == [
        "--set hooks.7.interval",
        "training.epoch",
        "model.type",
        "dataset.type",
        "training.optimizer.type",
        "hooks[0].type",
    ]
    assert caught.value.source == str(path)


def test_an_unknown_key_is_noted_and_left_alone(tmp_path: Path) -> None:
    trainer = BaseTrainer(config(project={"owner": "me"}), work_dir=tmp_path)
    assert trainer.sections.notes == ["project: nothing of ours reads it"]
    assert trainer.config["project"] == {"owner": "me"}
