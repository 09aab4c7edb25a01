"""The same metrics on one process and on several."""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import ignite.metrics
import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from ignite_hooks import attach_hooks
from ignite_hooks.distributed.collectives import rank, world_size
from ignite_hooks.distributed.metric_merging import SharedEvaluation
from ignite_hooks.measure.results import Result
from ignite_hooks.measure.score_metrics import Calibration, ClassAP, PrecisionRecall, Roc
from ignite_hooks.measure.worst import Worst
from tests.measure.foreign import Mergeable, Reduced
from tests.ranks import run_ranks

pytestmark = pytest.mark.slow

CLASSES = 7
SIZES = (5, 7, 64)
COUNTS = ("accuracy", "top3", "confusion", "samples")
"""What is counted, and has to be equal to the last digit."""


class Squares(ignite.metrics.Metric):
    """A metric of a script."""

    _state_dict_all_req_keys = ("_largest", "_total")

    def reset(self) -> None:
        self._largest: Any = -1.0
        self._total: Any = 0

    def update(self, output: Any) -> None:
        squares = output[0].square()
        self._largest = torch.maximum(torch.as_tensor(self._largest), squares.max())
        self._total = self._total + len(squares)

    @ignite.metrics.metric.sync_all_reduce("_largest:MAX", "_total")
    def compute(self) -> Any:
        return float(self._largest) + float(self._total)


class Median(ignite.metrics.EpochMetric):
    """A metric that has to see everything at once."""

    def __init__(self) -> None:
        super().__init__(lambda y_pred, y: float(y_pred.max(dim=1).values.median()), check_compute_fn=False)


class Gathers(ignite.metrics.Metric):
    """A metric that can only be merged by itself."""

    def reset(self) -> None:
        self._seen: list[float] = []

    def update(self, output: Any) -> None:
        self._seen += output[1].tolist()

    def compute(self) -> int:
        import ignite.distributed as idist

        found: Any = idist.all_gather(self._seen) if world_size() > 1 else [self._seen]
        return sum(len(seen) for seen in found)


def one_hot(output: Any) -> Any:
    return output[0], torch.nn.functional.one_hot(output[1], CLASSES).float()


def all_metrics() -> dict[str, Any]:
    precision, recall = ignite.metrics.Precision(average=False), ignite.metrics.Recall(average=False)
    matrix = ignite.metrics.ConfusionMatrix(CLASSES)
    return {
        "accuracy": ignite.metrics.Accuracy(),
        "loss": ignite.metrics.Loss(torch.nn.functional.cross_entropy),
        "precision": precision,
        "recall": recall,
        "weighted": ignite.metrics.Precision(average="weighted"),
        "f1": (2 * precision * recall / (precision + recall + 1e-9)).mean(),
        "top3": ignite.metrics.TopKCategoricalAccuracy(k=3),
        "mse": ignite.metrics.MeanSquaredError(output_transform=one_hot),
        "confusion": matrix,
        "iou": ignite.metrics.mIoU(matrix),
        "squares": Squares(),
        "median": Median(),
        "samples": Gathers(),
    }


def data_of(size: int) -> TensorDataset:
    random = torch.Generator().manual_seed(size)
    return TensorDataset(torch.randn(size, 4, generator=random), torch.randint(CLASSES, (size,), generator=random))


def network() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, CLASSES))


def evaluated(loader: Any, hook: dict[str, Any], model: torch.nn.Module, evaluator: Engine | None = None) -> Any:
    trainer = Engine(lambda engine, batch: None)
    runner = attach_hooks(
        trainer,
        [hook],
        evaluators=evaluator,
        work_dir=tempfile.mkdtemp(),
        model=model,
        val_loader=loader,
        criterion=torch.nn.functional.cross_entropy,
    )
    found = runner.validate()
    runner.detach()
    return {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in sorted(found.items())}


def loaders(size: int) -> dict[str, Any]:
    data = data_of(size)
    found: dict[str, Any] = {
        "plain": DataLoader(data, batch_size=4),
        "shuffled": DataLoader(data, batch_size=4, shuffle=True),
        "one batch": DataLoader(data, batch_size=64),
        "drawn": DataLoader(
            data, batch_size=2, sampler=WeightedRandomSampler(torch.ones(size), 6, generator=torch.Generator())
        ),
        "of batches": DataLoader(data, batch_sampler=[[0, 1, 2], [3], [4]]),
    }
    if world_size() > 1:
        # As scripts for several processes have it; what it pads would be counted twice.
        found["plain"] = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
    return found


