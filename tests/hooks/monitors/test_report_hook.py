"""The page of a real run: its content however the run ends, and its display in a browser."""

from __future__ import annotations

import errno
import html
import logging
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import BaseHook, attach_hooks
from ignite_hooks.hooks.monitors import report_hook
from ignite_hooks.hooks.monitors.report_hook import FILE_NAME, ReportHook
from ignite_hooks.report.data import WarningCollector
from ignite_hooks.report.page import render
from ignite_hooks.testing import failing_at, tiny_run
from tests.browser import as_shown, chromium, near, photographed
from tests.report.test_page import hostile

ALL = [
    {"type": "LoggerHook", "interval": 1},
    {"type": "EvalHook"},
    # Where a save waits for the one before, there is a problem to show.
    {"type": "CheckpointHook", "best_metric": "accuracy", "async_save": False},
    {"type": "ReportHook", "max_share": 1.0},
]


def trained(folder: Path, *hooks: Any, epochs: int = 3, cfg: Any = None, **how: Any) -> tuple[str, Any]:
    """Return the page of a run, and its runner."""
    run = tiny_run()
    runner = attach_hooks(run.trainer, {"hooks": [*ALL, *hooks], **(cfg or {})}, work_dir=folder, **run.services, **how)
    try:
        run.trainer.run(run.data, max_epochs=epochs)
    finally:
        text = (folder / FILE_NAME).read_text()
    return text, runner


