"""`texts.py` and `VisualizationHook(contents=["texts"])`: the texts that a model gets most wrong, as a table."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine

from ignite_hooks import attach_hooks
from ignite_hooks.drawing.texts import Texts, texts_of, worst_texts
from ignite_hooks.writers.jsonl import read_jsonl

WORDS = [["Ada", "met", "Alan"], ["in", "London"]]
TAGS = torch.tensor([[1, 0, 1], [0, 2, -100]])
NAMES = ["O", "PERSON", "PLACE"]


def scores_of(tags: list[list[int]]) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(tags), 3).float() * 4


@pytest.mark.parametrize(
    ("batch", "texts"),
    [
        ((torch.zeros(2, 5), ["a", "b"]), ["a", "b"]),
        ({"input_ids": torch.zeros(2, 5), "label": [1, 0], "text": ["a", "b"]}, ["a", "b"]),
        (({"ids": torch.zeros(2), "tokens": WORDS}, TAGS), WORDS),
        ((torch.zeros(2, 3, 8, 8), torch.zeros(2)), None),
        (([], []), None),
    ],
)
def test_texts_are_found_in_a_batch(batch: Any, texts: Any) -> None:
    found = texts_of(batch, (torch.zeros(2, 3), torch.zeros(2)))
    assert (found and found.texts) == texts


def test_wrong_tags_stand_in_the_text_and_padding_does_not_count() -> None:
    columns, rows = worst_texts(Texts(WORDS, TAGS, scores_of([[1, 0, 1], [0, 1, 2]])), 5, NAMES)
    assert columns == ["text", "loss", "wrong tags"]
    assert [row[0] for row in rows] == ["in London [PLACE → PERSON]", "Ada met Alan"]
    assert [row[2] for row in rows] == ["1 of 2", "0 of 3"]
    assert rows[0][1] > rows[1][1]


def test_texts_of_other_shapes_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"scores of \(2, 3\) and targets of \(2, 3\) are no classes of texts"):
        worst_texts(Texts(["a", "b"], torch.zeros(2, 3), torch.zeros(2, 3)), 2)
    with pytest.raises(ValueError, match="extract must return a mapping of texts"):
        texts_of([], None, lambda batch, outputs: {"images": []})


def test_the_hook_writes_a_table_of_the_worst_texts_of_an_evaluation(tmp_path: Path) -> None:
    texts, truth = ["fine", "awful", "so so"], torch.tensor([0, 0, 1])
    scores = torch.tensor([[2.0, 0.0], [0.0, 3.0], [0.0, 1.0]])
    evaluator, trainer = Engine(lambda engine, batch: (scores, truth)), Engine(lambda engine, batch: 0.5)
    hooks = [
        {"type": "VisualizationHook", "contents": ["texts"], "max_samples": 2, "class_names": ["good", "bad"]},
        {"type": "EvalHook", "metric": "loss", "save_best": False},
    ]
    data = [(texts, truth)]
    runner = attach_hooks(trainer, hooks, work_dir=tmp_path, evaluators=evaluator, val_loader=data)
    trainer.run([1.0], max_epochs=1)
    assert runner.report().failures == {}
    [line] = [line for line in read_jsonl(tmp_path / "metrics.jsonl") if "name" in line]
    assert line["name"] == "val/texts"
    assert [row[0] for row in line["result"]["rows"]] == ["awful", "so so"]
    assert line["result"]["rows"][0][2:4] == ["good", "bad"]
    assert not list(tmp_path.glob("visualization/**/*.png")), "a text is not drawn"


def test_without_predictions_nothing_is_written_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = {"type": "VisualizationHook", "contents": ["texts"], "interval": 1}
    trainer = Engine(lambda engine, batch: 0.5)
    runner = attach_hooks(trainer, [hook], work_dir=tmp_path)
    with caplog.at_level(logging.INFO, logger="ignite_hooks"):
        trainer.run([(["a", "b"], torch.zeros(2))] * 3, max_epochs=1)
    assert runner.report().failures == {}
    assert sum("no predictions of texts" in line for line in caplog.messages) == 1
