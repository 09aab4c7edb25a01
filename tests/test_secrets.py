"""Secrets reach no output: a canary in a configuration must appear in nothing that a run writes."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from ignite_hooks import BaseHook, ConfigError, Secret, attach_hooks
from ignite_hooks.cli.app import main
from ignite_hooks.secrets import MASK, Masks, masked
from ignite_hooks.testing import MemoryWriter, tiny_run

CANARY = "canary-5f0c91e7a2"


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ({"api_key": CANARY}, {"api_key": MASK}),
        ({"a": [{"wandbApiKey": CANARY}]}, {"a": [{"wandbApiKey": MASK}]}),
        ({"tokens": {"password": 1234}}, {"tokens": {"password": MASK}}),
        ({"secret": Secret(CANARY), "url": f"http://{CANARY}@x"}, {"secret": MASK, "url": f"http://{MASK}@x"}),
        ({"anything": Secret("short")}, {"anything": MASK}),
        ({"keys": ("token", 5), "pad_token": 0, "monkey": "x"}, {"keys": ("token", 5), "pad_token": 0, "monkey": "x"}),
        ({"best_key": "accuracy", "monitor": "accuracy"}, {"best_key": MASK, "monitor": "accuracy"}),
        ({"uri": "postgresql://me:word@host/db"}, {"uri": f"postgresql://{MASK}@host/db"}),
    ],
)
def test_a_configuration_is_shown_without_its_secrets(config: Any, shown: Any) -> None:
    before = copy.deepcopy(config)
    assert Masks(config).tree(config) == shown
    assert str(config) == str(before)


def test_a_value_without_secrets_stays_the_same_object() -> None:
    config = {"a": [1, (2, "x")], "b": {"c": None}}
    assert Masks({"key": CANARY}).tree(config) is config


def test_the_beginning_of_a_long_secret_is_masked_too() -> None:
    long = "0123456789abcdef" * 5
    masks = Masks({"token": long})
    assert masks.text(f"not {long[:57]!r}...") == f"not '{MASK}'..."
    assert masks.text(f"{long[:30]} and {long}") == f"{MASK} and {MASK}"


def test_a_secret_is_neither_shown_nor_saved() -> None:
    secret = Secret(CANARY)
    assert CANARY not in f"{secret} {secret!r} {secret:>20} {[secret]}"
    assert copy.deepcopy(secret).reveal() == CANARY
    with pytest.raises(TypeError, match="a Secret cannot be saved"):
        pickle.dumps(secret)


class Blabbing(BaseHook):
    """Puts its token into everything it can reach."""

    def __init__(self, token: str, fail: bool = False) -> None:
        self.token = token
        self.fail = fail
        self.on_error = "warn"

    def before_run(self, runner: Any) -> None:
        runner.logger.info("the token is %s", self.token)
        logging.getLogger("ignite_hooks").warning("really: %s", self.token)
        runner.writer.write_text("note", f"token {self.token}", 0)

    def after_epoch(self, runner: Any) -> None:
        runner.trainer.state.mine = self.token
        raise ValueError(f"server refused {self.token}")

    def state_dict(self) -> dict[str, Any]:
        return {"seen": f"<{self.token}>", "key": "accuracy"}


def test_a_secret_is_in_no_file_line_or_writer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    run, memory = tiny_run(), MemoryWriter()
    run.trainer.state_dict_user_keys.append("mine")
    run.trainer.state.mine = CANARY  # type: ignore[attr-defined]
    cfg = {
        "default_hooks": {"checkpoint": {"save_best": False}, "eval": None},
        "custom_hooks": [{"type": Blabbing, "token": CANARY}],
        "writers": [memory, "TensorboardWriter", "ConsoleWriter"],
        "tracker": {"password": Secret(CANARY)},
    }
    runner = attach_hooks(run.trainer, cfg, work_dir=tmp_path, **run.services)
    run.trainer.run(run.data, max_epochs=2)
    assert runner.report().failures["Blabbing"].count == 2
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"metrics.jsonl", "epoch_2.pth", "last.pth"} <= {path.name for path in files}
    assert [path.name for path in files if CANARY.encode() in path.read_bytes()] == []
    assert memory.config is not None
    assert memory.config["tracker"] == {"password": MASK}
    assert memory.texts == [("note", f"token {MASK}", 0)]
    assert f"the token is {MASK}" in caplog.messages
    assert f"really: {MASK}" in caplog.messages
    heard = [caplog.text, *capfd.readouterr(), str(runner.report()), str(runner.plan), str(memory)]
    assert CANARY not in "".join(heard)


def test_resuming_restores_state_without_secrets(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Remembers(Blabbing):
        def load_state_dict(self, state: Any) -> None:
            seen.append(state["key"])

    for resume in (False, True):
        run = tiny_run()
        cfg = [{"type": "CheckpointHook", "save_best": False}, {"type": Remembers, "token": CANARY}]
        attach_hooks(run.trainer, cfg, work_dir=tmp_path, resume=resume, **run.services)
        run.trainer.run(run.data, max_epochs=1 + resume)
    assert seen == ["accuracy"]


def test_a_configuration_error_masks_the_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tiny_run()
    entry = {"type": "LoggerHook", "interval": CANARY, "priority": CANARY}
    with pytest.raises(ConfigError) as caught:
        attach_hooks(run.trainer, {"hooks": [entry], "my_token": CANARY}, work_dir=tmp_path)
    assert CANARY not in str(caught.value)
    assert f"is needed, not '{MASK}'" in str(caught.value)
    path = tmp_path / "wrong.yaml"
    path.write_text(f"my_token: {CANARY}\nhooks: [{{type: LoggerHook, interval: {CANARY}}}]\n")
    assert main(["validate", str(path)]) == 2
    assert main(["explain", str(path)]) == 2
    heard = capsys.readouterr()
    assert CANARY not in heard.out + heard.err
    assert MASK in heard.err


def test_secrets_are_forgotten_with_their_run(tmp_path: Path) -> None:
    run, own = tiny_run(), "another-8c1d77e0b4"
    runner = attach_hooks(run.trainer, {"hooks": [], "token": own}, work_dir=tmp_path)
    assert masked(own) == MASK
    del runner, run
    gc.collect()
    assert masked(own) == own


def test_all_values_under_secrets_are_masked() -> None:
    config = {
        "secrets": {"wandb": "canary-1f2e3d4c", "more": [{"mail": "canary-5b6a7988"}]},
        "credentials": {"a": "x"},
    }
    masks = Masks(config)
    assert masks.tree(config) == {"secrets": {"wandb": "***", "more": [{"mail": "***"}]}, "credentials": {"a": "***"}}
    assert masks.text("canary-1f2e3d4c and canary-5b6a7988") == "*** and ***"
    tokens = {"token": {"type": "BertTokenizer2"}, "keys": ["image1234"]}
    assert Masks(tokens).tree(tokens) == tokens