def visible(text: str) -> str:
    """Return the words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text.partition("</head>")[2])).split())


def test_a_run_that_ends_well_has_all_its_sections(tmp_path: Path) -> None:
    text, runner = trained(tmp_path / "digits", cfg={"seed": 3})
    words = visible(text)
    assert words.startswith("digits ✓ finished 3 epochs, 9 iterations in ")
    best = runner.best["accuracy"]
    assert f'<a href="./{best.file}">{best.file}</a>' in text
    assert "Problems none" in words
    found = re.findall(r'<section id="(\w+)"', text)
    assert found == ["curves", "best", "hooks", "time", "plan", "configuration", "environment", "warnings"]
    for expected in (
        "loss last",
        "val/accuracy last",
        "learning rate",
        "seed: 3",
        "memory of this process",
        "versions",
    ):
        assert expected in words, expected
    costs = text.partition('id="hooks"')[2].partition("</section>")[0]
    first = re.search(r"<tbody><tr><td>(\w+).*?</tr>", costs)
    assert first is not None
    assert "width:100%" in first.group()
    assert f'Slowest hook</div><div class="big">{first.group(1)}</div>' in text
    assert "LoggerHook" in text.partition('id="plan"')[2]


def test_the_page_is_written_at_the_start_and_updated(tmp_path: Path) -> None:
    seen: list[str] = []

    class Reader(BaseHook):
        priority = 0

        def before_train_iter(self, runner: Any) -> None:
            seen.append((runner.work_dir / FILE_NAME).read_text())

    always = ReportHook()
    # By this clock writing takes no time, so the page may be written whenever there is something new.
    always.clock = lambda: 0.0
    trained(tmp_path, cfg={"hooks": [*ALL[:-1], always, Reader()]})
    assert all("▶ running" in text for text in seen)
    assert "nothing has been evaluated yet" in seen[0]
    assert "Epoch" not in visible(seen[0])
    assert "6 of 9 iterations" in visible(seen[6])
    assert "val/accuracy" in seen[6]


def test_it_takes_at_most_its_share_of_the_time(tmp_path: Path) -> None:
    hook, written, now = ReportHook(interval=1, max_share=0.01), [], [0.0]
    hook.clock = lambda: now[0]
    write = hook._write

    class Second(BaseHook):
        def before_train_iter(self) -> None:
            now[0] += 10.0

    def noted(runner: Any) -> None:
        written.append(runner.global_step)
        before, hook.clock = hook.clock, iter((now[0], now[0] + 0.5)).__next__
        write(runner)
        hook.clock = before

    hook._write = noted  # type: ignore[method-assign]
    run = tiny_run(batches=20)
    attach_hooks(run.trainer, [hook, Second()], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    # Half a second of writing is one hundredth of fifty seconds, which are five iterations.
    assert written == [0, 6, 12, 18, 20]


def test_loading_for_the_first_page_does_not_delay_the_next(tmp_path: Path) -> None:
    hook, now, written = ReportHook(interval=1), [0.0], []
    hook.clock = lambda: now[0]
    page, write, takes = hook._page, hook._write, iter((10.0, *[0.001] * 99))

    class Second(BaseHook):
        def before_train_iter(self) -> None:
            now[0] += 1.0

    def loading(runner: Any) -> Any:
        now[0] += next(takes)
        return page(runner)

    def noted(runner: Any) -> None:
        written.append(runner.global_step)
        write(runner)

    hook._page, hook._write = loading, noted  # type: ignore[method-assign]
    run = tiny_run(batches=3)
    attach_hooks(run.trainer, [hook, Second()], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert written[:3] == [0, 1, 2]


def test_it_is_updated_within_a_long_epoch(tmp_path: Path) -> None:
    hook, now, seen = ReportHook(), [0.0], []
    hook.clock = lambda: now[0]

    class Slow(BaseHook):
        def before_train_iter(self, runner: Any) -> None:
            now[0] += 1.0
            seen.append(re.search(r"(\d+) of 120 iterations", visible((runner.work_dir / FILE_NAME).read_text())))

    run = tiny_run(batches=120)
    attach_hooks(run.trainer, [hook, Slow()], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert [found and found.group(1) for found in (seen[40], seen[60], seen[110])] == ["0", "49", "99"]


@pytest.mark.parametrize("point", ["after_train_iter", "after_epoch", "after_val_epoch"])
def test_a_failed_run_shows_where_and_why(tmp_path: Path, point: str) -> None:
    with pytest.raises(Exception, match="boom <b>"):
        trained(
            tmp_path,
            failing_at(point, call=2, error=ValueError("boom <b> k-0123456789")),
            cfg={"api_key": "k-0123456789"},
        )
    text = (tmp_path / FILE_NAME).read_text()
    assert "✗ failed" in text
    assert f"{point} failed at" in visible(text)
    assert "boom <b> ***" in visible(text)
    assert "Traceback (most recent call last)" in text
    assert "<b> " not in text
    assert 'http-equiv="refresh"' not in text


def test_a_stopped_run_shows_the_reason(tmp_path: Path) -> None:
    class Stopper(BaseHook):
        def after_train_iter(self, runner: Any) -> None:
            if runner.global_step == 4:
                runner.stop("enough <seen>")

    text, _ = trained(tmp_path, Stopper())
    assert "■ stopped" in text
    assert "enough &lt;seen&gt;" in text


def test_a_run_ended_by_the_script_is_not_finished(tmp_path: Path) -> None:
    class Terminator(BaseHook):
        def after_train_iter(self, runner: Any) -> None:
            if runner.global_step == 4:
                runner.trainer.terminate()

    assert "the script ended it by terminate()" in trained(tmp_path, Terminator())[0]


def test_after_a_signal_the_page_is_complete(tmp_path: Path) -> None:
    class Interrupted(BaseHook):
        def after_train_iter(self, runner: Any) -> None:
            if runner.global_step == 4:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        trained(tmp_path, Interrupted())
    assert "SIGTERM received" in visible((tmp_path / FILE_NAME).read_text())


def test_warnings_failures_and_findings_are_there_without_secrets(tmp_path: Path) -> None:
    class Talker(BaseHook):
        on_error = "warn"

        def after_epoch(self, runner: Any, epoch: int) -> None:
            runner.logger.warning("beware of <i>k-0123456789</i>")
            logging.getLogger("ignite_hooks.writers.some").warning("a writer warns")
            if epoch == 1:
                raise ValueError("for k-0123456789")

        def findings(self) -> list[str]:
            return ["something is <odd>"]

    text, runner = trained(tmp_path, Talker(), cfg={"tracker": {"api_key": "k-0123456789"}})
    words = visible(text)
    assert "k-0123456789" not in text
    assert "beware of <i>***</i> (3 times)" in words
    assert "a writer warns (3 times)" in words
    assert "Talker failed once: Talker.after_epoch failed at epoch 2" in words
    assert "Talker: something is <odd>" in words
    assert "api_key: '***'" in words
    assert not [h for h in logging.getLogger("ignite_hooks").handlers if isinstance(h, WarningCollector)]
    assert runner.report().failures.keys() == {"Talker"}


def test_only_a_resumed_run_continues_its_curves(tmp_path: Path) -> None:
    trained(tmp_path, epochs=2)
    text, runner = trained(tmp_path, epochs=3, resume="auto")
    assert f"resumed from {runner.state.resumed_from}" in visible(text)
    assert re.findall(r"<title>(loss|lr) .* at iteration 1</title>", text.replace("<circle", "\n")) == ["loss", "lr"]
    text, _ = trained(tmp_path, epochs=1)
    assert "at iteration 4</title>" not in text


def test_a_continued_run_keeps_its_curves(tmp_path: Path) -> None:
    trained(tmp_path, epochs=1)
    run = tiny_run()
    attach_hooks(run.trainer, ALL, work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    first = re.findall(r"<title>loss (\S+) at iteration 1<", (tmp_path / FILE_NAME).read_text())
    run.trainer.run(run.data, max_epochs=2)
    text = (tmp_path / FILE_NAME).read_text()
    assert re.findall(r"<title>loss (\S+) at iteration 1<", text) == first
    assert "at iteration 6</title>" in text
    assert "2 epochs, 6 iterations" in visible(text)


def test_a_test_after_the_run_belongs_to_its_report(tmp_path: Path) -> None:
    run = tiny_run()
    runner = attach_hooks(run.trainer, ALL, work_dir=tmp_path, test_loader=run.val_data, **run.services)
    runner.installation.add_evaluator("test", run.evaluator)
    run.trainer.run(run.data, max_epochs=1)
    runner.test()
    text = (tmp_path / FILE_NAME).read_text()
    assert "test/accuracy" in text
    assert "✓ finished" in text


def test_pictures_of_other_hooks_are_shown(tmp_path: Path) -> None:
    text, _ = trained(tmp_path, {"type": "GradientFlowHook", "frequency": 3})
    assert 'src="data:image/png;base64,' in text
    assert "gradient_flow" in text.partition('id="pictures"')[2]


def test_a_disk_that_is_full_for_a_while_costs_only_the_pages_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[int] = []

    def write(path: Path, data: bytes) -> None:
        written.append(len(data))
        if 1 < len(written) < 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        path.write_bytes(data)

    monkeypatch.setattr(report_hook, "write_whole", write)
    ticks = iter(range(10_000))
    run = tiny_run()
    hook = ReportHook(max_share=1.0)
    hook.clock = lambda: float(next(ticks))
    attach_hooks(run.trainer, [hook], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=8)
    assert len(written) > 6
    (line,) = [record.getMessage() for record in caplog.records if FILE_NAME in record.getMessage()]
    assert "cannot be written: disk full" in line
    assert line.endswith("; it is tried again")
    assert "finished" in visible((tmp_path / FILE_NAME).read_text())


def test_without_numbers_the_page_says_so(tmp_path: Path) -> None:
    run = tiny_run()
    attach_hooks(run.trainer, [{"type": "ReportHook"}], work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=1)
    assert "LoggerHook writes them to metrics.jsonl" in visible((tmp_path / FILE_NAME).read_text())


# -- display in a browser ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_browser_shows_curves_in_light_and_dark(tmp_path: Path) -> None:
    chromium()
    name = "<script>document.title='owned'<\u2044script>"
    trained(
        tmp_path / name,
        cfg={"note": "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>"},
    )
    page = tmp_path / "page.html"
    page.write_bytes((tmp_path / name / FILE_NAME).read_bytes())
    document = as_shown(page.as_uri(), tmp_path)
    assert "<title>✓ &lt;script&gt;document.title='owned'" in document
    assert "<script>" not in document
    light = photographed(page.as_uri(), tmp_path / "light.png", size=(1300, 1500))
    dark = photographed(
        page.as_uri(), tmp_path / "dark.png", "--blink-settings=preferredColorScheme=0", size=(1300, 1500)
    )
    # The background, then lines and marks of the first two series.
    assert near(light, (246, 247, 249)) > 100_000
    assert near(dark, (20, 23, 26)) > 100_000
    assert near(light, (0, 114, 178)) > 300
    assert near(light, (213, 94, 0)) > 300
    assert near(dark, (86, 180, 233)) > 300


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["usual", "hostile"])
def test_on_a_phone_nothing_is_wider_than_the_screen(tmp_path: Path, kind: str) -> None:
    chromium()
    if kind == "usual":
        trained(tmp_path, BaseHook(name="a_hook_with_a_name_that_is_longer_than_any_phone_is_wide_in_either_direction"))
    else:
        (tmp_path / FILE_NAME).write_text(render(hostile()))
    # A window of Chromium is never this narrow, but a frame can be; the page runs no script, so its parent asks.
    frame = '<iframe id="f" src="report.html" style="width:360px;height:640px;border:0"></iframe>'
    script = "f.onload=()=>{let d=f.contentDocument.scrollingElement;document.title=d.scrollWidth+' of '+d.clientWidth}"
    (tmp_path / "phone.html").write_text(f"<title>?</title>{frame}<script>{script}</script>")
    document = as_shown((tmp_path / "phone.html").as_uri(), tmp_path, "--allow-file-access-from-files")
    wide, _, room = re.search(r"<title>(.*?)</title>", document).group(1).partition(" of ")  # type: ignore[union-attr]
    assert int(wide) <= int(room) <= 360
