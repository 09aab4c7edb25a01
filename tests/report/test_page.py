from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from ignite_hooks.report.curves import History
from ignite_hooks.report.data import BestScore, HookCost, LoggedWarning, RunPage
from ignite_hooks.report.page import render
from ignite_hooks.report.pictures import PagePicture

HOSTILE = "\"'></style></pre></svg><script>document.title='owned'</script><img src=x onerror=alert(1)>&\x00\u202e"
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC"
)


def history(name: str = "accuracy", steps: int = 3) -> History:
    found = History()
    for step in range(1, steps + 1):
        row = {"step": step, "epoch": step, "kind": "val", "scalars": {name: step / 10, "loss": 1 / step}}
        train = {"loss": 2 / step, "lr": 0.1, f"share/{name}": 0.5, "time/iter": 0.01, f"system/{name}": 1}
        found.add([row, {**row, "kind": "train", "scalars": train}])
    return found


def hostile(state: Any = "failed") -> RunPage:
    x = HOSTILE
    return RunPage(
        name=x,
        state=state,
        reason=x,
        trace=x,
        seconds=9.0,
        iteration=3,
        max_iters=9,
        resumed_from=x,
        best=[BestScore(x, 0.5, 1, 1, x), BestScore("accuracy", 0.5, 1, 1)],
        history=history(x),
        costs=[HookCost(x, 3, 1.0, 0.3, 0.4, 0.5, True)],
        plan=[
            dict.fromkeys(("point", "order", "hook", "priority", "how often", "next", "reads", "writes", "saves"), x)
        ],
        pictures=[PagePicture(x, 3, PIXEL, x)],
        pictures_besides=2,
        config=x,
        environment={x: x},
        memory={x: x},
        files=[x],
        failures=[x],
        findings=[x],
        warnings=[LoggedWarning(f"{x}\n{x}", 1.0, x, 2)],
    )


class Outline(HTMLParser):
    """The elements, attributes and texts that a browser finds; fails if an element is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("state", ["running", "finished", "stopped", "failed"])
def test_hostile_names_stay_text(state: Any) -> None:
    outline = Outline(render(hostile(state)))
    assert {"script", "iframe", "object", "form", "link"}.isdisjoint(name for name, _ in outline.elements)
    attributes = [(name, key, value) for name, given in outline.elements for key, value in given.items()]
    assert [one for one in attributes if one[1].startswith("on")] == []
    assert all(str(value).startswith(("./", "#")) for _, key, value in attributes if key == "href")
    assert {value for _, key, value in attributes if key == "src"} == {PIXEL}
    assert sum("<script>" in text for text in outline.texts) > 15, "they are shown as they are"


def test_the_policy_forbids_loading_and_running_anything() -> None:
    policy = [given for name, given in Outline(render(RunPage("a"))).elements if name == "meta"][2]
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert str(policy["content"]).startswith("default-src 'none'; img-src data:;")
    assert "http://" not in render(hostile())
    assert "https://" not in render(hostile())


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
    assert '<div class="big">snail</div><p>20.0% of the run: 2.0 s in 4 calls</p><p>then quick, 1.0%</p>' in head
    assert '<div class="big">none</div>' in head


def test_findings_are_shown_but_are_not_problems() -> None:
    head = render(RunPage("run", "finished", findings=["data loading takes 43 %"])).partition("<section")[0]
    assert '<div class="big">none</div><p>data loading takes 43 %</p><p><a href="#warnings">1 finding</a></p>' in head


@pytest.mark.parametrize("state", ["running", "finished"])
def test_values_that_are_not_finite_are_a_warning(state: Any) -> None:
    found = history("accuracy", 2)
    found.add([{"step": 3, "epoch": 3, "kind": "train", "scalars": {"loss": None, "aux": None}, "nonfinite": ["loss"]}])
    for step in (1, 2):
        row = {"step": step, "epoch": step, "kind": "val", "scalars": {"dice": None}, "nonfinite": ["dice"]}
        found.add([row])
    text = render(RunPage("run", state, history=found))
    head, _, below = text.partition("<section")
    assert '<div class="big">2 warnings</div><p>loss: 1 of 3 values are NaN or infinite</p>' in head
    assert "<li>val/dice: 2 of 2 values are NaN or infinite</li>" in below
    assert "no finite value</text>" in below
    assert '<span class="odd">2 values not finite</span>' in below


def test_many_curves_are_partly_folded() -> None:
    many = History()
    scalars = {f"m{n}": 1.0 for n in range(15)}
    many.add([{"step": 1, "epoch": 1, "kind": "val", "scalars": scalars}])
    shown, _, folded = render(RunPage("run", history=many)).partition('id="curves"')[2].partition("<details>")
    assert shown.count("<figure>") == 12
    assert folded.startswith("<summary>3 more charts</summary>")


def test_the_loss_comes_before_families_of_numbers() -> None:
    found = History()
    found.add([{"step": 1, "epoch": 1, "kind": "train", "scalars": {"norm/a": 1.0, "loss/aux": 1.0, "loss": 2.0}}])
    found.add([{"step": 1, "epoch": 1, "kind": "val", "scalars": {"loss": 1.0, "accuracy": 0.5}}])
    text = render(RunPage("run", history=found)).partition('id="curves"')[2]
    assert text.index("<h3>loss</h3>") < text.index("<h3>accuracy</h3>") < text.index("<h3>norm</h3>")


def test_without_ranked_metric_the_best_evaluation_is_named() -> None:
    head = render(RunPage("run", "finished", history=history())).partition("<section")[0]
    assert "0.3 <small>val/accuracy</small>" in head or "0.3333 <small>val/loss</small>" in head
    assert "no hook of this run keeps the best" in head


@pytest.mark.parametrize(("state", "again"), [("running", 1), ("finished", 0), ("failed", 0)])
def test_a_page_reloads_while_the_run_goes_on(state: Any, again: int) -> None:
    assert render(RunPage("run", state)).count('http-equiv="refresh"') == again


def test_a_failed_run_shows_the_failure_first() -> None:
    text = render(RunPage("run", "failed", reason="it broke", trace="Traceback", history=history()))
    assert text.index('id="warnings"') < text.index('id="curves"')
    assert "it broke" in text.partition("<section")[0]


def test_the_size_of_a_page_is_bounded() -> None:
    many = History()
    for step in range(1, 700):
        many.add([{"step": step, "epoch": 1, "kind": "val", "scalars": {f"m{n}": step * 1.1 for n in range(100)}}])
    page = RunPage("run", history=many, config="x" * 10**7, warnings=[LoggedWarning("w" * 2000)] * 60)
    assert len(render(page).encode()) < 2_500_000
    assert "52 numbers more in metrics.jsonl" in render(page)
