"""The files that a hub of models shows and reads: ``README.md`` with its front matter, and ``config.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from torch.nn import Module

from ignite_hooks.text import counted, number
from ignite_hooks.version import __version__

PAGE: Final = "README.md"
NEW_PAGE: Final = "README.new.md"
CONFIG: Final = "config.json"
CURVES: Final = "curves.png"
PIPELINES: Final = {
    "classification": "image-classification",
    "detection": "object-detection",
    "segmentation": "image-segmentation",
}
"""The words of hubs for tasks whose inputs are images."""
TO_WRITE: Final = "*To be written by the author of the model.*"


@dataclass(frozen=True)
class Facts:
    """What is known of a model and its run besides its weights; nothing in it is a secret.

    Args:
        name: What the model is called.
        weights: Which weights they are, in words.
        task: The task, such as ``classification``.
        data: The name of the data set.
        class_names: The names of the classes, by their numbers.
        metrics: The figures of every part of the data.
        preprocessing: The constants with which inputs are prepared, such as ``mean`` and ``std``.
        configuration: The configuration of the run.
        environment: The versions and the machine of the training.
        progress: The epochs and iterations that were trained, in words.
        run: The id of the run.
        curves: A picture of the learning curves, as PNG.
    """

    name: str
    weights: str = ""
    task: str = ""
    data: str = ""
    class_names: Sequence[str] | None = None
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    progress: str = ""
    run: str = ""
    curves: bytes | None = None

    def metadata(self, inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what every file of the model says of itself."""
        known = {
            "made_by": f"ignite_hooks {__version__}",
            "weights": self.weights,
            "task": self.task,
            "labels": None if self.class_names is None else list(self.class_names),
            "inputs": list(inputs),
            "preprocessing": dict(self.preprocessing),
            "run": self.run,
        }
        return {name: value for name, value in known.items() if value}


def config(model: Module, facts: Facts, inputs: Sequence[Mapping[str, Any]]) -> str:
    """Return ``config.json``: what is needed to build the model again, and what its inputs and outputs mean."""
    described = facts.configuration.get("model")
    content: dict[str, Any] = {
        "architectures": [type(model).__name__],
        "model": described,
        **{name: value for name, value in facts.metadata(inputs).items() if name != "labels"},
    }
    if facts.class_names is not None:
        content["id2label"] = {str(place): name for place, name in enumerate(facts.class_names)}
        content["label2id"] = {name: place for place, name in enumerate(facts.class_names)}
    known = {name: value for name, value in content.items() if value is not None}
    return json.dumps(known, ensure_ascii=False, indent=2, default=str) + "\n"


def page(
    model: Module,
    facts: Facts,
    inputs: Sequence[Mapping[str, Any]],
    files: Sequence[Mapping[str, str]],
    checked: str,
) -> str:
    """Return ``README.md``: a model card, with its front matter."""
    parameters = sum(each.numel() for each in model.parameters())
    trained = ", ".join(filter(None, [facts.progress, facts.weights]))
    sections = [
        f"# {_plain(facts.name)}",
        f"A `{type(model).__name__}` with {parameters:,} parameters, trained with PyTorch-Ignite and ignite_hooks"
        f"{': ' + _plain(trained) if trained else ''}.",
        "## Results\n\n" + (_results(facts) or "Nothing was measured."),
        *([f"![Learning curves]({CURVES})"] if facts.curves is not None else []),
        "## Inputs and outputs\n\n" + "\n".join(_inputs(facts, inputs)),
        "## Files\n\n" + _table(files) + f"\n\n{checked[:1].upper()}{checked[1:]}. {_WARNING}",
        "## Use\n\n" + _use(files),
        "## Data\n\n" + (f"Trained on `{_plain(facts.data)}`. " if facts.data else "") + TO_WRITE,
        "## Limits\n\n" + TO_WRITE,
        *_training(facts),
    ]
    return f"---\n{front_matter(facts)}---\n\n" + "\n\n".join(sections) + "\n"


_WARNING: Final = "A `.pt2` is unpickled when it is loaded: open none that somebody else had in hand."


def front_matter(facts: Facts) -> str:
    """Return what hubs read of a model, as YAML; the licence is the author's to choose."""
    content: dict[str, Any] = {"library_name": "pytorch", "tags": ["pytorch", "pytorch-ignite", "ignite-hooks"]}
    if facts.task in PIPELINES:
        content["pipeline_tag"] = PIPELINES[facts.task]
    names = list(dict.fromkeys(metric for figures in facts.metrics.values() for metric in figures))
    if names:
        content["metrics"] = names
        content["model-index"] = [{"name": facts.name, "results": [*_hub_results(facts)]}]
    written: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    return written + "# license: choose one\n"


def _hub_results(facts: Facts) -> Iterator[dict[str, Any]]:
    data = facts.data or "the data of the run"
    for split, figures in facts.metrics.items():
        yield {
            "task": {"type": PIPELINES.get(facts.task, facts.task or "other")},
            "dataset": {"name": data, "type": re.sub(r"[^\w.-]+", "-", data).strip("-") or "data", "split": split},
            "metrics": [{"type": name, "value": value, "name": name} for name, value in figures.items()],
        }


def _results(facts: Facts) -> str:
    names = list(dict.fromkeys(metric for figures in facts.metrics.values() for metric in figures))
    if not names:
        return ""
    return _table(
        [
            {"": split, **{name: number(figures[name]) if name in figures else "" for name in names}}
            for split, figures in facts.metrics.items()
        ]
    )


def _inputs(facts: Facts, inputs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in inputs:
        yield f"- input: {one['dtype']}, {' x '.join(map(str, one['shape']))}"
    for name, value in facts.preprocessing.items():
        yield f"- {_plain(name)}: {_plain(value)}"
    if facts.class_names is not None:
        shown = ", ".join(_plain(name) for name in facts.class_names[:100])
        yield f"- {counted(len(facts.class_names), 'label')}: {shown}"


def _use(files: Sequence[Mapping[str, str]]) -> str:
    names = {row["file"] for row in files}
    code = []
    if "model.onnx" in names:
        code += [
            "import onnxruntime",
            'session = onnxruntime.InferenceSession("model.onnx")',
            "outputs = session.run(None, {session.get_inputs()[0].name: batch})  # batch: a numpy array",
        ]
    if "model.safetensors" in names:
        code += ["from safetensors.torch import load_model", 'load_model(model, "model.safetensors")']
    if "model.pth" in names:
        code += ["import torch", 'model.load_state_dict(torch.load("model.pth", weights_only=True)["state_dict"])']
    return _fenced("python", "\n".join(code)) if code else TO_WRITE


def _training(facts: Facts) -> Iterator[str]:
    if facts.environment:
        yield "## Training\n\n" + "\n".join(f"- {_plain(n)}: {_plain(text)}" for n, text in facts.environment.items())
    if facts.configuration:
        text = yaml.safe_dump(
            json.loads(json.dumps(facts.configuration, default=str)), sort_keys=False, allow_unicode=True, width=100
        )
        yield "## Configuration\n\n" + _fenced("yaml", text.rstrip("\n"))


def _fenced(language: str, text: str) -> str:
    """Return a block of code that no line of its text can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([_plain(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(value: object) -> str:
    """Return a text of a run as Markdown shows it: on one line, with nothing that marks up or links.

    Example:
        >>> _plain("a|b <script>\\n[x](y)")
        'a\\\\|b &lt;script&gt; \\\\[x\\\\](y)'
    """
    text = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]#!~])", r"\\\1", text)
