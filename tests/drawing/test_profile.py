from __future__ import annotations

import pytest

from ignite_hooks.drawing.profile import draw_gradient_flow, draw_profile, png

PHASES = {"data": 1.0, "forward": 2.0, "backward": 4.0, "hooks": 0.0}


def test_a_profile_has_bars_of_phases_and_of_operators() -> None:
    figure = draw_profile(PHASES, [("aten::mm", 3.0), ("a" * 99, 1.0)])
    above, below = figure.axes
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["data 14%", "forward 29%", "backward 57%"]
    names = [label.get_text() for label in below.get_yticklabels()]
    assert names[0] == "aten::mm"
    assert len(names[1]) < 40
    assert png(figure).startswith(b"\x89PNG")


def test_an_empty_profile_can_be_drawn() -> None:
    assert png(draw_profile({}, [])).startswith(b"\x89PNG")


def test_gradient_flow_has_a_bar_for_each_layer() -> None:
    strengths = {f"layer{n}": (10.0**-n, 2 * 10.0**-n) for n in range(100)}
    figure = draw_gradient_flow(strengths, {})
    (axes,) = figure.axes
    assert len(axes.patches) == 200
    assert len(axes.get_xticks()) <= 60
    above, below = draw_gradient_flow({"a": (1.0, 2.0)}, {"a": 1e-3}).axes
    assert (above.get_yscale(), below.get_yscale()) == ("log", "log")
    assert png(draw_gradient_flow({"a": (0.0, 0.0)}, {})).startswith(b"\x89PNG")


@pytest.mark.parametrize("strength", [0.02, 1e-9, 1.0, 300.0])
def test_the_axes_of_gradients_have_more_than_one_tick(strength: float) -> None:
    figure = draw_gradient_flow({"a": (strength, 1.2 * strength), "b": (strength, strength)}, {"a": 2e-3, "b": 3e-3})
    for axes in figure.axes:
        low, high = axes.get_ylim()
        assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 2
        assert all(low < patch.get_height() < high for patch in axes.patches)
