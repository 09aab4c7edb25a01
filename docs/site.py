"""Makes pages of the site from what is kept elsewhere: README, changelog, gallery, and the docstrings of hooks."""

from __future__ import annotations

import itertools
import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from griffe import Extension

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EXECUTED = ROOT / ".cache" / "notebooks"
"""Where `executed.py` leaves copies with outputs."""
TAKEN = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "gallery.md": "docs/gallery/README.md"}
TAKEN |= {f"notebooks/{path.stem}.md": f"notebooks/{path.name}" for path in NOTEBOOKS}
"""Pages that are files of the repository."""
PAGES = {source: page for page, source in TAKEN.items()} | {
    path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix()
    for path in (*ROOT.glob("docs/*.md"), *ROOT.glob("docs/decisions/*.md"))
}
"""The pages of the site, by their files in the repository."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")
_SIGNS = re.compile("[_*]")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


class Docstrings(Extension):
    """Replaces ``Example:`` in docstrings by ``Examples:``, the only form that the parser knows."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of an object, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that have no file in ``docs``."""
    from mkdocs.structure.files import File

    for page, source in TAKEN.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".ipynb"):
            executed = EXECUTED / Path(source).name
            content = notebook_page(json.loads(executed.read_text(encoding="utf-8") if executed.exists() else content))
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn a file that was written for the repository into a page."""
    name = page.file.src_uri
    if name == "hooks.md":
        return markdown.replace("<!-- hooks -->", hooks())
    if name == "sections.md":
        markdown = markdown.replace("<!-- sections -->", sections())
    return for_the_site(markdown, TAKEN.get(name, f"docs/{name}"))


def notebook_page(notebook: Mapping[str, Any]) -> str:
    """Return a notebook as a page: its texts, its code, and what that shows."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        # A kernel sends what is printed in pieces.
        shown = [_output(output) for output in cell.get("outputs", [])]
        for is_text, group in itertools.groupby(shown, key=lambda one: isinstance(one, list)):
            pieces = [*group]
            text = "".join(itertools.chain.from_iterable(pieces)).strip()
            parts += [f"```text\n{text}\n```"] if is_text else pieces
    return "\n\n".join(parts) + "\n"


def _output(output: Mapping[str, Any]) -> Any:
    """Return an output as markup, or as a list with a text."""
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img src="data:image/png;base64,{"".join(data["image/png"]).strip()}" alt="output">'
    if "text/html" in data:
        # The files that a panel links to are not on the site.
        plain = re.sub(r'<a href="\./[^"]*">(.*?)</a>', r"\1", "".join(data["text/html"]))
        return f'<div class="output">{" ".join(plain.split(chr(10)))}</div>'
    text = "".join(output.get("text", data.get("text/plain", output.get("traceback", ""))))
    return [re.sub(r"\x1b\[[0-9;]*m", "", text)]


def for_the_site(markdown: str, source: str) -> str:
    """Return a file of the repository as a page of the site.

    Links to pages stay links, hooks lead to the page of all hooks, and other files are named, as the site does not
    have them. Code is left alone.
    """
    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _relinked(part, source) for part in parts)


def _relinked(text: str, source: str) -> str:
    folder = posixpath.dirname(source)
    page_folder = posixpath.dirname(next((page for page, file in TAKEN.items() if file == source), source[5:]))

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in PAGES:
            return f"[{words}]({posixpath.relpath(PAGES[path], page_folder or '.')}{anchor or ''})"
        if path.startswith("ignite_hooks/hooks/") and words.endswith("Hook`"):
            return f"[{words}]({posixpath.relpath('hooks.md', page_folder or '.')}#{words.strip('`').lower()})"
        if path.startswith("docs/"):
            return found.group()
        return words if "`" in words else f"`{path}`"

    text = _LINK.sub(link, text)
    if source.startswith("docs/gallery"):
        return text.replace("](", "](gallery/")
    return text if folder else text.replace('src="docs/', 'src="').replace("](docs/", "](")


def hooks() -> str:
    """Return the page of all hooks with their settings, as the registry knows them."""
    from ignite_hooks.config.describe import describe
    from ignite_hooks.registry import HOOKS

    parts = []
    for name in HOOKS:
        cls: Any = HOOKS.get(name)
        known = describe(cls)
        if known.name == name and cls.__module__.startswith("ignite_hooks."):
            parts.append(_hook(name, cls, known))
    return "\n".join(parts)


