"""Configuration files become plain data or a ConfigError, never anything else."""

from __future__ import annotations

import ast
import datetime
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ignite_hooks.config import files, python_file, tree
from ignite_hooks.config.files import load_config, parse_json, parse_python, parse_toml, parse_yaml
from ignite_hooks.errors import ConfigError
from tests.properties import PLAIN, WORDS, damaged, tried

PARSERS = {"yaml": parse_yaml, "json": parse_json, "toml": parse_toml, "py": parse_python}


def error_of(language: str, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        PARSERS[language](text, f"c.{language}")
    assert all(problem.place.startswith(f"c.{language}") for problem in caught.value.problems)
    assert all("\n" not in problem.message and len(problem.message) < 300 for problem in caught.value.problems)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-4", 1e-4),
        ("1E-4", 1e-4),
        ("1e4", 1e4),
        (".5", 0.5),
        ("-1.5e+3", -1500.0),
        ("1.", 1.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("010", 10),
        ("+7", 7),
        ("0o17", 15),
        ("0xff", 255),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'no'", "no"),
        ('"Off"', "Off"),
        *[(text, text) for text in ("y", "n", "12:30", "12:30:45", "2024-01-31")],
        *[(text, text) for text in ("1_000", "0b11", ".", "-x", "1e", "tRue", "=", "<<", "inf", "nan")],
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
    ],
)
def test_yaml_scalars_are_those_of_yaml_1_2(written: str, value: Any) -> None:
    found = parse_yaml(f"key: {written}", "c.yaml")["key"]
    assert (type(found), found) == (type(value), value)


def test_yaml_nan_is_a_float() -> None:
    assert math.isnan(parse_yaml("key: .nan", "c.yaml")["key"])


def test_the_tables_of_pyyaml_stay_as_they_are() -> None:
    assert yaml.safe_load("{a: no, b: 1e-4, c: 2024-01-31}").values()
    assert yaml.safe_load("a: no") == {"a": False}


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("yaml", "hooks:\n- {type: A, lr: 1e-4, on: [1, true, null]}"),
        ("json", '{"hooks": [{"type": "A", "lr": 1e-4, "on": [1, true, null]}]}'),
        ("py", "hooks = [dict(type='A', lr=1e-4, on=(1, True, None))]"),
    ],
)
def test_all_formats_give_the_same_plain_data(language: str, text: str) -> None:
    assert PARSERS[language](text, "c") == {"hooks": [{"type": "A", "lr": 1e-4, "on": [1, True, None]}]}


def test_toml_gives_plain_data() -> None:
    text = "[[hooks]]\ntype = 'A'\nlr = 1e-4\non = [1, true]"
    assert parse_toml(text, "c") == {"hooks": [{"type": "A", "lr": 1e-4, "on": [1, True]}]}


def test_own_keys_override_merged_keys_and_earlier_merges_win() -> None:
    found = parse_yaml("a: &a {x: 1, y: 2}\nb:\n  <<: [*a, {x: 5, z: 6}]\n  y: 3", "c.yaml")
    assert found["b"] == {"x": 1, "y": 3, "z": 6}


def test_repeated_parts_are_separate_objects() -> None:
    for found in (parse_yaml("a: &a [1]\nb: *a", "c.yaml"), parse_python("a = [1]\nb = a", "c.py")):
        assert found == {"a": [1], "b": [1]}
        assert found["a"] is not found["b"]


