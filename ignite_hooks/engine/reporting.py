"""The report of the run, with the findings of its hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ignite_hooks.hooks.base_hook import BaseHook
from ignite_hooks.text import one_line

if TYPE_CHECKING:
    from ignite_hooks.engine.dispatch import Dispatcher
    from ignite_hooks.run.report import Report
    from ignite_hooks.run.runner import Runner


def report_with_findings(dispatcher: Dispatcher, runner: Runner) -> Report:
    """Return the report of the calls so far, with what each hook has found."""
    report, hooks = dispatcher.report, runner.hooks.registered
    findings = {name: _findings(name, hook, runner) for name, hook in hooks.items() if name not in dispatcher.off}
    report.findings = {name: found for name, found in findings.items() if found}
    return report


def _findings(name: str, hook: object, runner: Runner) -> list[str]:
    if not isinstance(hook, BaseHook):
        return []
    try:
        return list(hook.findings())
    except Exception as error:
        runner.logger.warning("%s cannot say what it has found: %s", name, one_line(error))
        return []
