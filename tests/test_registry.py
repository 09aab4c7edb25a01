"""Every usual spelling of registering a hook, and what is refused."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ignite_hooks
from ignite_hooks.registry import HOOKS, WRITERS, Registry


@pytest.fixture
def toys() -> Registry:
    return Registry("toy", {"OrderedDict": "collections", "Broken": "no_such_module_of_ours"})


class Ball: ...


class Rope: ...


def test_the_decorator_with_brackets(toys: Registry) -> None:
    assert toys.register_module()(Ball) is Ball
    assert toys.get("Ball") is Ball


def test_the_decorator_without_brackets(toys: Registry) -> None:
    assert toys.register_module(Ball) is Ball  # type: ignore[type-var]
    assert toys.register(Rope) is Rope  # type: ignore[type-var]
    assert toys.get("Ball") is Ball
    assert toys.get("Rope") is Rope


def test_the_decorator_with_a_name(toys: Registry) -> None:
    assert toys.register("Sphere")(Ball) is Ball
    assert toys.register_module(name="Globe")(Ball) is Ball
    assert toys.get("Sphere") is toys.get("Globe") is Ball
    assert "Ball" not in toys


def test_a_list_of_names(toys: Registry) -> None:
    toys.register_module(["Sphere", "Globe"])(Ball)
    assert toys.get("Sphere") is toys.get("Globe") is Ball
    assert toys.register_module(name=("A", "B"), module=Rope) is Rope
    assert toys.get("A") is toys.get("B") is Rope


def test_a_call_with_module(toys: Registry) -> None:
    assert toys.register_module(module=Ball) is Ball
    assert toys.register_module("Sphere", module=Ball) is Ball
    assert toys.register_module(name="Sphere", force=True, module=Rope) is Rope
    assert (toys.get("Ball"), toys.get("Sphere")) == (Ball, Rope)


def test_a_function_can_be_registered(toys: Registry) -> None:
    @toys.register()
    def make() -> Ball:
        return Ball()

    assert isinstance(toys.get("make")(), Ball)


def test_a_name_is_given_once_unless_forced(toys: Registry) -> None:
    toys.register("Ball")(Ball)
    with pytest.raises(
        KeyError, match=r"toy 'Ball' is already registered by .*test_registry: use another name or force"
    ):
        toys.register("Ball")(Rope)
    assert toys.get("Ball") is Ball
    toys.register("Ball", force=True)(Rope)
    assert toys.get("Ball") is Rope


def test_the_same_class_may_be_registered_again(toys: Registry) -> None:
    toys.register()(Ball)
    toys.register()(Ball)
    assert list(toys).count("Ball") == 1


def test_a_refused_list_of_names_registers_none(toys: Registry) -> None:
    toys.register("B")(Ball)
    with pytest.raises(KeyError):
        toys.register(["A", "B"])(Rope)
    assert "A" not in toys


def test_a_cell_that_is_run_again_replaces_its_class(toys: Registry) -> None:
    first, second = (type("Mine", (), {"__module__": "__main__"}) for _ in range(2))
    toys.register()(first)
    toys.register()(second)
    assert toys.get("Mine") is second


def test_a_module_that_is_reloaded_replaces_its_class(
    toys: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toys_of_a_script.py").write_text(
        "import toys_here\n\n@toys_here.TOYS.register_module()\nclass Mine:\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "toys_here", SimpleNamespace(TOYS=toys))
    module = importlib.import_module("toys_of_a_script")
    monkeypatch.setitem(sys.modules, "toys_of_a_script", module)
    first = toys.get("Mine")
    importlib.reload(module)
    assert toys.get("Mine") is module.Mine is not first


def test_two_classes_of_one_module_cannot_share_a_name(toys: Registry) -> None:
    toys.register("Mine")(Ball)
    with pytest.raises(KeyError, match="already registered"):
        toys.register("Mine")(Rope)


def test_a_built_in_name_is_always_taken(toys: Registry) -> None:
    with pytest.raises(KeyError, match="already registered by collections"):
        toys.register("OrderedDict")(Ball)
    assert toys.get("OrderedDict").__name__ == "OrderedDict"
    with pytest.raises(KeyError, match="already registered by collections"):
        toys.register("OrderedDict")(Ball)
    toys.register("OrderedDict", force=True)(Ball)
    assert toys.get("OrderedDict") is Ball


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda toys: toys.register(3), "registered under a name, or a list of names, not 3"),
        (lambda toys: toys.register("")(Ball), "registered under a name, not ''"),
        (lambda toys: toys.register(["A", 3])(Ball), "registered under a name, not 3"),
        (lambda toys: toys.register(module=3), "only a class can be registered as a toy, not 3"),
        (lambda toys: toys.register("A")(3), "only a class can be registered as a toy, not 3"),
        (lambda toys: toys.register()(None), "only a class can be registered as a toy, not None"),
    ],
)
def test_what_cannot_be_registered(toys: Registry, call: Any, message: str) -> None:
    before = list(toys)
    with pytest.raises(TypeError, match=message):
        call(toys)
    assert list(toys) == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OrderdDict", "no toy is called 'OrderdDict', did you mean 'OrderedDict'?"),
        ("zzz", "no toy is called 'zzz'; there are Broken, OrderedDict"),
        (3, "no toy is called 3; there are Broken, OrderedDict"),
        (None, "no toy is called None; there are Broken, OrderedDict"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(toys: Registry, name: Any, message: str) -> None:
    with pytest.raises(LookupError) as caught:
        toys.get(name)
    assert caught.value.args == (message,)


def test_a_long_list_of_names_is_not_printed() -> None:
    many = Registry("toy", {f"A{i:030}": "collections" for i in range(20)})
    with pytest.raises(LookupError) as caught:
        many.get("zzz")
    assert len(str(caught.value)) < 100


def test_a_module_that_cannot_be_loaded_is_reported_when_named(toys: Registry) -> None:
    assert "Broken" in toys
    with pytest.raises(ModuleNotFoundError):
        toys.get("Broken")


def test_a_registry_is_a_collection_of_names(toys: Registry) -> None:
    toys.register()(Ball)
    assert list(toys) == ["Ball", "Broken", "OrderedDict"]
    assert len(toys) == 3
    assert 3 not in toys
    assert repr(toys) == "Registry(toy: Ball, Broken, OrderedDict)"


def test_the_three_names_are_one_registry() -> None:
    from ignite_hooks.hooks import HOOK_REGISTRY, HOOKS, BaseHook, Hook, HookRegistry, build_hook, build_hooks
    from ignite_hooks.hooks.registry import HookRegistry as Again

    assert HOOKS is HOOK_REGISTRY is HookRegistry is Again is ignite_hooks.HOOKS is ignite_hooks.HookRegistry
    assert Hook is BaseHook is ignite_hooks.BaseHook
    assert build_hook is ignite_hooks.build_hook
    assert build_hooks is ignite_hooks.build_hooks


def test_every_hook_and_writer_can_be_loaded_under_its_name() -> None:
    for registry in (HOOKS, WRITERS):
        for name, module in registry._modules.items():
            assert registry.get(name) is getattr(importlib.import_module(module), name)


def test_every_hook_class_is_an_attribute_of_the_package() -> None:
    from ignite_hooks import hooks

    for name in HOOKS._modules:
        assert getattr(ignite_hooks, name) is getattr(hooks, name) is HOOKS.get(name)
    with pytest.raises(AttributeError):
        ignite_hooks.NoSuchHook
    with pytest.raises(AttributeError):
        hooks.NoSuchHook  # type: ignore[attr-defined]


def test_a_hook_is_loaded_when_it_is_named() -> None:
    code = """
