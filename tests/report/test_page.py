from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from ignite_hooks.report.curves import CurveSet
from ignite_hooks.report.data import BestScore, HookCost, LoggedWarning, RunPage
from ignite_hooks.report.page import render
from ignite_hooks.report.pictures import PagePicture

HOSTILE = "\"'></style></pre></svg><script>document.title='owned'</script><img src=x onerror=alert(1)>&\x00\u202e"
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC"
)


def history(name: str = "accuracy", steps: int = 3) -> CurveSet:
    found = CurveSet()
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
        if tag not in ("meta", "img", "br", "wbr"):
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


@pytest.mark.parametrize(("state", "again"), [("running", 1), ("finished", 0), ("failed", 0)])
def test_a_page_reloads_during_the_run(state: Any, again: int) -> None:
    assert render(RunPage("run", state)).count('http-equiv="refresh"') == again


def test_a_failed_run_shows_the_failure_first() -> None:
    text = render(RunPage("run", "failed", reason="it broke", trace="Traceback", history=history()))
    assert text.index('id="warnings"') < text.index('id="curves"')
    assert "it broke" in text.partition("<section")[0]


def test_the_size_of_a_page_is_bounded() -> None:
    many = CurveSet()
    for step in range(1, 700):
        many.add([{"step": step, "epoch": 1, "kind": "val", "scalars": {f"m{n}": step * 1.1 for n in range(100)}}])
    page = RunPage("run", history=many, config="x" * 10**7, warnings=[LoggedWarning("w" * 2000)] * 60)
    assert len(render(page).encode()) < 2_500_000
    assert "52 numbers more in metrics.jsonl" in render(page)
