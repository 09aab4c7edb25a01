"""`ray_tasks.py` on real clusters of Ray with two nodes, and `PruningHook` in real trials of Ray Tune: ``make ray``."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks import ConfigError, attach_hooks
from ignite_hooks.hooks.training.pruning_hook import PruningHook
from ignite_hooks.search.from_config import ConfigSearch
from ignite_hooks.search.ray_tasks import RayTasks
from ignite_hooks.search.study import SearchResult
from ignite_hooks.trainer.search_section import SearchSection
from tests.faults.tools import until
from tests.hooks.training.test_pruning_hook import CHECKPOINT, evaluating_trainer, result
from tests.search.searched import searched

# Before it is imported: clusters stay on the loopback, and nothing is told or kept at home.
os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
ray = pytest.importorskip("ray", reason="Ray is not installed: make ray")
pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(600),
    # Its own, in processes and files that it leaves open.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.1"}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start a cluster of two nodes with a core each, and end it and what it has started."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    made.second = made.add_node(**NODE, resources={"second": 1})
    made.wait_for_nodes()
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    yield made
    ray.shutdown()
    made.shutdown()


written = functools.partial(searched, epochs=2, keep=1)


def tried(found: SearchResult) -> list[Any]:
    return sorted((row.index, json.dumps(row.values), row.value) for row in found.trials if not row.repeated)


@pytest.mark.parametrize("sampler", ["random", "grid"])
def test_one_process_two_and_a_cluster_that_loses_a_node_find_the_same(
    cluster: Any, tmp_path: Path, sampler: str
) -> None:
    lr = {"training.optimizer.lr": [0.001, 0.01], "model.hidden": [[4], [8]]}
    config = written(tmp_path, epochs=20, sampler=sampler, **({"space": lr} if sampler == "grid" else {}))
    said: list[str] = []

    def search(name: str, *settings: str) -> SearchResult:
        return ConfigSearch(config, settings, tmp_path / name, said.append).run()

    def lose_a_node() -> None:
        # Both nodes have a trial, and one of them has trained for a while.
        trials = tmp_path / "cluster" / "trials"
        until(lambda: all(list((trials / f"000{n}").glob("epoch_*.pth")) for n in (0, 1)), 300)
        cluster.remove_node(cluster.second, allow_graceful=False)

    one, two = search("one", "search.jobs=1"), search("two", "search.jobs=2")
    loses = threading.Thread(target=lose_a_node)
    loses.start()
    on_cluster = search("cluster", "search.jobs=2", "search.engine=ray")
    loses.join()
    assert sum(row.repeated for row in on_cluster.trials) == 1, said
    assert tried(one) == tried(two) == tried(on_cluster)
    assert one.best is not None
    assert two.best is not None
    assert on_cluster.best is not None
    assert one.best.values == two.best.values == on_cluster.best.values
    best = tmp_path / "cluster" / "trials" / f"{on_cluster.best.number:04}"
    assert result(best)["best"]["val_loss"]["value"] == one.best.value
    assert {path.parent for path in (tmp_path / "cluster").rglob("*.pth")} == {best}
    assert (tmp_path / "cluster" / "search.html").is_file()


def test_trials_of_a_cluster_are_pruned(cluster: Any, tmp_path: Path) -> None:
    pruner = {"type": "ThresholdPruner", "upper": 0.0}
    found = ConfigSearch(written(tmp_path, engine="ray", pruner=pruner, trials=2), folder=tmp_path / "search").run()
    assert [(row.state, row.reports) for row in found.trials] == [("pruned", 1)] * 2
    assert result(tmp_path / "search" / "trials" / "0000")["kind"] == "pruned"


def test_what_fails_on_a_node_fails_and_is_not_repeated(cluster: Any, tmp_path: Path) -> None:
    config = written(tmp_path, engine="ray", trials=1)
    search = ConfigSearch(config, folder=tmp_path / "search", say=lambda line: None)
    (tmp_path / "table.csv").unlink()
    found = search.run()
    assert [(row.state, row.repeated) for row in found.trials] == [("failed", False)]
    assert "table.csv" in (tmp_path / "search" / "trials" / "0000.log").read_text()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_search_that_ends_leaves_no_trial_and_goes_on(cluster: Any, tmp_path: Path, end: signal.Signals) -> None:
    config, folder = written(tmp_path, epochs=60, engine="ray", jobs=2, trials=2), tmp_path / "search"
    command = [sys.executable, "-m", "ignite_hooks", "search", config, "--work-dir", str(folder)]
    search = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until(lambda: len(list(folder.glob("trials/*/epoch_1.pth"))) == 2, 300)
    search.send_signal(end)
    search.wait(120)
    until(lambda: not [pid for pid in Path("/proc").glob("[0-9]*") if is_trial_of(pid, folder)], 60)
    found = ConfigSearch(config, ["search.engine=local"], folder, lambda line: None).run()
    assert (found.count("finished"), sum(row.repeated for row in found.trials)) == (2, 2)


def is_trial_of(process: Path, folder: Path) -> bool:
    """Return whether a process is a trial of a search: it has its log open."""
    try:
        return Path(os.readlink(process / "fd" / "1")).parent == folder / "trials"
    except OSError:
        return False


@pytest.mark.parametrize(("address", "words"), [("127.0.0.1:1", "no Ray cluster at"), ("ray://h:1", "of a client")])
def test_a_cluster_that_is_not_there_is_explained_at_once(address: str, words: str, tmp_path: Path) -> None:
    config = written(tmp_path, engine={"type": "ray", "address": address})
    with pytest.raises(ConfigError, match=rf"search\.engine: .*{words}"):
        ConfigSearch(config, folder=tmp_path / "search").run()


def test_a_cluster_without_room_is_said(cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    engine = RayTasks(SearchSection({"a": [1]}, cpus=7, gpus=1, engine="ray"))
    assert "no machine of the Ray cluster has 7 CPUs and 1 GPUs" in caplog.text
    engine.close()


def test_a_trial_of_tune_that_is_stopped_ends_in_good_order(cluster: Any, tmp_path: Path) -> None:
    from ray.train._internal.storage import StorageContext
    from ray.tune.trainable import wrap_function

    seen: dict[str, Any] = {}
    over = threading.Event()

    def train(config: dict[str, Any]) -> None:
        before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        trainer, evaluator = evaluating_trainer()
        hooks = [PruningHook(report=ray.tune.report), CHECKPOINT]
        model = torch.nn.Linear(1, 1)
        attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=config["folder"], model=model)
        seen["main"] = threading.current_thread() is threading.main_thread()
        try:
            trainer.run(range(3), max_epochs=9)
        except BaseException as error:
            seen["left"] = error
            raise
        finally:
            seen["handlers"] = before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
            over.set()

    ray.init(log_to_driver=False)  # here, where it ends no process that is still saving
    place = StorageContext(storage_path=str(tmp_path / "tune"), experiment_dir_name="tried", trial_dir_name="first")
    trial = wrap_function(train)(config={"folder": str(tmp_path)}, storage=place)
    reported = [trial.train()["val_loss"] for _ in range(3)]
    trial.stop()
    assert over.wait(60)
    assert reported == [1.0, 2.0, 3.0]
    assert (seen["main"], type(seen["left"]), seen["handlers"]) == (False, SystemExit, True)
    found = result(tmp_path)
    assert [found[name] for name in ("state", "kind", "reason")] == [
        "stopped",
        "pruned",
        "pruned by the search at val_loss 3",
    ]
    assert (tmp_path / "last.pth").exists()
    assert not list(tmp_path.glob("exception*"))
