"""The methods with which a hook answers points."""

from __future__ import annotations

import numpy
from ignite.metrics import Loss

from ignite_hooks.plan.methods import method_of
from ignite_hooks.plan.priority import Priority


def test_a_method_is_one_of_the_class_whatever_an_object_answers() -> None:
    metric = Loss(numpy.mean)
    assert hasattr(metric, "how_often")
    assert method_of(metric, "how_often") is None
    assert method_of(metric, "attach") is Loss.attach
    assert method_of(Priority.HIGH, "name") is None
