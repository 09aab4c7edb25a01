"""Runs in a real kernel of Jupyter, whose cells are run again."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ipykernel")
import nbformat

from tests.kernel import Kernel, kinds, printed

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


def test_running_a_cell_ten_times_holds_no_more_memory_than_once(kernel: Kernel, tmp_path: Path) -> None:
    shown = ["", "runner", "runner.plan", "runner.hooks", "runner.best"]
    again = [CELL.format(error="None", last=last) for last in shown]
    failing = CELL.format(error='ValueError("a mistake")', last="")
    cells = [SETUP, ONCE, "alive()", failing, *again, *again, ONCE, "alive()"]
    outputs = kernel.outputs_of(cells, tmp_path)
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


def test_results_are_tables_and_pictures_and_nothing_is_red_but_errors(kernel: Kernel, tmp_path: Path) -> None:
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
    _, attached, ran, *results, again = kernel.outputs_of(cells, tmp_path)
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


AGAIN = {
    "imports": """
        from pathlib import Path
        from ignite.engine import Engine
        from ignite_hooks import BaseHook, HOOKS, attach_hooks
        evaluator = Engine(lambda engine, batch: batch)
        calls = []
    """,
    "hook": """
        @HOOKS.register_module()
        class Mine(BaseHook):
            def after_val(self):
                calls.append(self.word)
            word = "WORD"
    """,
    "attach": """
        trainer = Engine(lambda engine, batch: batch)
        runner = attach_hooks(trainer, ["Mine"], evaluators=evaluator, work_dir=WORK_DIR)
    """,
    "same trainer": """
        runner = attach_hooks(trainer, ["Mine"], evaluators=evaluator, work_dir=WORK_DIR)
    """,
    "evaluate": """
        calls.clear()
        evaluator.run([1])
        print(calls)
    """,
    "one object": """
        mine = HOOKS.get("Mine")()
        a, b = Engine(lambda engine, batch: batch), Engine(lambda engine, batch: batch)
        ra = attach_hooks(a, [mine], work_dir=WORK_DIR)
        try:
            attach_hooks(b, [mine], work_dir=WORK_DIR)
        except Exception as error:
            print(type(error).__name__, "belongs to another trainer" in str(error))
    """,
    "ours": """
        try:
            @HOOKS.register_module()
            class EMAHook(BaseHook): ...
        except KeyError as error:
            print("refused:", error)
    """,
}


def test_a_cell_of_a_notebook_can_be_run_again(kernel: Kernel, tmp_path: Path) -> None:
    order = ["imports", "hook", "attach", "evaluate", "hook", "attach", "evaluate", "same trainer", "evaluate"]
    order += ["one object", "ours"]
    texts = [AGAIN[name].replace("WORK_DIR", repr(str(tmp_path))) for name in order]
    texts[4] = texts[4].replace("WORD", "changed")
    outputs = kernel.outputs_of(texts, tmp_path)
    said = [printed(cell).splitlines() for cell in outputs]
    assert [lines[-1] for name, lines in zip(order, said, strict=True) if name == "evaluate"] == [
        "['WORD']",
        "['changed']",
        "['changed']",
    ]
    for i, trainer in ((5, "a trainer that no longer exists"), (7, "the trainer")):
        assert said[i] == [f"replaced the hooks of an earlier attach_hooks(): Mine on {trainer}, evaluator 'val'"]
    assert said[9] == ["ConfigError True"]
    assert "refused" in said[10][0]


BAR = """
import tempfile
import torch
from ignite.engine import Engine
from ignite.metrics import Average
from ignite_hooks import attach_hooks

trainer, evaluator = Engine(lambda engine, _: 1.0 / engine.state.iteration), Engine(lambda *_: 0.5)
Average().attach(evaluator, "loss")
hooks = [{"type": "ProgressBarHook"}, {"type": "EvalHook", "metric": "loss"}]
given = {"model": torch.nn.Linear(1, 1), "val_loader": [0] * 5}
attach_hooks(trainer, hooks, evaluators=evaluator, work_dir=tempfile.mkdtemp(), **given)
trainer.run(range(50), max_epochs=2);
"""


def test_a_progress_bar_is_a_widget_that_ends_full(kernel: Kernel, tmp_path: Path) -> None:
    pytest.importorskip("ipywidgets")
    notebook = kernel.run(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(BAR)]), tmp_path)
    kinds = [set(output.get("data", {})) for output in notebook.cells[0].outputs]
    assert "application/vnd.jupyter.widget-view+json" in kinds[0]
    [widgets] = notebook.metadata["widgets"].values()
    models = [model["state"] | {"model": model["model_name"]} for model in widgets["state"].values()]
    bar = next(model for model in models if model["model"] == "FloatProgressModel")
    assert (bar["value"], bar["max"], bar["bar_style"]) == (100, 100, "success")
    words = " ".join(model["value"] for model in models if model["model"] == "HTMLModel").replace("\u2007", " ")
    assert "Epoch 2/2: 100%" in words
    assert "loss 0.01" in words
