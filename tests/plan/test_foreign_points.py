"""The points of other frameworks lead to points of ours."""

from __future__ import annotations

from ignite_hooks.plan.foreign_points import FOREIGN_POINTS, is_foreign
from ignite_hooks.plan.points import ALIASES, POINTS


def test_every_foreign_point_leads_to_a_point_of_ours_and_is_none_itself() -> None:
    assert set(FOREIGN_POINTS.values()) <= POINTS.keys()
    assert FOREIGN_POINTS.keys() & {*POINTS, *ALIASES} == set()
    assert [name for name in FOREIGN_POINTS if not is_foreign(name)] == []