import sys, ignite_hooks
from ignite_hooks import HOOKS
loaded = lambda: {m.rsplit(".", 1)[1] for m in sys.modules if m.startswith("ignite_hooks.hooks.")}
assert "checkpoint_hook" not in loaded(), loaded()
HOOKS.get("CheckpointHook")
assert "checkpoint_hook" in loaded() and "early_stopping_hook" not in loaded()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_a_script_may_take_an_alias_of_ours() -> None:
    toys = Registry("toy", {"LoggerHook": "ignite_hooks.hooks.logger_hook"}, {"LogHook": "LoggerHook"})
    assert toys.get("LogHook") is toys.get("LoggerHook")
    assert list(toys) == ["LogHook", "LoggerHook"]

    @toys.register()
    class LogHook: ...

    assert toys.get("LogHook") is LogHook
    with pytest.raises(KeyError, match="already registered by ignite_hooks"):
        toys.register("LoggerHook")(LogHook)


def test_names_that_guides_let_scripts_define_are_free() -> None:
    toys = Registry(
        "toy",
        {"CheckInvalidLossHook": "ignite_hooks.hooks.training.check_invalid_loss_hook"},
        free=["CheckInvalidLossHook"],
    )
    assert toys.get("CheckInvalidLossHook") is HOOKS.get("CheckInvalidLossHook")

    @toys.register_module()
    class CheckInvalidLossHook: ...

    assert toys.get("CheckInvalidLossHook") is CheckInvalidLossHook