def each(scripts_own: bool) -> dict[str, Any]:
    """Return what every kind of loader yields, for every size."""
    found = {}
    for size in SIZES:
        for kind, loader in loaders(size).items():
            model = network()
            torch.manual_seed(5)
            if scripts_own:
                evaluator = create_supervised_evaluator(model, all_metrics())
                found[f"{size} {kind}"] = evaluated(loader, {"type": "EvalHook"}, model, evaluator)
            else:
                hook = {"type": "DistEvalHook", "metrics": all_metrics()}
                found[f"{size} {kind}"] = evaluated(loader, hook, model)
    return found


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("scripts_own", [False, True])
def test_metrics_equal_those_of_one_process_for_any_loader(scripts_own: bool, ranks: int) -> None:
    wanted = each(scripts_own)
    for found in run_ranks(each, scripts_own, ranks=ranks):
        for case, metrics in wanted.items():
            for name, value in metrics.items():
                if name in COUNTS:
                    assert found[case][name] == value, (case, name)
                else:
                    assert found[case][name] == pytest.approx(value, rel=1e-6, abs=1e-6, nan_ok=True), (case, name)


def of_torchmetrics() -> dict[str, Any]:
    """Return metrics of the real library, where it is installed."""
    if importlib.util.find_spec("torchmetrics") is None:
        return {}
    import torchmetrics

    how: Any = {"task": "multiclass", "num_classes": CLASSES}
    return {
        "torch_confusion": torchmetrics.ConfusionMatrix(**how),
        "torch_calibration": torchmetrics.CalibrationError(**how),
        "torch_f1": torchmetrics.F1Score(**how),
        "torch_roc": torchmetrics.ROC(**how),
        "torch_pr": torchmetrics.PrecisionRecallCurve(**how, thresholds=20),
    }


def of_results() -> dict[str, Any]:
    """Return what is more than a number, for data that no number of ranks divides."""
    found = {}
    for size in (*SIZES, 41):
        metrics = {
            "confusion": ignite.metrics.ConfusionMatrix(CLASSES),
            "roc": Roc(),
            "pr": PrecisionRecall(),
            "ap": ClassAP(),
            "calibration": Calibration(),
            "worst": Worst(4),
            "reduced": Reduced(),
            "mergeable": Mergeable(),
            **of_torchmetrics(),
        }
        hook = {"type": "DistEvalHook", "metrics": metrics}
        with warnings.catch_warnings():
            # torchmetrics warns of classes that do not occur, of which there are some.
            warnings.filterwarnings("ignore", "No (positive|negative) samples")
            measured = evaluated(DataLoader(data_of(size), batch_size=3), hook, network())
        found[str(size)] = {
            name: {**one.to_json(), "numbers": dict(one.numbers)} if isinstance(one, Result) else plain(one)
            for name, one in measured.items()
        }
    return found


