"""Stands in for what is downloaded from a hub: a tiny BERT, a tokenizer of characters, a few film reviews."""

import sys
import types

import numpy as np
import torch
import transformers


class _Tokenizer:
    """Numbers for characters."""

    def __call__(self, text, *_, max_length=16, **__):
        numbers = [ord(letter) % 60 + 4 for letter in text[:max_length]]
        numbers += [0] * (max_length - len(numbers))
        ids = torch.tensor([numbers])
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def _config(name, **given):
    kept = {key: value for key, value in given.items() if key in ("num_labels", "classifier_dropout")}
    return transformers.BertConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=512,
        attn_implementation="eager",
        **kept,
    )


def _reviews(name, split=("train", "test"), **_):
    random = np.random.RandomState(3)
    found = []
    for count in (48, 16):
        letters = random.randint(97, 122, (count, 12))
        found.append(
            {
                "text": ["".join(map(chr, row)) for row in letters],
                "label": [int(label) for label in random.randint(0, 2, count)],
            }
        )
    return found


def install():
    """Put the stand-ins in place of what would be downloaded."""
    transformers.AutoTokenizer.from_pretrained = staticmethod(lambda *_, **__: _Tokenizer())
    transformers.AutoConfig.from_pretrained = staticmethod(_config)
    transformers.AutoModelForSequenceClassification.from_pretrained = staticmethod(
        lambda *_, config, **__: transformers.BertForSequenceClassification(config)
    )
    datasets = types.ModuleType("datasets")
    datasets.load_dataset = _reviews
    sys.modules["datasets"] = datasets
