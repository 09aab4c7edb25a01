"""The conversion of a hook follows from its name and settings."""

from __future__ import annotations

import pytest

from ignite_hooks.cli.mmengine_rules import MMENGINE_DEFAULTS, NO_COUNTERPART, OF_ITSELF, RULES, rule_of
from ignite_hooks.config.describe import describe
from ignite_hooks.registry import HOOKS


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"save_best": "coco/AP"}, None),
        ({"save_best": "myaccount"}, "greater"),
        ({"save_best": ["glossy", "loss"]}, "less"),
        ({"save_best": ["glossy", "myaccount"]}, None),
        ({"save_best": "myaccount", "rule": "less"}, None),
        ({"save_best": "auto"}, None),
        ({"save_best": "height"}, None),
        ({}, None),
    ],
)
def test_the_rule_that_mmengine_finds_is_written_where_ours_finds_none(
    settings: dict[str, object], rule: str | None
) -> None:
    added = rule_of("CheckpointHook", settings).added
    assert added.get("rule", (None,))[0] == rule


@pytest.mark.parametrize("name", RULES)
def test_every_name_in_the_rules_is_a_setting_of_ours(name: str) -> None:
    rule = RULES[name]
    known = describe(HOOKS.get(rule.type or name))
    ours = {setting.name for setting in (*known.common, *known.settings)}
    assert {*rule.renamed.values(), *rule.added, *(rule.renamed.get(key, key) for key in rule.defaults)} <= ours


def test_the_default_hooks_there_exist_here_or_are_explained() -> None:
    assert all(name in HOOKS or name in NO_COUNTERPART or name in OF_ITSELF for name in MMENGINE_DEFAULTS.values())
