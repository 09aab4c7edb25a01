from __future__ import annotations

import html.parser
import re
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import attach_hooks, read_run
from ignite_hooks.report.curves import CurveSet
from ignite_hooks.report.data import BestScore, LoggedWarning
from ignite_hooks.report.panel import MAX_ROWS, EpochTable, Panel, panel_html, panel_text
from ignite_hooks.testing import tiny_run

ALLOWED = {"div", "table", "thead", "tbody", "tr", "td", "th", "b", "span", "p", "img", "a"}
ATTRIBUTES = {"style", "src", "alt", "width", "height", "colspan", "href"}
# Seen to stay in a JupyterLab that does not trust the notebook. GitHub drops styles, and nothing depends on them.
PROPERTIES = ("color", "line-height", "margin", "max-width", "opacity", "padding", "text-align", "white-space")
PROPERTIES += ("border-collapse", "font-family", "font-size", "font-weight", "vertical-align")
VALUE = re.compile(r"#[0-9a-f]{6}|rgb\(\d+, \d+, \d+\)|[\d.]+(px|em)?( [\d.]+(px|em)?)*|[a-z-]+(,[a-z-]+)*")
ADDRESS = re.compile(r"\./[^:]*|https?://.*|data:image/png;base64,[A-Za-z0-9+/=]+")


