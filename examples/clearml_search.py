"""Search two settings of a ClearML task by clones of it, which agents train, or this machine one after another.

It needs a server: ``pip install 'ignite-hooks[clearml]'`` and ``clearml-init``. First make a task to begin from, then
search over it; the settings have the names that the page of the task shows.

    ignite-hooks train configs/clearml.yaml
    python examples/clearml_search.py ID_OF_THE_TASK --queue default

Without ``--queue`` the clones are trained here. ClearML starts them as files, so that the task has to be that of a
script, such as one that consists of ``BaseTrainer("clearml.yaml").train()``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from clearml import Task
from clearml.automation import DiscreteParameterRange, GridSearch, HyperParameterOptimizer

SPACE = {"Training/optimizer/lr": [0.001, 0.01], "Training/batch_size": [64, 256]}
OBJECTIVE = {"title": "loss", "series": "val", "sign": "min_global"}
"""The best value of a curve: its plot, its name in it, and whether less is better."""


def search(base: Task, queue: str | None, at_once: int) -> list[dict]:
    """Try everything; return a row for each clone, the best one first."""
    optimizer = HyperParameterOptimizer(
        base_task_id=base.id,
        hyper_parameters=[DiscreteParameterRange(name, values) for name, values in SPACE.items()],
        **{f"objective_metric_{name}": value for name, value in OBJECTIVE.items()},
        optimizer_class=GridSearch,
        execution_queue=queue or "none",
        max_number_of_concurrent_tasks=at_once if queue else 1,
        pool_period_min=0.05,  # by default it looks every two minutes
    )
    optimizer.set_report_period(0.25)
    if queue:
        optimizer.start()
    else:
        optimizer.start_locally()
    optimizer.wait()
    found = optimizer.get_top_experiments_details(top_k=100, only_completed=True)
    optimizer.stop()
    return found


def main() -> None:
    """Search, print what was found, and write the configuration of the best."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", help="the id of the task to begin from")
    parser.add_argument("--queue", help="let agents train the clones that they find in it; by default they run here")
    parser.add_argument("--at-once", type=int, default=2, help="clones in the queue at the same time")
    parser.add_argument("--best", type=Path, default=Path("best.yaml"), help="where the best configuration goes")
    options = parser.parse_args()
    base = Task.get_task(options.task)
    if not options.queue and base.data.script.entry_point.startswith("-m"):
        parser.error(f"{base.name} runs a module, which ClearML does not start here: name a --queue")
    Task.init(base.get_project_name(), f"search: {base.name}", Task.TaskTypes.optimizer, reuse_last_task_id=False)
    found = search(base, options.queue, options.at_once)
    name = f"{OBJECTIVE['title']}/{OBJECTIVE['series']}"
    for row in found:
        print(f"{name} {row['metrics'][name]['min_value']:.6f}", row["hyper_parameters"], row["task_id"])
    if found:
        best = Task.get_task(found[0]["task_id"])
        options.best.write_text(best.get_configuration_object("ignite_hooks"))
        print(f"the best trains as it is: {options.best}")


if __name__ == "__main__":
    main()
