"""A .py configuration is read, and never run."""

from __future__ import annotations

import time

import pytest

from ignite_hooks.config.files import parse_python
from tests.config.test_files import DIGITS, LEVELS, error_of

BOMB_PYTHON = "a = [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name} = [{','.join(before * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\na = 2", "c.py:2:1: 'a' is set in line 1 already"),
        ("é = 1; a = é + print", "c.py:1:16: 'print' is not set above"),
        ("a = dict(b=1, b=2)", "c.py:1:17: key 'b' is set twice"),
        ("a = {'b': 1, 'b': 2}", "c.py:1:19: key 'b' is set twice"),
        ("a = {1: 2}", "its key must be text in quotes"),
        ("a = {}\nb = dict(**a)", "its key must be text in quotes"),
        (
            "interval = 5\na = intervall",
            "c.py:2:5: 'intervall' is not set above, did you mean 'interval'?",
        ),
        ("a = true", "did you mean 'True'?"),
        ("a = dict(type=EMAHook)", "'EMAHook' is not set above: text goes in quotes"),
        ("a = 1 / 0", "c.py:1:5: `1 / 0` has no value: division by zero"),
        ("a = 2 ** 5000", "`2 ** 5000` is too large"),
        ("a = 10 ** 99 * 10", "an integer of more than 100 digits"),
        ("a = 1e300 ** 2", "has no value"),
        ("a = (-8) ** 0.5", "a value of type complex is not supported"),
        ("a = 'x' * 1000", "arithmetic is for numbers"),
        ("a = True + 1", "arithmetic is for numbers"),
        (f"a = '{'x' * 600}'\nb = a + a", "`a + a` is too large"),
        ("a = (", "c.py:1:5: not valid Python: '(' was never closed"),
        ("a\0 = 1", "null bytes"),
        ("a = '\ud800'", "out of range"),
        ("a = " + "1 + " * 100_000 + "1", "nested too deeply"),
        ("a = " + "-" * 100_000 + "1", "nested too deeply"),
        (f"a = {LEVELS}", "nested too deeply"),
        (BOMB_PYTHON, "too much data"),
        (f"a = {DIGITS}", "c.py:1:5: an integer of more than 100 digits"),
    ],
    ids=lambda value: value[:40],
)
def test_statements_that_are_not_accepted_are_named(text: str, message: str) -> None:
    began = time.process_time()
    assert message in error_of("py", text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "statement",
    [
        *["import torch", "from torch import nn", "def f(): pass", "if 1: a = 1", "for i in []: pass", "f()"],
        *["a: int", "a = b = 1", "a, b = 1, 2", "a += 1", "a.b = 1", "del a", "1", "class A: pass"],
        *[
            f"a = {value}"
            for value in (
                *(
                    "__import__('os').system('true')",
                    "torch.nn",
                    "[i for i in []]",
                    "f'{1}'",
                    "{1, 2}",
                    "lambda: 0",
                ),
                *(
                    "b'x'",
                    "1j",
                    "...",
                    "not 1",
                    "~1",
                    "1 < 2",
                    "1 if 1 else 2",
                    "dict([])",
                    "[*[]]",
                    "(x := 1)",
                ),
                *("[1][0]", "1 and 2", "1 @ 2", "1 << 2", "len([])", "await x"),
            )
        ],
    ],
)
def test_a_python_file_is_read_and_never_run(statement: str) -> None:
    assert "is not supported" in error_of("py", statement)


def test_python_knows_literals_names_arithmetic_and_private_helpers() -> None:
    text = '"""A docstring."""\n_unit = 5\na = [dict(x=_unit * 2, y=-1e-4, z="a" "b" + "c")]\n'
    text += 'b = {"a": a}\nc = 2 ** 3 // 3\n'
    expected = [{"x": 10, "y": -1e-4, "z": "abc"}]
    assert parse_python(text, "c.py") == {"a": expected, "b": {"a": expected}, "c": 2}
