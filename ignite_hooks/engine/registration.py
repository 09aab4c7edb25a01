"""Adds one hook to a runner: everything that must be right before it is called for the first time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ignite_hooks.engine.attachments import of_another_trainer
from ignite_hooks.engine.handlers import tracking_new_handlers
from ignite_hooks.errors import ConfigError, Problem, SettingError
from ignite_hooks.hooks.base_hook import BaseHook
from ignite_hooks.plan.hook_problems import problems_of
from ignite_hooks.plan.hook_settings import give
from ignite_hooks.plan.methods import default_name, own_method
from ignite_hooks.results.better import rule_for
from ignite_hooks.run.ranking import canonical
from ignite_hooks.text import setting_place

if TYPE_CHECKING:
    from ignite_hooks.run.runner import Runner


def add_hook(
    runner: Runner,
    hook: Any,
    name: str | None,
    priority: object,
    on_detach: list[Callable[[], None]],
    *,
    is_checked: bool = False,
) -> None:
    """Check that a hook can run here, and add it to the hooks of a runner, which still needs a new plan.

    Args:
        runner: The runner.
        hook: The hook.
        name: Its name; by default what it says itself.
        priority: Its priority; by default what it says itself.
        on_detach: Receives functions that remove the handlers it adds to the engines.
        is_checked: Whether nothing is wrong with its points, priorities and schedule, as was found just now.
    """
    name = name or getattr(hook, "name", None) or default_name(hook)
    if name in runner.hooks.registered:
        raise ConfigError([Problem(name, "there is already a hook of this name: give one of them a name")])
    if shared := of_another_trainer(hook, name):
        raise ConfigError([shared])
    before = getattr(hook, "priority", None)
    if priority is not None:
        try:
            give(hook, "priority", priority)
        except SettingError as error:
            raise ConfigError([Problem(setting_place(name, error.setting), error.message)]) from error
    problems = [] if is_checked else problems_of(hook)
    if runner.state.running and getattr(type(hook), "begins_with_run", False):
        problems.append(("", "must be there when the run begins: register it before, or give it to attach_hooks()"))
    if problems:
        if priority is not None:
            hook.priority = before
        raise ConfigError([Problem(setting_place(name, setting), message) for setting, message in problems])
    hand_runner(hook, runner)
    try:
        for metric, rule in hook.monitors().items() if isinstance(hook, BaseHook) else ():
            runner.best.watch(canonical(metric, runner.evaluators), rule_for(metric, rule))
        runner.hooks.registered = {**runner.hooks.registered, name: hook}
        attached = own_method(type(hook), "attached")
        if attached:
            with tracking_new_handlers([runner.trainer, *runner.evaluators.values()], on_detach):
                attached(hook)
    except BaseException:
        hand_runner(hook, None)
        raise


def hand_runner(hook: Any, runner: Runner | None) -> None:
    """Give a hook its runner, or take it away."""
    if isinstance(hook, BaseHook):
        # Also if it is frozen.
        BaseHook.runner.__set__(hook, runner)  # type: ignore[attr-defined]
        return
    # A frozen or slotted object has no room for it; its methods receive it as a parameter.
    with contextlib.suppress(AttributeError, TypeError):
        hook.runner = runner
