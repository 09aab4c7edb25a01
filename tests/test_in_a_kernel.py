"""Runs in a real kernel of Jupyter, whose cells are run again."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ipykernel")
from tests.kernel import kinds, outputs_of, printed

pytestmark = pytest.mark.slow

PANEL = "text/html+text/plain"
SETUP = """
    import gc, weakref
    from ignite.engine import Events
    from ignite_hooks import BaseHook, attach_hooks, read_run
    from ignite_hooks.testing import tiny_run

    models, batches, fails_with = [], [], None

    def watched(engine):
        batches.append(weakref.ref(engine.state.batch[0]))
        if fails_with is not None:
            raise fails_with

    def alive():
        gc.collect()
        return [len({id(one()) for one in seen if one() is not None}) for seen in (models, batches)]
    """
CELL = """
    fails_with = {error}
    run = tiny_run()
    models.append(weakref.ref(run.model))
    run.trainer.add_event_handler(Events.ITERATION_COMPLETED, watched)
    runner = attach_hooks(run.trainer, work_dir="run", **run.services)
    run.trainer.run(run.data, max_epochs=1)
    {last}
    """
ONCE = CELL.format(error="None", last="runner")


def test_running_a_cell_ten_times_holds_no_more_memory_than_once(tmp_path: Path) -> None:
    shown = ["", "runner", "runner.plan", "runner.hooks", "runner.best"]
    again = [CELL.format(error="None", last=last) for last in shown]
    failing = CELL.format(error='ValueError("a mistake")', last="")
    cells = [SETUP, ONCE, "alive()", failing, *again, *again, ONCE, "alive()"]
    outputs = outputs_of(cells, tmp_path)
    # Ignite logs the error too.
    assert [kind for kind in kinds(outputs[3]) if kind != "stderr"] == [PANEL, "ValueError"]
    once, often = (outputs[place][0]["data"]["text/plain"] for place in (2, -1))
    assert (once, often) == ("[1, 3]", "[1, 3]"), "one model, the three batches of its data"
    assert [kinds(one)[0] for one in outputs[4:-1]] == [PANEL] * 11


RESULTS = [
    "runner.history",
    "runner.history.to_pandas()",
    "runner.best",
    "runner.metrics",
    "runner.hooks",
    "runner.plan",
    "runner.report()",
    "runner.checkpoints",
    "runner.plot()",
    "runner.show_report()",
    "read_run('run')",
    "read_run('run').checkpoints",
    "read_run('run').plot()",
]
HOOKS = '["LoggerHook", "EvalHook", "CheckpointHook", "ReportHook"]'


def test_results_are_tables_and_pictures_and_nothing_is_red_but_errors(tmp_path: Path) -> None:
    cells = [
        SETUP,
        f"""
        run = tiny_run()
        nested = {{"hooks": {HOOKS}, "mine": {{"hooks": ["EMAHook"]}}}}
        runner = attach_hooks(run.trainer, nested, work_dir="run", **run.services)
        """,
        "run.trainer.run(run.data, max_epochs=2);",
        *RESULTS,
        """
        class Fails(BaseHook):
            on_error = "warn"
            def after_epoch(self, runner):
                runner.logger.error("an error")
                raise ValueError("in a hook")
        runner = attach_hooks(run.trainer, ["LoggerHook", Fails()], work_dir="again", **run.services)
        run.trainer.run(run.data, max_epochs=3);
        """,
    ]
    _, attached, ran, *results, again = outputs_of(cells, tmp_path)
    shown = {result: kinds(outputs) for result, outputs in zip(RESULTS, results, strict=True)}
    wanted = {result: ["image/png+text/plain" if ".plot" in result else PANEL] for result in RESULTS}
    assert shown == wanted

    assert kinds(attached) == ["stdout"]
    assert "mine.hooks is not read" in printed(attached)
    assert kinds(ran) == ["stdout"]
    assert "Epoch 2/2" in printed(ran)
    assert printed(again).startswith("replaced the hooks of an earlier attach_hooks(): LoggerHook, EvalHook")
    assert [line.partition("ERROR    ")[2] for line in printed(again, "stderr").splitlines()] == ["an error"]
    assert "WARNING  Fails.after_epoch failed at epoch 3" in printed(again)