LEVELS = "[" * 70 + "]" * 70
DIGITS = "9" * 101
BOMB_YAML = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("language", "text", "message"),
    [
        ("yaml", "a: 1\nb: 2\na: 3", "c.yaml:3:1: key 'a' is already set in line 1"),
        ("yaml", "<<: {a: 1}\n<<: {b: 1}", "c.yaml:2:1: key '<<' is already set"),
        (
            "yaml",
            "a: !!python/object:os.system x",
            "c.yaml:1:4: tag '!!python/object:os.system' is not supported",
        ),
        ("yaml", "a: !foo [1]", "c.yaml:1:4: tag '!foo' is not supported"),
        ("yaml", "a: !!map 3", "tag '!!map' is not supported"),
        ("yaml", "a: !!timestamp 2024-01-31", "tag '!!timestamp' is not supported"),
        ("yaml", "a: !!int x", "c.yaml:1:4: 'x' cannot be read as int"),
        ("yaml", "1: a", "c.yaml:1:1: key '1' is not text: put it in quotes"),
        ("yaml", "? [a]\n: 1", "c.yaml:1:3: this key is not text"),
        *(
            (
                "yaml",
                f"a: {word}",
                f"c.yaml:1:4: {word} is {meant} in YAML 1.1 and text in YAML 1.2: write {meant}, or '",
            )
            for word, meant in (("yes", "true"), ("On", "true"), ("no", "false"), ("NO", "false"), ("off", "false"))
        ),
        ("yaml", "a: &x {b: *x}", "c.yaml:1:11: '*x' is inside what it repeats"),
        ("yaml", "a:\n  <<: 3", "c.yaml:2:7: '<<' takes a mapping"),
        ("yaml", "a: &x 1\nb: [" + "*x," * 101 + "]", "c.yaml:2:305: more than 100 aliases"),
        ("yaml", BOMB_YAML, "too much data"),
        ("yaml", f"a: &x '{'x' * 200_000}'\nb: [" + "*x," * 90 + "]", "too much data"),
        ("yaml", LEVELS, "c.yaml:1:66: nested too deeply"),
        ("yaml", "- " * 100_000, "c.yaml:1:131: nested too deeply"),
        ("yaml", f"a: {DIGITS}", "c.yaml:1:4: an integer of more than 100 digits"),
        ("yaml", f"a: {DIGITS * 100}", "c.yaml:1:4: an integer of more than 100 digits"),
        ("yaml", f"a: 0x{DIGITS * 100}", "c.yaml:1:4: an integer of more than 100 digits"),
        ("yaml", "a: 1\n---\nb: 2", "c.yaml:2:1: not valid YAML: but found another document"),
        ("yaml", "a:\n\t- b", "c.yaml:2:1: not valid YAML: found character '\\t'"),
        ("yaml", "a: b: c", "put text that contains ': ' in quotes"),
        ("yaml", "a: 'b", "a quote or bracket is opened and not closed"),
        ("yaml", "a: *x", "c.yaml:1:4: not valid YAML: found undefined alias 'x'"),
        ("yaml", "a: 1\nb: \x07", "c.yaml:2: character 7 is not allowed"),
        ("yaml", 'a: "\\UFFFFFFFF"', "a character code is out of range"),
        ("yaml", 'a: "\\ud800"', "c.yaml: a: half of a surrogate pair"),
        ("yaml", "a: " + "x" * 1_000_000, "larger than 1,000,000 bytes"),
        ("yaml", " \n", "the file is empty: write a mapping"),
        ("json", '{"a": [{"b": 1, "b": 2}]}', "c.json: a[0].b: this key is set twice"),
        ("json", '{"a": NaN}', "c.json: a: NaN is not JSON"),
        ("json", '{"a b": -Infinity}', "c.json: ['a b']: -Infinity is not JSON"),
        ("json", f'{{"a": {DIGITS * 100}}}', "c.json: a: an integer of more than 100 digits"),
        ("json", LEVELS, "...: nested too deeply"),
        ("json", "[" * 100_000, "c.json: nested too deeply"),
        ("json", f"[{'1,' * 100_000}1]", "too much data"),
        ("json", '{"\\ud800": 1}', "half of a surrogate pair"),
        ("json", '{\n"a": 1,}', "c.json:2:8: not valid JSON"),
        ("toml", "a = 2024-01-31", "c.toml: a: a value of type date is not supported"),
        ("toml", "[x]\nt = 12:30:00", "c.toml: x.t: a value of type time is not supported"),
        ("toml", "a = 1\na = 2\n", "c.toml:2:6: not valid TOML: Cannot overwrite a value"),
        ("toml", "a = 1\nb = no", "c.toml:2:5: not valid TOML: Invalid value"),
        ("toml", "a = 1\nb =", "c.toml:2: not valid TOML: Invalid value"),
        ("toml", f"a = {LEVELS}", "nested too deeply"),
        ("toml", f"a = {'[' * 100_000}", "nested too deeply"),
        ("toml", f"a = 1\n{'a.' * 300_000}b = 1", "c.toml:2: a key of too many parts"),
        ("toml", f"a = {DIGITS}", "c.toml: a: an integer of more than 100 digits"),
        ("toml", f"a = {DIGITS * 100}", "a number or a character code is out of range"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_what_cannot_be_accepted_is_named_with_its_place(language: str, text: str, message: str) -> None:
    began = time.process_time()
    assert message in error_of(language, text)
    assert time.process_time() - began < 5


def test_every_problem_of_a_file_is_reported_at_once() -> None:
    assert "3 problems" in error_of("yaml", "a: !x 1\na: 2\n3: 4")
    assert "2 problems" in error_of("json", '{"a": NaN, "b": [1, NaN]}')
    assert "2 problems" in error_of("toml", "a = 2024-01-31\nb = 12:30:00")
    assert "3 problems" in error_of("py", "import os\na = f()\nb = a * 2\nc = [a, os.path]")


def test_at_most_fifty_problems_are_listed() -> None:
    assert "50 problems" in error_of("py", "f()\n" * 1000)
    assert "50 problems" in error_of("yaml", "- !x 1\n" * 1000)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.txt", b"", "suffix '.txt' is not supported: use .yaml, .yml, .json, .toml, .py"),
        ("c", b"", "suffix '' is not supported"),
        ("c.yaml", b"hello", "the top level is 'hello': write a mapping"),
        ("c.yaml", b"# nothing", "the top level is empty"),
        ("c.json", b"null", "the top level is empty"),
        ("c.yaml", b"a: 1\nb: \xff", "c.yaml:2: not UTF-8 text"),
        ("c.py", bytes(range(256)), "not UTF-8 text"),
        ("c.yml", "a: 1".encode("utf-16"), "c.yml:1: not UTF-8 text"),
        ("c.toml", b" " * 1_000_001, "larger than 1,000,000 bytes"),
        ("c.json", b"", "the file is empty"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / name)
    assert message in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("confg.yaml", "did you mean 'config.yaml'?"),
        ("folder/config.yaml", "no such folder"),
        ("folder.yaml", "not a regular file"),
        ("x" * 300 + ".yaml", "cannot be read: File name too long"),
        ("a\0.yaml", "no such file"),
    ],
)
def test_a_path_without_a_file_says_what_is_there(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "config.yaml").write_text("a: 1")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ConfigError) as caught:
        load_config(str(tmp_path / name))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "value"),
    [
        ("c.YAML", b"- {type: A}", {"hooks": [{"type": "A"}]}),
        ("c.json", b'\xef\xbb\xbf[{"type": "A"}]', {"hooks": [{"type": "A"}]}),
        ("c.yml", b"a: 1\r\nb: \xc3\xa9\r\n", {"a": 1, "b": "é"}),
        ("c.toml", b"a = 1\r\n", {"a": 1}),
        ("c.py", b"# -*- coding: latin-1 -*-\r\na = '\xc3\xa9'\r\n", {"a": "é"}),
    ],
)
def test_line_ends_and_byte_order_marks_do_not_matter(tmp_path: Path, name: str, content: bytes, value: Any) -> None:
    (tmp_path / name).write_bytes(content)
    assert load_config(tmp_path / name) == value