def test_the_names_of_the_third_specification_mean_ours() -> None:
    assert HOOKS.get("LogHook") is HOOKS.get("LoggerHook")
    assert HOOKS.get("CheckPointHook") is HOOKS.get("CheckpointHook")


def plugin(folder: Path, package: str, offers: str, code: str = "") -> None:
    """Install a package of one module with entry points, as pip would."""
    (folder / f"{package}.py").write_text(code)
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(offers)


def test_a_plugin_is_found_by_a_name_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "class BeepHook:\n    pass\n\nSILENT = 3\n"
    offers = "[toys]\nBeepHook = beeps_plugin:BeepHook\nSilent = beeps_plugin:SILENT\nBroken = no_such_plugin:X\n"
    plugin(tmp_path, "beeps_plugin", offers, code)
    monkeypatch.syspath_prepend(tmp_path)
    toys = Registry("toy", {"OrderedDict": "collections"}, plugins="toys")
    assert "BeepHook" not in toys
    assert toys.is_plugin("BeepHook")
    assert not toys.is_plugin("OrderedDict")
    assert "beeps_plugin" not in sys.modules
    cls = toys.get("BeepHook")
    assert cls is sys.modules["beeps_plugin"].BeepHook is toys.get("BeepHook")
    monkeypatch.delitem(sys.modules, "beeps_plugin")
    with pytest.raises(LookupError, match=r"no toy is called 'BepHook', did you mean 'BeepHook'\?"):
        toys.get("BepHook")
    with pytest.raises(LookupError, match="the toy 'Silent' of an installed package is 3, not a class"):
        toys.get("Silent")
    with pytest.raises(ModuleNotFoundError, match="no_such_plugin"):
        toys.get("Broken")
    with pytest.raises(LookupError, match="no toy is called"):
        Registry("toy", {}, plugins="others").get("BeepHook")


def test_two_plugins_with_one_name_are_not_chosen_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("one_plugin", "other_plugin"):
        plugin(tmp_path, package, f"[toys]\nBeepHook = {package}:BeepHook\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LookupError, match=r"in more than one installed package: one_plugin \(.*\) and other_plugin \("):
        Registry("toy", {}, plugins="toys").get("BeepHook")


def test_known_names_read_no_plugins(toys: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HOOKS, "_plugins", lambda: pytest.fail("the plugins were read"))
    assert HOOKS.get("EMAHook") is HOOKS.get("mmengine.EMAHook")
    assert HOOKS.get("LogHook") is HOOKS.get("LoggerHook")
    assert "NoSuchHook" not in HOOKS
