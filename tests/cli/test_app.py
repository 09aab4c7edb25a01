"""The command line as a process: usage, exit codes, and what it loads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ignite_hooks.cli.app import main
from ignite_hooks.version import __version__
from tests.cli.tools import GOOD


def process(*argv: str, code: str | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(("-c", code) if code else ("-m", "ignite_hooks")), *argv]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, timeout=240)


@pytest.mark.parametrize("argv", [(), ("explain",), ("validate",), ("lst",), ("explain", "x.yaml", "--epochs", "-1")])
def test_wrong_usage_ends_with_2(argv: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2
    assert "usage: ignite-hooks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["train", "x.yaml", "--training.epochs=two"], "x.yaml: training.epochs: "),
        (["train", "x.yaml", "--training.epochs=2", "--dataset.nothing=1"], "x.yaml: dataset.nothing: "),
        (["train", "x.yaml", "--epochs=2"], "unrecognized arguments: --epochs=2"),
        (["train", "x.yaml", "--training.epochs", "2"], "unrecognized arguments: --training.epochs 2"),
        (["train", "x.yaml", "training.epochs=2"], "unrecognized arguments: training.epochs=2"),
        (["validate", "x.yaml", "--training.epochs=2"], "unrecognized arguments: --training.epochs=2"),
    ],
)
def test_a_setting_is_an_option_where_settings_are_taken(
    argv: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text("{model: cnn, dataset: {type: digits}, training: {optimizer: Adam}}")
    code = None
    try:
        code = main(argv)
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert said in capsys.readouterr().err


def test_commands_that_do_not_exist_yet_are_not_offered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    assert "{" not in capsys.readouterr().out


def test_the_module_can_be_run() -> None:
    answer = process("--version")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"ignite-hooks {__version__}\n", "")


@pytest.mark.parametrize(
    "argv",
    [
        ("list",),
        ("list", "CheckpointHook"),
        ("list", "AdamW"),
        ("schema",),
        ("validate", "x.yaml"),
        ("validate", "handlers.yaml"),
        ("validate", "trains.yaml"),
        ("explain", "x.yaml"),
        ("explain", "x.yaml", "--timeline"),
    ],
)
def test_nothing_heavy_is_loaded(tmp_path: Path, argv: Sequence[str]) -> None:
    (tmp_path / "x.yaml").write_text(GOOD)
    (tmp_path / "handlers.yaml").write_text("hooks: [{type: ignite.handlers.TimeLimit, limit_sec: 3}]")
    (tmp_path / "trains.yaml").write_text("{model: cnn, dataset: digits, evaluation: {metrics: [R2Score]}}")
    code = (
        "import sys; from ignite_hooks.cli.app import main; code = main(sys.argv[1:]);"
        "print([m for m in ('torch', 'ignite', 'numpy', 'matplotlib') if m in sys.modules], file=sys.stderr);"
        "sys.exit(code)"
    )
    answer = process(*argv, code=code, cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "[]\n")


def test_the_process_exits_with_2_for_a_bad_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("hooks: [{type: LoggerHook, intervall: 1}]")
    answer = process("validate", "x.yaml", cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_who_leaves_early_is_no_error(tmp_path: Path, unbuffered: str) -> None:
    (tmp_path / "x.yaml").write_text(GOOD)
    command = [
        sys.executable,
        "-m",
        "ignite_hooks",
        "explain",
        "x.yaml",
        "--timeline",
        "--epochs",
        "200",
        "--iters",
        "50",
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    )
    assert running.stdout is not None
    assert running.stderr is not None
    assert running.stdout.readline().split()[0] == "epoch"
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait(timeout=240) == 1
    running.stderr.close()


def test_letters_that_stdout_lacks_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("hooks: [{type: CheckpointHook, name: 精度}]\n", encoding="utf-8")
    code = "from ignite_hooks.cli.app import main; raise SystemExit(main(['explain', 'c.yaml']))"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        cwd=tmp_path,
        check=False,
        timeout=240,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert answer.stderr == b""
    assert answer.returncode == 0
    assert rb"\u7cbe\u5ea6" in answer.stdout


def test_a_rank_that_is_done_cannot_be_aborted_by_the_end_of_its_interpreter() -> None:
    code = (
        "import atexit, ctypes, sys, threading; from ignite_hooks.cli.app import main;"
        "atexit.register(print, 'atexit');"
        "threading.Thread(target=lambda: print('thread', threading.main_thread().join())).start();"
        "ctypes.pythonapi.Py_AtExit(ctypes.CDLL(None).abort); sys.argv[0] = 'ignite-hooks'; sys.exit(main())"
    )
    for started_by, codes in (({}, -6), ({"TORCHELASTIC_RUN_ID": "none"}, 0)):
        command = [sys.executable, "-c", code, "list", "LoggerHook"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **started_by}, timeout=240)
        assert done.returncode == codes, done.stderr
        assert done.stdout.startswith("LoggerHook")
        assert done.stdout.endswith("thread None\natexit\n")