THE_SCRIPTS = {
    "c.yaml": (
        "names: {0: person, true: x}\nbest: no\nwhen: !!timestamp 2024-01-31\nmade: !Foo {a: 1}\n"
        "lr: 1\nlr: 2\nhooks: []\n",
        {
            "names": {0: "person", True: "x"},
            "best": "no",
            "when": "2024-01-31",
            "made": {"a": 1},
            "lr": 2,
            "hooks": [],
        },
    ),
    "c.json": ('{"a": [-Infinity], "b": 1, "b": 2, "hooks": []}', {"a": [-math.inf], "b": 2, "hooks": []}),
    "c.toml": ("hooks = []\n[x]\nday = 2024-01-31\n", {"hooks": [], "x": {"day": datetime.date(2024, 1, 31)}}),
    "c.py": (
        "import os\nfrom a import b\nlr: float = 0.1\n"
        "n = {0: 'cat'}\nmodel = make(\n 3)\ndef f(): ...\nhooks = []\nlr = 2\n",
        {"lr": 2, "n": {0: "cat"}, "model": "make(\n 3)", "hooks": []},
    ),
}


@pytest.mark.parametrize("name", THE_SCRIPTS)
def test_the_part_of_a_script_is_not_judged(tmp_path: Path, name: str) -> None:
    text, content = THE_SCRIPTS[name]
    (tmp_path / name).write_text(text)
    assert load_config(tmp_path / name) == content


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.yaml", "names: {0: a}\nhooks: [{type: X, at: {0: a}}]", "c.yaml:2:24: key '0' is not text"),
        ("c.yaml", "resume: no\nbest: no", "c.yaml:1:9: no is false in YAML 1.1 and text in YAML 1.2: write false"),
        ("c.yaml", "d: &d !x 3\nhooks: [*d]", "c.yaml:1:4: tag '!x' is not supported"),
        ("c.json", '{"a": NaN, "hooks": [NaN]}', "c.json: hooks[0]: NaN is not JSON"),
        ("c.toml", "seed = 2024-01-31\nday = 2024-01-31", "c.toml: seed: a value of type date is not supported"),
        ("c.py", "x = f()\nhooks = [x]", "c.py:1:5: `f()` is not supported"),
        ("c.py", "hooks = []\nhooks += [1]", "c.py:2:1: `hooks += [1]` is not supported"),
        ("c.py", "from base import *", "c.py:1:1: `from base import *` is not supported"),
        ("c.py", "from base import hooks", "c.py:1:1: `from base import hooks` is not supported"),
        ("c.py", "def hooks(): ...", "is not supported"),
    ],
)
def test_what_is_ours_beside_a_script_is_judged(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / name)
    assert len(caught.value.problems) == 1
    assert message in str(caught.value).replace(f"{tmp_path}/", "")


