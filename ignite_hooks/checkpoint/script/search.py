"""One search for what a script has attached, shared by all that ask before any code of the script runs again."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ignite_hooks.checkpoint.script.objects import (
    Held,
    ScriptObject,
    held_by_handlers,
    known_memory,
    script_objects,
    script_variables,
)

if TYPE_CHECKING:
    from ignite_hooks.checkpoint.script.variables import Variable
    from ignite_hooks.run.runner import Runner


class Search:
    """What a script has attached at one moment; each part is looked for when it is first asked for.

    Args:
        runner: The run.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @cached_property
    def held(self) -> list[Held]:
        """What its handlers hold."""
        return held_by_handlers(self._runner)

    @cached_property
    def objects(self) -> list[ScriptObject]:
        """What keeps a state and is saved in no other way."""
        return script_objects(self._runner, self.held)

    @cached_property
    def variables(self) -> list[Variable]:
        """Where it keeps values; what they are is read when they are needed."""
        return script_variables(self._runner, self.objects)

    @cached_property
    def memory(self) -> set[int]:
        """Where the content is of the weights and buffers that are saved in another way."""
        return known_memory(self._runner, self.objects)
