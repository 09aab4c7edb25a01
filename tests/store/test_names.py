"""`names.py`: texts that become file names, and names that are refused."""

from __future__ import annotations

import itertools
import unicodedata

import pytest

from ignite_hooks.errors import CheckpointError
from ignite_hooks.store.names import LONGEST, check_name, file_word

NFD = unicodedata.normalize("NFD", "précision")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("accuracy", "accuracy"),
        ("精度", "精度"),
        ("precisión", "precisión"),
        (NFD, "précision"),
        ("शुद्धता", "शुद्धता"),
        ("val/acc", "val%2Facc"),
        ("top 5", "top%205"),
        ("50%", "50%25"),
        ("a\0b\n", "a%00b%0A"),
        ("🎯", "%F0%9F%8E%AF"),
        ("\ud800", "%ED%A0%80"),
        ("mAP@.5+x=1-y_z", "mAP@.5+x=1-y_z"),
    ],
)
def test_letters_and_digits_stay_and_all_else_is_encoded(text: str, word: str) -> None:
    assert file_word(text) == word
    assert check_name(f"best_{word}_epoch_1.pth")


@pytest.mark.parametrize(
    "texts",
    [("精度", "召回"), ("Acc", "acc", "ACC"), (NFD, "précision"), ("a b", "a%20b", "a_b"), ("straße", "STRASSE")],
)
def test_no_two_texts_share_a_file_on_any_file_system(texts: tuple[str, ...]) -> None:
    words = [unicodedata.normalize("NFC", file_word(text, texts).casefold()) for text in texts]
    assert all(one != other for one, other in itertools.combinations(words, 2))


@pytest.mark.parametrize("letter", ["x", "精", "/"])
def test_a_long_text_is_cut_and_stays_unique(letter: str) -> None:
    one, other = file_word(letter * 300), file_word(letter * 301)
    assert one != other
    assert len(check_name(f"best_{one}_epoch_1000000.pth").encode()) <= LONGEST


@pytest.mark.parametrize("name", ["a%2", "a%zz", "a%2f", NFD, "\u202ea", "a\u200bb", "精" * 70, "a b", "a/b", ".精"])
def test_what_could_be_another_file_elsewhere_is_no_name(name: str) -> None:
    with pytest.raises(CheckpointError, match="is not a name for a checkpoint"):
        check_name(name)