def lines(epochs: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for epoch in range(1, epochs + 1):
        at = {"step": 10 * epoch, "epoch": epoch, "time": 1.0}
        found.append({**at, "kind": "train", "scalars": {"loss": 1 / epoch, "lr": 0.1, "time/iter": 0.01}})
        found.append({**at, "kind": "val", "scalars": {"loss": 1.5 / epoch, "accuracy": 1 - 1 / epoch}})
    return found


def panel(epochs: int, best: int = 0, **more: Any) -> Panel:
    table, history = EpochTable(), CurveSet()
    for line in lines(epochs):
        table.add([line], {best})
        history.add([line])
    rows, left_out = table.shown({best})
    scores = [BestScore("accuracy", 0.9, best, 10 * best)] if best else []
    given: dict[str, Any] = {"epoch": epochs, "iteration": 10 * epochs, "max_iters": 10 * epochs} | more
    return Panel("run", rows=rows, left_out=left_out, history=history, best=scores, **given)


class Seen(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.styles: list[str] = []
        self.addresses: list[str] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles += [str(value) for name, value in attrs if name == "style"]
        self.addresses += [str(value) for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def unkept(html: str) -> list[str]:
    """Return what a page that nobody trusts would drop."""
    seen = Seen(html)
    wrong = [*(seen.tags - ALLOWED), *(seen.attributes - ATTRIBUTES)]
    declared = [one.partition(":") for style in seen.styles for one in style.split(";")]
    wrong += [name for name, _, value in declared if name not in PROPERTIES or not VALUE.fullmatch(value)]
    return wrong + [address for address in seen.addresses if not ADDRESS.fullmatch(address)]


def test_a_panel_has_only_what_an_untrusted_notebook_keeps() -> None:
    told = {"failures": ["x"], "findings": ["y"], "warnings": [LoggedWarning("z")], "reason": "r", "folder": "work"}
    links = {"links": {"report": "work/report.html"}, "pages": {"wandb": "https://wandb.ai/a/b"}}
    assert unkept(panel_html(panel(40, 20, **told, **links))) == []


def test_so_has_everything_else_that_a_notebook_shows(tmp_path: Path) -> None:
    run = tiny_run()
    hooks = ["LoggerHook", "EvalHook", "CheckpointHook"]
    runner = attach_hooks(run.trainer, hooks, work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=2)
    recorded = read_run(tmp_path)
    shown = [runner, runner.plan, runner.metrics, runner.best, runner.hooks, runner.checkpoints, runner.history]
    shown += [runner.report(), recorded, recorded.checkpoints, recorded.history]
    assert {type(thing).__name__: unkept(thing._repr_html_()) for thing in shown if unkept(thing._repr_html_())} == {}


@pytest.mark.parametrize("html", ["<svg></svg>", '<p style="color:var(--x)">', '<p class="x">', '<a href="x:y">'])
def test_what_would_be_dropped_is_found(html: str) -> None:
    assert unkept(html) != []


def test_it_reads_without_styles_and_pictures() -> None:
    text = "".join(Seen(panel_html(panel(3, 2, state="stopped", reason="early stopping", max_epochs=5))).text)
    for words in ("stopped", "epoch 3/5", "early stopping", "★ 2", "100 %", "▁", "best accuracy 0.9000 at epoch 2"):
        assert words in text


def test_only_addresses_of_pages_are_links() -> None:
    made = panel_html(Panel("run", pages={"mlflow": "http://host/#/runs/1", "bad": "javascript:alert(1)"}))
    assert '<a href="http://host/#/runs/1">mlflow</a>' in made
    assert "bad: javascript:alert(1)" in made
    assert 'href="javascript' not in made


@pytest.mark.parametrize(("epochs", "best"), [(1, 0), (MAX_ROWS, 3), (31, 10), (10_000, 1234)])
def test_a_table_has_the_first_the_best_and_the_last(epochs: int, best: int) -> None:
    made = panel(epochs, best)
    shown = [epoch for epoch, _ in made.rows]
    assert len(shown) == min(epochs, MAX_ROWS)
    assert {1, *([best] if best else []), epochs, *range(1, min(3, epochs) + 1)} <= set(shown)
    assert made.left_out == epochs - len(shown)


def test_a_panel_of_ten_thousand_epochs_is_small() -> None:
    made = panel(10_000, 1234)
    assert len(panel_html(made)) + len(panel_text(made)) < 30_000
    text = "".join(Seen(panel_html(made)).text)
    assert "… 1230 epochs" in text
    assert "★ 1234" in text


def test_many_best_epochs_leave_room_for_the_last() -> None:
    table = EpochTable()
    table.add(lines(200))
    rows, left_out = table.shown(range(1, 150))
    assert (len(rows), left_out, rows[-1][0]) == (MAX_ROWS, 170, 200)
    assert [epoch for epoch, _ in rows[-10:]] == list(range(191, 201))


def test_curves_stand_as_pictures_and_as_characters() -> None:
    made = panel_html(panel(20))
    assert made.count('src="data:image/png;base64,') == 2, "loss with val/loss, and accuracy"
    assert re.findall("[▁▂▃▄▅▆▇█]{20}</span> val/loss 0.0750", made) != []
    assert "time/iter" not in made
    assert "lr" not in "".join(Seen(made).text)


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'])
def test_what_comes_from_a_run_is_escaped(hostile: str) -> None:
    made = Panel(
        hostile,
        "failed",
        hostile,
        doing=hostile,
        failures=[hostile],
        findings=[hostile],
        warnings=[LoggedWarning(hostile)],
        links={hostile: "javascript:alert(1)"},
        folder=hostile,
        rows=[(1, {hostile: 1.0})],
    )
    seen = Seen(panel_html(made))
    assert seen.tags <= ALLOWED - {"img"}
    assert 'href="./javascript%3A' in panel_html(made)


def test_nothing_is_red_but_what_failed() -> None:
    warned = panel(3, warnings=[LoggedWarning("careful", times=3)], findings=["found"], state="interrupted")
    red = "#d2453d"
    assert red not in panel_html(warned)
    assert "careful (3 times)" in panel_html(warned)
    assert red in panel_html(Panel("run", "failed", "ValueError: no"))


def test_many_warnings_are_counted() -> None:
    made = panel_html(Panel("run", warnings=[LoggedWarning(f"number {i}") for i in range(20)]))
    assert "14 warnings before these, in the log" in made
    assert "number 19" in made
    assert "number 3" not in made


def test_plain_text_has_the_state_and_the_table() -> None:
    text = panel_text(panel(2, 1, state="stopped", reason="interrupted at epoch 2", max_epochs=5, seconds=7))
    assert text.splitlines()[:2] == ["run: stopped, epoch 2/5, iteration 20/20, 0:00:07", "interrupted at epoch 2"]
    assert [line.split()[0] for line in text.splitlines()[3:]] == ["1", "2"]


def test_a_value_that_is_not_a_number_is_shown() -> None:
    table = EpochTable()
    table.add([{"step": 1, "epoch": 1, "kind": "train", "scalars": {"loss": None}, "nonfinite": ["loss"]}])
    assert str(table.rows[1]["loss"]) == "nan"
