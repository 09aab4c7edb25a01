"""A configuration of several files is what one file would say, and what cannot be joined is an error with its place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from ignite_hooks.cli.validate import review_file
from ignite_hooks.config.composition import MOST_FILES, merged
from ignite_hooks.config.connected.comparison import foreign_imports
from ignite_hooks.config.connected.connect import text_in
from ignite_hooks.config.files import load_config
from ignite_hooks.errors import ConfigError

ROOT = Path(__file__).parents[2]
LOGGER, EMA = {"type": "LoggerHook", "interval": 5}, {"type": "EMAHook", "name": "slow", "momentum": 0.99}


def written(folder: Path, files: dict[str, str]) -> Path:
    """Write files, and return the path of the first."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / next(iter(files))


@pytest.mark.parametrize(
    ("base", "above", "together"),
    [
        ({"seed": 1}, {"work_dir": "a"}, {"seed": 1, "work_dir": "a"}),
        ({"seed": 1}, {"seed": 2}, {"seed": 2}),
        ({"seed": 1}, {"seed": None}, {}),
        ({}, {"seed": None}, {"seed": None}),
        ({"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"c": 3}}}, {"a": {"b": {"c": 3, "d": 2}}}),
        ({"a": {"b": {"c": 1}, "e": 1}}, {"a": {"b": None}}, {"a": {"e": 1}}),
        ({"a": {"b": 1}}, {"a": 1}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": {"type": "x", "b": 1}}, {"a": {"type": "y"}}, {"a": {"type": "y", "b": 1}}),
        ({"a": {"type": "x", "b": 1}}, {"a": {"_delete_": True, "type": "y"}}, {"a": {"type": "y"}}),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"_delete_": True, "d": {"_delete_": True}}}}, {"a": {"b": {"d": {}}}}),
        ({}, {"a": {"_delete_": True, "type": "y"}}, {"a": {"type": "y"}}),
        ({"names": {0: "cat"}}, {"names": {1: "dog"}}, {"names": {0: "cat", 1: "dog"}}),
        # There None takes a hook out of the default set: it has to stay.
        ({"default_hooks": {"ema": {}}}, {"default_hooks": {"ema": None}}, {"default_hooks": {"ema": None}}),
        (
            {"default_hooks": {"logger": {"interval": 5, "to_file": True}}},
            {"default_hooks": {"logger": {"interval": None}}},
            {"default_hooks": {"logger": {"to_file": True}}},
        ),
    ],
    ids=str,
)
def test_mappings_are_joined_key_by_key(base: Any, above: Any, together: Any) -> None:
    before = repr((base, above))
    assert merged(base, above, "c.yaml") == together
    assert repr((base, above)) == before