def plain(value: Any) -> Any:
    """Return tensors as numbers of Python, also within a mapping."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value.tolist() if isinstance(value, torch.Tensor) else value


def flattened(value: Any, place: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {key: one for name, item in value.items() for key, one in flattened(item, f"{place}/{name}").items()}
    if isinstance(value, list):
        return flattened(dict(enumerate(value)), place)
    return {place: value}


@pytest.mark.parametrize("ranks", [2, 3])
def test_matrices_curves_and_tables_equal_those_of_one_process(ranks: int) -> None:
    wanted = flattened(of_results())
    counted = {place for place in wanted if re.search("/(confusion|totals|counts|torch_confusion)/", place)}
    assert len(counted) > 4 * CLASSES * CLASSES
    for found in run_ranks(of_results, ranks=ranks):
        mine = flattened(found)
        assert mine.keys() == wanted.keys()
        assert {place: mine[place] for place in counted} == {place: wanted[place] for place in counted}
        floats = {place: value for place, value in wanted.items() if isinstance(value, float)}
        ours = {place: value for place, value in floats.items() if "/torch_" not in place}
        assert {place: mine[place] for place in ours} == pytest.approx(ours, rel=1e-12, abs=1e-12, nan_ok=True)
        # torchmetrics computes in single precision, in the order of the samples.
        assert {place: mine[place] for place in floats} == pytest.approx(floats, rel=1e-6, abs=1e-6, nan_ok=True)
        assert all(mine[place] == value for place, value in wanted.items() if place not in floats)


def with_ddp() -> dict[str, Any]:
    found: dict[str, Any] = {}
    torch.manual_seed(rank())
    model = DistributedDataParallel(network())
    # Each rank has counted something else.
    model(torch.randn(4, 4) + rank())
    loader = DataLoader(data_of(5), batch_size=1)
    hook = {"type": "DistEvalHook", "metrics": {"loss": {"type": "Loss", "loss_fn": "criterion"}}, "metric": "loss"}
    found["own"] = evaluated(loader, hook, model)
    model.train()
    model(torch.randn(4, 4) + rank())
    evaluator = create_supervised_evaluator(model, {"loss": ignite.metrics.Loss(torch.nn.functional.cross_entropy)})
    found["script's"] = evaluated(loader, {"type": "DistEvalHook", "metric": "loss"}, model, evaluator)
    found["mean"] = model.module[1].running_mean.tolist()
    found["syncs again"] = model.require_forward_param_sync
    return found


def test_ranks_under_ddp_may_differ_by_a_batch() -> None:
    found = run_ranks(with_ddp)
    assert found[0] == found[1]
    assert found[0]["syncs again"] is True


def of_a_function(gather: str) -> dict[str, Any]:
    seen = []

    def test_fn(model: Any, loader: Any) -> dict[str, float]:
        count = sum(len(x) for x, _ in loader)
        seen.append(count)
        return {"accuracy": float(rank()), "count": float(count)}

    hook = {"type": "DistEvalHook", "test_fn": test_fn, "gather": gather}
    return {"metrics": evaluated(DataLoader(data_of(5), batch_size=1), hook, network()), "seen": seen}


@pytest.mark.parametrize(
    ("gather", "accuracy", "count", "seen"),
    [("average", 2 / 5, 3 * 3 / 5 + 2 * 2 / 5, [[3], [2]]), ("first", 0.0, 5.0, [[5], [5]])],
)
def test_a_test_function_is_averaged_or_taken_from_rank_0(
    gather: str, accuracy: float, count: float, seen: list[list[int]]
) -> None:
    found = run_ranks(of_a_function, gather)
    assert [each["seen"] for each in found] == seen
    for each_rank in found:
        assert each_rank["metrics"] == pytest.approx({"accuracy": accuracy, "count": count})


def fails_in_a_function(gather: str, folder: str, talks: bool = False) -> str:
    def test_fn(model: Any, loader: Any) -> dict[str, float]:
        if rank() == 1:
            raise ValueError("boom")
        if talks:
            torch.distributed.all_reduce(torch.ones(1))
        return {"accuracy": 1.0}

    hook = {"type": "DistEvalHook", "test_fn": test_fn, "gather": gather}
    trainer = Engine(lambda engine, batch: None)
    loader = DataLoader(data_of(5), batch_size=1)
    attach_hooks(trainer, [hook], work_dir=folder, model=network(), val_loader=loader)
    try:
        trainer.run([1, 2])
    except Exception as error:
        # Rank 1 lives on until rank 0 has ended its run.
        words = "\n".join([str(error), *getattr(error, "__notes__", [])])
        with open(f"{folder}/pipe", "w" if rank() == 0 else "r", encoding="utf-8") as pipe:
            return words if pipe.writable() else words + pipe.read()
    return "no error"


@pytest.mark.parametrize("gather", ["average", "first"])
def test_a_failure_of_a_test_function_is_told_to_the_other_ranks_at_once(gather: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    told, failed = run_ranks(fails_in_a_function, gather, str(tmp_path))
    assert "RankError: rank 1 has failed: ValueError: boom" in told
    assert "after_train_epoch failed at epoch 1, iteration 2: ValueError: boom" in failed


@pytest.mark.parametrize("gather", ["average", "first"])
def test_ranks_that_talk_in_a_test_function_do_not_wait_for_one_that_has_failed(gather: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    told, failed = run_ranks(fails_in_a_function, gather, str(tmp_path), True)
    assert "has left the run: ValueError: boom: this rank cannot go on without it" in told
    assert "after_train_epoch failed at epoch 1, iteration 2: ValueError: boom" in failed


def messages(*names: str) -> dict[str, int]:
    """Return the collectives of an evaluation with these metrics."""
    import torch.distributed as dist

    counted = {"all_gather": 0, "all_reduce": 0, "broadcast": 0}

    def counting(name: str) -> Any:
        real = getattr(dist, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            counted[name] += 1
            return real(*args, **kwargs)

        return call

    counters = {name: metric for name, metric in all_metrics().items() if name in names}
    model, loader = network(), DataLoader(data_of(64), batch_size=4)
    hook = {"type": "DistEvalHook", "metrics": counters, "broadcast_buffers": False}
    trainer = Engine(lambda engine, batch: None)
    runner = attach_hooks(trainer, [hook], work_dir=tempfile.mkdtemp(), model=model, val_loader=loader)
    for name in counted:
        setattr(dist, name, counting(name))
    runner.validate()
    return counted


def test_all_counters_go_in_one_message() -> None:
    counters = set(all_metrics()) - {"samples", "median", "squares"}
    assert run_ranks(messages, *counters) == [{"all_gather": 1, "all_reduce": 0, "broadcast": 0}] * 2


def test_a_metric_of_a_script_reduces_its_own_state() -> None:
    assert run_ranks(messages, "squares", "accuracy") == [{"all_gather": 1, "all_reduce": 2, "broadcast": 0}] * 2


def left_as_they_were() -> list[Any]:
    accuracy = ignite.metrics.Accuracy()
    evaluator = Engine(lambda engine, batch: batch)
    accuracy.attach(evaluator, "accuracy")
    evaluator.run([(torch.eye(CLASSES)[: rank() + 1], torch.zeros(rank() + 1, dtype=torch.int64))])
    own = accuracy._num_examples
    shared = SharedEvaluation(evaluator)
    shared.merge()
    together = accuracy._num_examples
    value = accuracy.compute()
    shared.restore()
    return [own, together, value, accuracy._num_examples, "compute" in vars(accuracy)]


def test_a_metric_has_its_own_state_after_the_evaluation() -> None:
    assert run_ranks(left_as_they_were) == [[1, 3, 2 / 3, 1, False], [2, 3, 2 / 3, 2, False]]


def in_training() -> dict[str, Any]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(engine: Engine, batch: Any) -> float:
        model.train()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)
    seen: list[Any] = []
    hook = {"type": "EvalHook", "by_epoch": False, "interval": 2, "evaluate_at_start": True}
    runner = attach_hooks(
        trainer, [hook], work_dir=tempfile.mkdtemp(), model=model, val_loader=DataLoader(data_of(7), batch_size=2)
    )
    runner.evaluators["val"].add_event_handler(Events.STARTED, lambda: seen.append(trainer.state.iteration))
    trainer.run(DataLoader(data_of(20), batch_size=4), max_epochs=1)
    return {"seen": seen, "best": runner.best["accuracy"].score, "training": model.training}


def test_evaluations_in_training_are_those_of_one_process() -> None:
    alone = in_training()
    assert alone["seen"] == [0, 2, 4, 5]
    assert run_ranks(in_training) == [alone, alone]


def sharded() -> Any:
    """Return a model of which each rank has a part, so that every forward pass needs both."""
    from torch.distributed.fsdp import fully_shard

    model = network()
    if world_size() > 1:
        fully_shard(model)
    hook = {"type": "DistEvalHook", "metrics": {"loss": {"type": "Loss", "loss_fn": "criterion"}}, "metric": "loss"}
    return {str(size): evaluated(DataLoader(data_of(size), batch_size=2), hook, model) for size in (1, 5, 8)}


def test_a_sharded_model_allows_one_batch_less() -> None:
    wanted = sharded()
    for found in run_ranks(sharded):
        for size, metrics in wanted.items():
            assert found[size] == pytest.approx(metrics, rel=1e-6)
