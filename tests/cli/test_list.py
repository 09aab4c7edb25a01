"""``ignite-hooks list`` shows hooks and writers with their settings."""

from __future__ import annotations

import pytest

from ignite_hooks.registry import HOOKS, WRITERS
from tests.cli.tools import Ask, Write

PROBE = """\
Probe
  Look at everything.

setting  default  what it is
depth    1        a whole number
                  How deep it goes.

common    name, priority, on_error, interval, frequency, by_epoch, start, begin, every
priority  50 (NORMAL)
on error  warn
reads     model
saves     a picture
points    after_train_iter   by its interval
          after_train_epoch  by its interval
          after_train        priority 3

example
  hooks:
    - type: Probe
      depth: 1
"""


def test_list_shows_every_hook_and_writer_with_its_purpose(ask: Ask) -> None:
    code, out, _ = ask("list")
    assert code == 0
    shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines() if line.startswith("  ")}
    assert set(shown) == {*HOOKS, *WRITERS}
    assert shown["EarlyStoppingHook"].startswith("Stop the run when a metric has not improved")
    assert shown["LogHook"] == "Another name of LoggerHook."


def test_list_is_wrapped_to_the_terminal(ask: Ask, terminal: None) -> None:
    _, out, _ = ask("list")
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", [*HOOKS, *WRITERS])
def test_one_hook_is_shown_with_everything_it_says_of_itself(ask: Ask, terminal: None, name: str) -> None:
    from ignite_hooks.config.describe import describe

    code, out, err = ask("list", name)
    assert (code, err) == (0, "")
    assert out.split()[0].rstrip(",") == name
    known = describe((HOOKS if name in HOOKS else WRITERS).get(name))
    words = out.split()
    for setting in known.settings:
        assert setting.name in words or setting.name + "," in words
    for point in known.points:
        assert point in words
    assert "`` " not in out
    assert "@" not in out.split("example")[0]


@pytest.mark.usefixtures("_own_hooks")
def test_one_hook_is_shown_as_this(ask: Ask) -> None:
    assert ask("list", "Probe").out == PROBE


CLIENTS = {"TrackioHook": "trackio", "TrackioWriter": "trackio", "WandbHook": "wandb", "MLflowHook": "mlflow"}
CLIENTS |= {"ClearMLHook": "clearml"}
"""What an example is checked against: trackio is never installed with the others, its pins collide with ours."""


@pytest.mark.parametrize("name", [*HOOKS, *WRITERS])
def test_the_example_of_a_hook_is_a_good_configuration(ask: Ask, write: Write, name: str) -> None:
    if name in CLIENTS:
        pytest.importorskip(CLIENTS[name])
    _, out, _ = ask("list", name)
    example = out.split("\nexample\n")[1]
    code, _, err = ask("validate", write(example))
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("EarlyStopping", "no hook, writer or component is called 'EarlyStopping', did you mean 'EarlyStoppingHook'?"),
        ("jsonlwriter", "no hook, writer or component is called 'jsonlwriter', did you mean 'JsonlWriter'?"),
        ("qqq", "no hook, writer or component is called 'qqq': ignite-hooks list shows all"),
    ],
)
def test_an_unknown_hook_is_refused_with_the_nearest(ask: Ask, name: str, message: str) -> None:
    assert ask("list", name) == (2, "", message + "\n")


@pytest.mark.parametrize(
    "name", ["cnn", "digits_detection", "AdamW", "StepLR", "MSELoss", "miou", "training", "evaluation"]
)
def test_what_a_trainer_reads_is_listed_with_its_settings(ask: Ask, terminal: None, name: str) -> None:
    assert name in ask("list").out
    code, out, err = ask("list", name)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == name
    settings = {"cnn": "channels", "training": "grad_accumulation", "StepLR": "step_size", "evaluation": "metrics"}
    assert settings.get(name, "") in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_misspelt_model_is_refused_with_the_nearest(ask: Ask) -> None:
    assert "did you mean 'segmenter'?" in ask("list", "segmentr").err
