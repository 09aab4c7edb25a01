from __future__ import annotations

from ignite_hooks.report.curves import CurveSet
from ignite_hooks.report.data import RunPage
from ignite_hooks.report.page import render


def test_many_curves_are_partly_folded() -> None:
    many = CurveSet()
    scalars = {f"m{n}": 1.0 for n in range(15)}
    many.add([{"step": 1, "epoch": 1, "kind": "val", "scalars": scalars}])
    shown, _, folded = render(RunPage("run", history=many)).partition('id="curves"')[2].partition("<details>")
    assert shown.count("<figure>") == 12
    assert folded.startswith("<summary>3 more charts</summary>")


def test_the_loss_comes_before_families_of_numbers() -> None:
    found = CurveSet()
    found.add([{"step": 1, "epoch": 1, "kind": "train", "scalars": {"norm/a": 1.0, "loss/aux": 1.0, "loss": 2.0}}])
    found.add([{"step": 1, "epoch": 1, "kind": "val", "scalars": {"loss": 1.0, "accuracy": 0.5}}])
    text = render(RunPage("run", history=found)).partition('id="curves"')[2]
    assert text.index("<h3>loss</h3>") < text.index("<h3>accuracy</h3>") < text.index("<h3>norm</h3>")
