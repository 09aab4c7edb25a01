"""What mkdocstrings has to know of our docstrings; it is loaded by the builder of the site, and imports no torch."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension


class Docstrings(Extension):
    """Replaces ``Example:`` in docstrings by ``Examples:``, the only form that the parser knows."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of an object, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
