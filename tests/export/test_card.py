from __future__ import annotations

import json
from typing import Any

import torch
import yaml

from ignite_hooks.export.card import Facts, config, front_matter, page

FILES = [{"file": "model.onnx", "size": "1 KB", "largest difference": "none"}]
INPUTS = [{"shape": ["batch", 1, 8, 8], "dtype": "float32"}]
FACTS: dict[str, Any] = {
    "task": "classification",
    "data": "own digits!",
    "class_names": ["zero", "one|two"],
    "metrics": {"val": {"accuracy": 0.5}, "test": {"accuracy": 0.25, "loss": 1.5}},
}


def test_the_front_matter_is_what_hubs_read() -> None:
    found = yaml.safe_load(front_matter(Facts("my-run", **FACTS)))
    assert found["pipeline_tag"] == "image-classification"
    assert found["metrics"] == ["accuracy", "loss"]
    (model,) = found["model-index"]
    assert model["results"][1] == {
        "task": {"type": "image-classification"},
        "dataset": {"name": "own digits!", "type": "own-digits", "split": "test"},
        "metrics": [
            {"type": "accuracy", "value": 0.25, "name": "accuracy"},
            {"type": "loss", "value": 1.5, "name": "loss"},
        ],
    }
    assert "license" not in found


def test_a_text_of_the_run_cannot_leave_its_place() -> None:
    evil = "x\n---\nlicense: mit\n<script>alert(1)</script> [a](http://b)"
    facts = Facts(evil, data=evil, class_names=[evil], configuration={"note": "```\n# out"}, environment={"v": evil})
    text = page(torch.nn.Linear(1, 1), facts, INPUTS, FILES, "checked")
    assert yaml.safe_load(text.split("---\n")[1])["library_name"] == "pytorch"
    assert "<script>" not in text
    assert "\nlicense: mit" not in text
    assert "[a](http" not in text
    assert "\n````yaml\n" in text


def test_the_page_says_results_inputs_and_what_the_author_owes() -> None:
    text = page(torch.nn.Linear(2, 3), Facts("my-run", **FACTS, preprocessing={"mean": 0.5}), INPUTS, FILES, "checked")
    assert "| test | 0.2500 | 1.5000 |" in text
    assert "- input: float32, batch x 1 x 8 x 8" in text
    assert "- mean: 0.5" in text
    assert "- 2 labels: zero, one\\|two" in text
    assert text.count("To be written by the author") == 2
    assert "onnxruntime.InferenceSession" in text
    assert "9 parameters" in text


def test_the_configuration_tells_how_to_build_the_model_again() -> None:
    facts = Facts("my-run", **FACTS, configuration={"model": {"type": "cnn"}, "hooks": [1]})
    found = json.loads(config(torch.nn.Linear(2, 3), facts, INPUTS))
    assert found["model"] == {"type": "cnn"}
    assert found["label2id"] == {"zero": 0, "one|two": 1}
    assert found["architectures"] == ["Linear"]
    assert "hooks" not in found
