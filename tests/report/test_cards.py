from __future__ import annotations

from ignite_hooks.report.data import BestScore, HookCost, RunPage
from ignite_hooks.report.page import render
from tests.report.test_page import history


def test_cards_name_best_model_slowest_hook_and_problems() -> None:
    costs = [HookCost("snail", 4, 2.0, 0.5, 1.0, 1.0), HookCost("quick", 4, 0.1, 0.02, 0.1, 0.1)]
    page = RunPage(
        "run",
        "finished",
        seconds=10.0,
        best=[BestScore("loss", 0.1, 2, 7), BestScore("accuracy", 0.9, 3, 9, "best.pth")],
        costs=costs,
    )
    head = render(page).partition("<section")[0]
    assert "0.9 <small>accuracy</small>" in head
    assert '<a href="./best.pth">best.pth</a>' in head
    assert '<div class="big">snail</div><p>20.0 % of the run: 2.0 s in 4 calls</p><p>then quick, 1.0 %</p>' in head
    assert '<div class="big">none</div>' in head


def test_findings_are_shown_but_are_not_problems() -> None:
    head = render(RunPage("run", "finished", findings=["data loading takes 43 %"])).partition("<section")[0]
    assert '<div class="big">none</div><p>data loading takes 43 %</p><p><a href="#warnings">1 finding</a></p>' in head


def test_without_ranked_metric_the_best_evaluation_is_named() -> None:
    head = render(RunPage("run", "finished", history=history())).partition("<section")[0]
    assert "0.3 <small>val/accuracy</small>" in head or "0.3333 <small>val/loss</small>" in head
    assert "no hook of this run keeps the best" in head


def test_a_long_finding_ends_between_its_words() -> None:
    finding = f"{'word ' * 20}another word that is too much"
    head = render(RunPage("run", "finished", findings=[finding])).partition("<section")[0]
    assert "word another …</p>" in head