SEEDS = {
    "yaml": "d: &d {lr: 1e-4, on: [yea, ~, 0x1F]}\nhooks:\n- type: 'A'\n  <<: *d\n  \"n\": !!str 3\n",
    "json": '{"hooks": [{"type": "A\\u00e9", "lr": -1.5e-4, "on": [true, null, 10]}]}',
    "toml": "a.b = 1\n[[hooks]]\ntype = 'A'\nlr = 1e-4\nt = {x = [true, 0x1F], \"y\" = '''z'''}\n",
    "py": "_n = 5\nhooks = [dict(type='A', n=_n * -2, t=(1, 2.5e3), m={'x': None})]\nb = 2 ** 3\n",
}
PIECES = [*"[]{}()<>:,.-+*/&!|%@#'\"\\=?~\t\n\r ", *"01e_ax", "\0", "\x07", "\ufeff", "\x85", "é", "😀"]
PIECES += [
    "<<: ",
    "*d",
    "&d ",
    "---\n",
    "!!int ",
    "\\ud800",
    "1e999",
    "9" * 120,
    "NaN",
    "dict(",
    "**",
    "[" * 80,
]
PIECES += ["2024-01-31", "'''", '"""', "\\U99999999", "a = ", "- ", ": ", "import os\n", "_base_", "lambda: "]


def is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


@pytest.mark.hypothesis
@pytest.mark.filterwarnings("ignore:invalid:DeprecationWarning")
@pytest.mark.parametrize("language", SEEDS)
def test_mutated_texts_give_plain_data_or_a_config_error(language: str) -> None:
    outcomes = {"data": 0, "error": 0}

    @tried(300)
    @given(damaged(SEEDS[language], PIECES))
    def check(content: bytes) -> None:
        try:
            value = PARSERS[language](content.decode("utf-8", "surrogateescape"), f"c.{language}")
        except ConfigError as error:
            outcomes["error"] += 1
            str(error).encode()
        else:
            outcomes["data"] += 1
            assert is_plain(value)
            json.dumps(value).encode()

    check()
    assert min(outcomes.values()) > 20, outcomes


@pytest.mark.filterwarnings("ignore:invalid:DeprecationWarning")
@tried(100)
@given(language=st.sampled_from([*SEEDS]), content=st.binary(min_size=1, max_size=400))
def test_any_bytes_give_plain_data_or_a_config_error(language: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"c.{language}"
        path.write_bytes(content)
        try:
            assert is_plain(load_config(path))
        except ConfigError as error:
            str(error).encode()


@pytest.mark.hypothesis
@pytest.mark.parametrize(("language", "write"), [("json", json.dumps), ("yaml", json.dumps), ("py", "c = {!r}".format)])
def test_plain_data_is_read_as_it_was_written(language: str, write: Callable[[Any], str]) -> None:
    @tried(100)
    @given(st.dictionaries(WORDS, PLAIN, max_size=4))
    def check(content: dict[str, Any]) -> None:
        found = PARSERS[language](write(content), f"c.{language}")
        assert repr(found) == repr({"c": content} if language == "py" else content), "JSON is YAML"

    check()


@pytest.mark.parametrize("module", [files, python_file, tree], ids=lambda module: module.__name__)
def test_it_imports_nothing_heavy(module: ModuleType) -> None:
    parsed = ast.parse(Path(module.__file__ or "").read_text())
    modules = {name.name for node in ast.walk(parsed) if isinstance(node, ast.Import) for name in node.names}
    modules |= {str(node.module) for node in ast.walk(parsed) if isinstance(node, ast.ImportFrom)}
    ours = {"ignite_hooks.errors", "ignite_hooks.text"}
    ours |= {f"ignite_hooks.config.{name}" for name in ("composition", "keys", "tree", "python_file")}
    assert modules - sys.stdlib_module_names - {"collections.abc"} <= {"yaml", *ours}
