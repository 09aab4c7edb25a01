from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks.drawing.theme import ON_DARK, as_hex
from ignite_hooks.measure.findings import profile_findings
from ignite_hooks.measure.profile import TRACES, Operator, Profile, Section, sections
from ignite_hooks.report.profile_page import profile_page
from tests.browser import as_shown, near, photographed
from tests.report.test_page import HOSTILE, PIXEL, Outline


def seen(**operators: Operator) -> Profile:
    profile = Profile()
    profile.add(10, {"data": 0.1, "forward": 0.3, "backward": 0.5, "other": 0.1}, operators.values())
    return profile


def report_of(profile: Profile, *more: Any) -> list[Section]:
    return sections(profile, profile_findings(profile), *more)


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    page = profile_page("t <i>", report_of(seen(one=Operator("a<b>|c", 1, 0.9))))
    assert "a&lt;b&gt;|c" in page
    assert "<b>" not in page
    assert "<i>" not in page


def test_texts_of_a_profile_never_become_markup() -> None:
    profile = seen(one=Operator(HOSTILE, 1, 0.9))
    profile.functions = {HOSTILE: Operator(HOSTILE, 3, 0.9, stack=(HOSTILE,))}
    profile.traces = [HOSTILE]
    parts = [*report_of(profile, [HOSTILE]), Section(HOSTILE, [HOSTILE]), Section(TRACES, [f"- {HOSTILE}"])]
    page = profile_page(HOSTILE, parts, PIXEL.partition(",")[2])
    elements = Outline(page).elements
    assert {name for name, _ in elements}.isdisjoint({"script", "iframe", "object", "link"})
    assert [given["src"] for name, given in elements if name == "img"] == [PIXEL]
    assert not any(key.startswith("on") for _, given in elements for key in given)
    assert "\x00" not in page
    assert "\u202e" not in page


def test_a_browser_may_load_and_run_nothing() -> None:
    policy = [given for name, given in Outline(profile_page("t", [])).elements if name == "meta"][2]
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert str(policy["content"]).startswith("default-src 'none'; img-src data:;")


def test_the_page_has_a_dark_mode() -> None:
    page = profile_page("t", [])
    dark = page.partition("prefers-color-scheme: dark")[2]
    assert "color-scheme: light dark" in page
    assert all(as_hex(colour) in dark for colour in ON_DARK)


def test_a_trace_is_a_link_and_a_name_breaks_between_its_words() -> None:
    profile = seen(mm=Operator("aten::add_", 10, 0.5))
    profile.traces = ["trace_1.json.gz"]
    page = profile_page("t", report_of(profile))
    assert '<a href="./trace_1.json.gz">trace_1.json.gz</a>' in page
    assert "<td>aten::<wbr>add_</td>" in page


def test_numbers_are_right_aligned_names_left_aligned() -> None:
    page = profile_page("t", [Section("s", rows=[{"operator": "mm", "calls": "3", "called by": "f"}])])
    cells = [given.get("class") for name, given in Outline(page).elements if name == "td"]
    assert cells == [None, "n", None]


@pytest.mark.slow
def test_a_browser_shows_it_in_light_and_dark(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(profile_page("t", report_of(seen(mm=Operator("aten::mm", 10, 0.5)))))
    light = photographed(page.as_uri(), tmp_path / "light.png", "--blink-settings=preferredColorScheme=1")
    dark = photographed(page.as_uri(), tmp_path / "dark.png", "--blink-settings=preferredColorScheme=0")
    assert near(light, (246, 247, 249)) > 100_000
    assert near(dark, (20, 23, 26)) > 100_000


@pytest.mark.slow
def test_long_function_names_leave_times_visible(tmp_path: Path) -> None:
    name = f"<built-in method _record_function_enter_new of {'pybind11_builtins.pybind11_detail_' * 4}record object>"
    stack = tuple(f"torch/nn/modules/a_rather_long_name_of_a_module.py({n}): _call_implementation" for n in range(6))
    profile = seen(mm=Operator("aten::mm", 10, 0.2))
    profile.functions = {name: Operator(name, 3, 0.1, stack=stack)}
    widest = "Math.max(...[document.documentElement, ...document.querySelectorAll('.wide')].map(e => e.scrollWidth))"
    measured = f"<script>document.title = 'width ' + {widest}</script>"
    page = tmp_path / "page.html"
    # The policy of the page would forbid the script that measures it.
    page.write_text(profile_page("t", report_of(profile)).replace("Content-Security-Policy", "") + measured)
    shown = as_shown(page.as_uri(), tmp_path, "--window-size=1000,800")
    width = re.search(r"<title>width (\d+)</title>", shown)
    assert width is not None
    assert int(width[1]) <= 1000
