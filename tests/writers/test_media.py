"""Sounds and videos become files that browsers play, and every writer that takes them has them."""

from __future__ import annotations

import io
import logging
import wave
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

from ignite_hooks.writers import media
from ignite_hooks.writers.adapt import adapt
from ignite_hooks.writers.console import ConsoleWriter
from ignite_hooks.writers.interface import Writer
from ignite_hooks.writers.jsonl import JsonlWriter
from ignite_hooks.writers.many import ManyWriters
from ignite_hooks.writers.media import Media, sound_of, video_of
from ignite_hooks.writers.memory import MemoryWriter


def heard(made: Media) -> tuple[int, numpy.ndarray[Any, Any]]:
    """Return the rate and the samples of a WAV, read by the standard library."""
    with wave.open(io.BytesIO(made.data)) as file:
        samples = numpy.frombuffer(file.readframes(file.getnframes()), "<i2")
        return file.getframerate(), samples.reshape(-1, file.getnchannels())


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([0.0, 1.0, -1.0, 2.0, float("nan")], [0, 32767, -32767, 32767, 0]),
        (torch.tensor([0.5, -0.5], dtype=torch.bfloat16), [16384, -16384]),
        (numpy.array([1, -2], numpy.int16), [1, -2]),
        (numpy.array([1 << 16, -(1 << 16)], numpy.int32), [1, -1]),
        (numpy.array([128, 255, 0], numpy.uint8), [0, 127 << 8, -128 << 8]),
    ],
)
def test_samples_of_any_type_are_heard_at_their_loudness(samples: Any, expected: list[int]) -> None:
    rate, found = heard(sound_of(samples, 8000))
    assert rate == 8000
    assert found[:, 0].tolist() == expected


@pytest.mark.parametrize("made", [lambda x: x, lambda x: x.T, lambda x: torch.tensor(x)])
def test_channels_come_before_or_after_the_samples(made: Any) -> None:
    both = numpy.stack([numpy.linspace(0, 1, 10), numpy.linspace(0, -1, 10)])
    sound = sound_of(made(both), 100)
    assert sound.shape == (10, 2)
    assert heard(sound)[1][-1].tolist() == [32767, -32767]


FRAMES = numpy.stack([numpy.full((6, 8, 3), shade, numpy.uint8) for shade in (0, 100, 250)])


@pytest.mark.parametrize(
    "frames",
    [
        FRAMES,
        list(FRAMES),
        FRAMES.transpose(0, 3, 1, 2),
        torch.tensor(FRAMES / 255),
        torch.tensor(FRAMES / 255).permute(0, 3, 1, 2),
        FRAMES[..., 0],
        [torch.tensor(frame).permute(2, 0, 1) for frame in FRAMES],
    ],
)
def test_frames_in_any_order_of_axes_are_seen(frames: Any) -> None:
    made = video_of(frames, fps=5)
    assert (made.suffix, made.shape) == ("gif", (3, 6, 8))
    with Image.open(io.BytesIO(made.data)) as found:
        assert (found.n_frames, found.size, found.info["duration"], found.info["loop"]) == (3, (8, 6), 200, 0)
        for place, shade in enumerate((0, 100, 250)):
            found.seek(place)
            assert abs(numpy.asarray(found.convert("RGB"), int) - shade).max() <= 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sound_of([0.0]), "rate"),
        (lambda: sound_of([], 8000), "a row of samples"),
        (lambda: sound_of(numpy.zeros((20, 30)), 8000), "a few channels"),
        (lambda: sound_of(["a"], 8000), "samples are numbers"),
        (lambda: sound_of("song.txt"), "wav, mp3, ogg, flac"),
        (lambda: video_of([]), "frames, all of one size"),
        (lambda: video_of([FRAMES[0], FRAMES[0][:4]]), "of one size"),
        (lambda: video_of(FRAMES[None]), "frames x height x width"),
        (lambda: video_of(FRAMES, fps=0), "fps"),
        (lambda: video_of("film.wav"), "gif, mp4, webm"),
    ],
)
def test_what_is_none_is_an_error_that_says_what_is_needed(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_what_is_too_large_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(media, "LARGEST", 100)
    (tmp_path / "a.mp4").write_bytes(bytes(101))
    for make in (lambda: sound_of([0.0] * 99, 8000), lambda: video_of(FRAMES), lambda: video_of(tmp_path / "a.mp4")):
        with pytest.raises(ValueError, match=r"at most|too much"):
            make()


def test_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "episode.MP4"
    path.write_bytes(b"a film")
    assert video_of(path) == Media("video", "mp4", b"a film")
    assert video_of(str(path)).content_type == "video/mp4"


class Old:
    """A writer of another library, from before there were sounds."""

    def write_scalar(self, *_: Any) -> None: ...

    write_image = write_config = write_scalar


class Takes(Old):
    def __init__(self) -> None:
        self.got: list[str] = []

    def write_media(self, name: str, found: Media, step: int) -> None:
        self.got.append(f"{name} {found.kind} {step}")


def test_every_writer_gets_one_file_and_who_takes_none_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    memory, takes = MemoryWriter(), Takes()
    many = ManyWriters([memory, adapt(takes), Old()])
    with caplog.at_level(logging.WARNING):
        for step in (1, 2):
            many.write_audio("tone", [0.0, 0.5], step, rate=8000)
            many.write_video("film", FRAMES, step)
    assert [(name, one.kind, step) for name, one, step in memory.media] == [
        ("tone", "audio", 1),
        ("film", "video", 1),
        ("tone", "audio", 2),
        ("film", "video", 2),
    ]
    assert takes.got == ["tone audio 1", "film video 1", "tone audio 2", "film video 2"]
    assert caplog.messages == ["Old does not get audio 'tone': it has no method write_media"]


def test_what_cannot_be_written_ends_no_run(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryWriter()
    many = ManyWriters([memory])
    many.write_audio("tone", "nowhere.wav", 3)
    many.write_video("film", [], 3)
    assert memory.media == []
    assert not many.failures()
    assert "audio tone of iteration 3 is not written: FileNotFoundError" in caplog.messages[0]
    assert "video film of iteration 3 is not written: a video has frames" in caplog.messages[1]


def test_a_writer_alone_writes_them_too(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryWriter()
    memory.write_audio("tone", [0.0], 1, rate=8000)
    memory.write_video("film", FRAMES, 2)
    assert [one.suffix for _, one, _ in memory.media] == ["wav", "gif"]
    Writer().write_audio("tone", [0.0], 1, rate=8000)
    with caplog.at_level(logging.INFO):
        ConsoleWriter().write_video("film", FRAMES, 2)
    assert "iter 2  video film" in caplog.messages[0]


def test_files_are_in_the_work_directory_whatever_their_names(tmp_path: Path) -> None:
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    for name in ("val/worst", "../../a", "/etc/b c", ""):
        writer.write_audio(name, [0.0], 7, rate=8000)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.wav"))
    assert files == [
        "media/a_000007.wav",
        "media/audio_000007.wav",
        "media/etc/b_c_000007.wav",
        "media/val/worst_000007.wav",
    ]
    assert not (tmp_path / "metrics.jsonl").exists()