def sections() -> str:
    """Return the sections of a trainer and everything that they can name, with the settings of each."""
    from ignite_hooks.trainer import registries
    from ignite_hooks.trainer.sections import Evaluation, Training

    registries_of = {
        "model": registries.MODELS,
        "dataset": registries.DATASETS,
        "training.optimizer": registries.OPTIMIZERS,
        "training.scheduler": registries.SCHEDULERS,
        "training.criterion": registries.CRITERIA,
        "evaluation.metrics": registries.METRICS,
    }
    parts = []
    for key, cls in (("training", Training), ("evaluation", Evaluation)):
        parts += [f"## {key}", "", *_prose(cls), "", *_table(cls), ""]
    for key, registry in registries_of.items():
        parts += [f"## {key}", ""]
        made = {name: registry.get(name) for name in registry}
        for name, make in made.items():
            others = [other for other, thing in made.items() if thing is make and other != name]
            if others and name != getattr(make, "__name__", name):
                continue
            also = f" Also: {', '.join(f'`{other}`' for other in others)}." if others else ""
            ours = make.__module__.startswith("ignite_hooks.")
            source = registry.source_of(name)
            # The help of others is not written for a table.
            prose = _prose(make) if ours or source is None else [f"`{source[0]}.{source[1]}`."]
            parts += [f"### {name}", "", *prose[:-1], prose[-1] + also, "", *_table(make), ""]
    return "\n".join(parts)


SUPPLIED = ("params", "optimizer", "criterion")
"""Settings that a trainer supplies."""


def _table(make: Any) -> list[str]:
    """Return the settings of a section or of what it names, as a table."""
    from ignite_hooks.config.describe import describe, type_in_words

    of_section = make.__name__ == "Training"
    own = [each for each in describe(make).settings if each.name not in SUPPLIED or of_section]
    lines = ["| setting | default | what it is |", "|---|---|---|"] if own else []
    for each in own:
        default = "needed" if each.required else f"`{_plain(each.default)}`"
        text = _cell(each.help) if make.__module__.startswith("ignite_hooks.") else ""
        lines.append(f"| `{each.name}` | {default} | {text} *{_cell(type_in_words(each.annotation))}* |")
    return lines


RESTATED = ("name", "priority", "on_error")


def _hook(name: str, cls: Any, known: Any) -> str:
    from ignite_hooks.config.describe import type_in_words
    from ignite_hooks.plan.priority import Priority

    lines = [f"## {name}", "", *_prose(cls), ""]
    own = [setting for setting in known.settings if setting.name not in RESTATED]
    if own:
        lines += ["| setting | default | what it is |", "|---|---|---|"]
    for setting in own:
        default = "needed" if setting.required else f"`{_plain(setting.default)}`"
        lines.append(
            f"| `{setting.name}` | {default} | {_cell(setting.help)} *{_cell(type_in_words(setting.annotation))}* |"
        )
    priority = Priority.value_of(cls.priority) if not isinstance(cls.priority, dict) else cls.priority
    facts = {"priority": f"{priority}", "a failure": {"raise": "ends the run", "warn": "warns"}.get(cls.on_error, "")}
    facts |= {"reads": known.reads, "writes": known.writes, "saves": known.saves}
    facts["points"] = ", ".join(f"`{point}`" for point in known.points)
    lines += ["", *(f"- **{word}**: {_outside(text)}" for word, text in facts.items() if text), ""]
    return "\n".join([*lines, *_example(name), ""])


def _example(name: str) -> list[str]:
    """Return the example configuration of a hook."""
    for path in sorted((ROOT / "configs").glob("**/*.yaml")):
        if path.stem.replace("_", "") == name.lower():
            text = re.sub(r"^# yaml-language-server:.*\n+", "", path.read_text(encoding="utf-8"))
            return [f"`{path.relative_to(ROOT)}`:", "", "```yaml", text.strip(), "```", ""]
    return []


def _prose(cls: Any) -> list[str]:
    """Return the paragraphs of a docstring before its sections."""
    import inspect

    text = inspect.getdoc(cls) or ""
    return [
        _outside(
            re.split(r"^(?:Args|Reads|Writes|Saves|Example):", text, flags=re.MULTILINE)[0].strip().replace("``", "`")
        )
    ]


def _plain(value: Any) -> str:
    words: dict[Any, str] = {None: "null", True: "true", False: "false"}
    return words.get(value, str(value)) if value is None or isinstance(value, bool) else str(value).replace("|", "\\|")


def _cell(text: str) -> str:
    return _outside(" ".join(text.split()).replace("|", "\\|").replace("``", "`"))


def _outside(text: str) -> str:
    """Escape elements and emphasis outside of code, such as ``<name>_of_<file>``."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else _SIGNS.sub(r"\\\g<0>", part).replace("<", "&lt;") for part in parts
    )