@pytest.mark.parametrize(
    ("base", "above", "together"),
    [
        ([LOGGER, EMA], ["LoggerHook"], ["LoggerHook"]),
        ([LOGGER, EMA], {"LoggerHook": {"interval": 9}}, [{**LOGGER, "interval": 9}, EMA]),
        ([LOGGER, EMA], {"slow": {"momentum": None}}, [LOGGER, {"type": "EMAHook", "name": "slow"}]),
        ([LOGGER, EMA], {"slow": None}, [LOGGER]),
        ([EMA], {"slow": {"_delete_": True, "warm_up": 3}}, [{"type": "EMAHook", "name": "slow", "warm_up": 3}]),
        ([], {"SWAHook": {"_delete_": True}}, [{"type": "SWAHook"}]),
        (["LoggerHook"], {"LoggerHook": {"interval": 9}}, [{"type": "LoggerHook", "interval": 9}]),
        ([LOGGER], {"SWAHook": {"start": 3}}, [LOGGER, {"type": "SWAHook", "start": 3}]),
        ([LOGGER], {"type": "SWAHook"}, {"type": "SWAHook"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("key", ["hooks", "custom_hooks", "writers"])
def test_entries_of_a_list_are_changed_by_name(key: str, base: Any, above: Any, together: Any) -> None:
    assert merged({key: base}, {key: above}, "c.yaml") == {key: together}


@pytest.mark.parametrize(
    ("base", "above", "message"),
    [
        ([LOGGER], {"LogerHook": None}, "hooks.LogerHook: the base has none of this name to remove, did you mean"),
        ([EMA, EMA], {"slow": {"momentum": 0.9}}, "hooks.slow: the base has 2 of this name: give each a 'name'"),
    ],
)
def test_a_name_in_vain_is_an_error(base: Any, above: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        merged({"hooks": base}, {"hooks": above}, "c.yaml")
    assert f"c.yaml: {message}" in str(caught.value)


def test_bases_of_every_format_lie_anywhere_in_the_tree_and_the_later_one_wins(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "runs/mine.yaml": "_base_: [../common.json, speed/fast.toml]\nseed: 3\n",
            "common.json": '{"_base_": "deep/er/list.yaml", "seed": 1, "work_dir": "a", "lr": 0.1}',
            "deep/er/list.yaml": "- LoggerHook\n",
            "runs/speed/fast.toml": '_base_ = "own.py"\nlr = 0.2\n',
            "runs/speed/own.py": "_base_ = ['../../common.json']\n_private = 1\nwork_dir = 'b'\n",
        },
    )
    assert load_config(path) == {"hooks": ["LoggerHook"], "seed": 3, "work_dir": "b", "lr": 0.2}


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("https://example.org/base.yaml", "is a URL: it takes a path relative to this file"),
        ("s3://bucket/base.yaml", "is a URL"),
        ("/etc/base.yaml", "is true on one machine only"),
        ("~/base.yaml", "is true on one machine only"),
        ("C:/base.yaml", "is true on one machine only"),
        ("''", "takes a path relative to this file, or a list of them"),
        ("[]", "takes a path"),
        ("5", "takes a path"),
        ("[{a: b}]", "takes a path"),
        ("mine.yaml", "begins with this file again: a circle has no beginning"),
        ("link.yaml", "begins with this file again"),
        ("circle.yaml", "circle.yaml: _base_: './mine.yaml' begins with this file again"),
        ("again.yaml", f"more than {MOST_FILES} files"),
        ("basse.yaml", "no such file in"),
        ("broken.yaml", "broken.yaml:3"),
        (".", "suffix '' is not supported"),
    ],
)
def test_a_base_that_cannot_be_one_says_why(tmp_path: Path, named: str, message: str) -> None:
    bombs = {f"again{i or ''}.yaml": f"_base_: [again{i + 1}.yaml, again{i + 1}.yaml]\n" for i in range(40)}
    path = written(
        tmp_path,
        {
            "mine.yaml": f"_base_: {named}\n",
            "circle.yaml": "_base_: ./mine.yaml\n",
            "broken.yaml": "a: 1\nb: [\n",
            "again40.yaml": "a: 1\n",
            **bombs,
        },
    )
    os.symlink("mine.yaml", tmp_path / "link.yaml")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert message in str(caught.value)


def test_the_merged_configuration_is_what_is_shown_elsewhere(tmp_path: Path) -> None:
    path = written(tmp_path, {"mine.yaml": "_base_: b.yaml\nseed: 3\n", "b.yaml": "# _base_ is a word here\nseed: 1\n"})
    assert text_in(path) is None, "a task shows all of it as YAML"
    assert text_in(tmp_path / "b.yaml") == "# _base_ is a word here\nseed: 1\n"
    assert foreign_imports({"_base_": "../secrets.yaml"}, load_config(path)) != []


def test_the_example_is_the_file_that_it_stands_for() -> None:
    own = yaml.safe_load((ROOT / "configs" / "with_base.yaml").read_text())
    base, content = load_config(ROOT / "configs" / own["_base_"]), load_config(ROOT / "configs" / "with_base.yaml")
    assert content["model"] == {"type": own["model"]["type"]}
    assert content["dataset"] == base["dataset"]
    assert content["training"]["optimizer"] == {
        **base["training"]["optimizer"],
        "lr": own["training"]["optimizer"]["lr"],
    }
    assert "clip_grad" not in content["training"]
    assert [hook["type"] for hook in content["custom_hooks"]] == ["EarlyStoppingHook", "EMAHook"]
    assert review_file(str(ROOT / "configs" / "with_base.yaml")).problems == []
