"""The README says what happens: its blocks run in order in an empty folder, and print what it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ignite_hooks.cli.app import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

NOT_RUN = {
    "pip install -c constraints.txt -e .": "installs, as the environment of this test was installed",
    "make demo": "installs; what it starts is run by tests/trainer/test_demo.py",
    "make test": "runs this test",
    "make faults": "takes many minutes",
    "make docs": "its steps are run by tests/test_docs.py",
}
"""The commands that are not run here, each with its reason."""

MISTAKES = (("max_keep_ckpts: 2", "max_keep_ckpts: two"), ("monitor: val_loss", "monitr: val_loss"))
"""The two mistakes that the README makes in its configuration."""


@dataclass(frozen=True)
class Block:
    """A block of code, with the paragraph before it."""

    before: str
    language: str
    text: str


def blocks() -> Iterator[Block]:
    parts = re.split(r"^```(\w*)\n(.*?)^```\n", README, flags=re.MULTILINE | re.DOTALL)
    for before, language, text in zip(parts[::3], parts[1::3], parts[2::3], strict=False):
        yield Block(before.strip().rpartition("\n\n")[2], language, text)


def shape(text: str) -> str:
    """Return a text with every number, unit of time and run of spaces replaced, as they vary from run to run."""
    text = re.sub(r"\d[\d.,:]*(e[-+]\d+)?", "0", text)
    return re.sub(r"(?<=\[) | +(?= )", "", re.sub(r"\b0 (ns|µs|ms|s)\b", "0 s", text)).strip()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def script() -> dict[str, Any]:
    """Return what the script of the README has before its lines begin."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(20, 8, 4, generator=generator)
    data = [(batch, (batch[:, 0] > 0).long()) for batch in inputs]
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"model": model, "optimizer": optimizer, "criterion": torch.nn.CrossEntropyLoss()}
    return {**given, "train_loader": data, "val_loader": data[:2]}


def test_every_block_runs_and_prints_what_is_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    all_blocks = list(blocks())
    written = [block for block in all_blocks if block.language == "yaml"]
    files = {name: block.text for block in written for name in re.findall(r"`(\w+\.yaml)`", block.before)}
    assert list(files) == ["my.yaml"]
    (folder / "my.yaml").write_text(files["my.yaml"], encoding="utf-8")
    done = dict.fromkeys(("run", "shown", "asked", "left out"), 0)
    space = script()
    for block in all_blocks:
        if block.language == "python":
            exec(block.text.replace("max_epochs=50", "max_epochs=2"), space)
            done["run"] += 1
        elif block.language == "yaml":
            assert block.text in files.values()
        elif block.text.startswith("$ "):
            command, _, expected = block.text[2:].partition("\n")
            for right, wrong in MISTAKES:
                files["my.yaml"] = files["my.yaml"].replace(right, wrong)
            (folder / "my.yaml").write_text(files["my.yaml"], encoding="utf-8")
            capsys.readouterr()
            assert main(shlex.split(command)[1:]) == 2
            assert capsys.readouterr().err == expected
            done["asked"] += 1
        elif block.text.split()[0] in ("pip", "make"):
            for line in block.text.splitlines():
                assert line.partition("  #")[0].strip() in NOT_RUN
                done["left out"] += 1
        else:
            messages = {shape(record.getMessage()) for record in caplog.records}
            for line in block.text.splitlines():
                assert shape(line) in messages
                done["shown"] += 1
    assert done == {"run": 1, "shown": 3, "asked": 1, "left out": 3}
    assert {"val_accuracy", "val_loss"} <= set(space["runner"].metrics)
    assert (folder / "runs" / "a" / "last.pth").exists()


def test_every_command_within_a_sentence_works(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prose = re.sub(r"^```.*?^```\n", "", README, flags=re.MULTILINE | re.DOTALL)
    commands = set(re.findall(r"`((?:ignite-hooks|make|pip|python|torchrun) [^`]*|print\([^`]*)`", prose))
    assert len(commands) >= 5
    for command in sorted(commands - NOT_RUN.keys()):
        if command.startswith("ignite-hooks "):
            assert main(shlex.split(command.replace("NAME", "EMAHook"))[1:]) == 0, command
            assert "momentum" in capsys.readouterr().out
        else:
            space = script()
            for block in blocks():
                if block.language == "yaml":
                    (folder / "my.yaml").write_text(block.text, encoding="utf-8")
            [code] = [block.text for block in blocks() if block.language == "python"]
            exec(code.replace("max_epochs=50", "max_epochs=1"), space)
            capsys.readouterr()
            exec(command, space)
            assert "checkpoint" in capsys.readouterr().out, command


def test_what_is_not_run_is_still_there() -> None:
    assert [command for command in NOT_RUN if command not in README] == []
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {command.split()[1] for command in NOT_RUN if command.startswith("make ")} <= targets
