"""Trees of mappings and lists are copied within limits; other objects stay the same."""

from __future__ import annotations

import sys
from collections import OrderedDict, namedtuple
from types import MappingProxyType, ModuleType
from typing import Any

import pytest

from ignite_hooks.config.tree import copy_tree
from ignite_hooks.errors import ConfigError


def test_containers_are_copied_and_objects_kept() -> None:
    model = object()
    pair = namedtuple("pair", "a b")(1, 2)
    given = OrderedDict(hooks=(model, {"x": [1]}), names=MappingProxyType({0: "cat"}), pair=pair)
    copied = copy_tree(given)
    assert copied == {"hooks": [model, {"x": [1]}], "names": {0: "cat"}, "pair": pair}
    assert type(copied) is dict
    assert copied["pair"] is pair
    copied["hooks"][1]["x"].append(2)
    assert given["hooks"][1] == {"x": [1]}


def test_a_repeated_container_is_copied_each_time() -> None:
    part = {"x": 1}
    copied = copy_tree([part, part])
    assert copied == [part, part]
    assert copied[0] is not copied[1]


def test_cycles_depth_and_explosions_are_refused() -> None:
    cycle: dict[str, Any] = {"a": []}
    cycle["a"].append(cycle)
    with pytest.raises(ConfigError, match=r"^a\[0\]: contains itself"):
        copy_tree(cycle)
    deep: list[Any] = []
    wide: list[Any] = [1]
    for _ in range(100):
        deep = [deep]
    for _ in range(9):
        wide = [wide] * 9
    with pytest.raises(ConfigError, match="nested too deeply"):
        copy_tree({"a": deep})
    with pytest.raises(ConfigError, match="too much data"):
        copy_tree({"a": wide})


@pytest.fixture
def omegaconf(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Provide the four names of OmegaConf that are used, as it is not a dependency."""

    class DictConfig:
        def __init__(self, content: Any) -> None:
            self.content = content

    DictConfig.__module__ = "omegaconf.dictconfig"

    class OmegaConfBaseException(Exception):
        pass

    class OmegaConf:
        @staticmethod
        def is_config(value: Any) -> bool:
            return isinstance(value, DictConfig)

        @staticmethod
        def to_container(value: DictConfig, *, resolve: bool, throw_on_missing: bool) -> Any:
            if value.content is None:
                raise OmegaConfBaseException("Missing mandatory value: lr\n    full_key: lr")
            return value.content

    module = ModuleType("omegaconf")
    vars(module).update(DictConfig=DictConfig, OmegaConf=OmegaConf, errors=ModuleType("omegaconf.errors"))
    vars(module.errors).update(OmegaConfBaseException=OmegaConfBaseException)
    monkeypatch.setitem(sys.modules, "omegaconf", module)
    return module


def test_omegaconf_is_resolved(omegaconf: Any) -> None:
    config = omegaconf.DictConfig({"hooks": ({"type": "A"},)})
    assert copy_tree(config) == {"hooks": [{"type": "A"}]}
    assert copy_tree({"a": config}) == {"a": {"hooks": [{"type": "A"}]}}
    with pytest.raises(ConfigError, match=r"^a: OmegaConf cannot resolve .*: Missing mandatory value: lr"):
        copy_tree({"a": omegaconf.DictConfig(None)})
