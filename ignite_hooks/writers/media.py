"""Sounds and videos as files that a browser plays: WAV by the standard library, GIF by Pillow."""

from __future__ import annotations

import io
import math
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ignite_hooks.text import size as size_in_words
from ignite_hooks.writers.convert import as_picture

Kind = Literal["audio", "video"]

TYPES: Final = {
    "wav": ("audio", "audio/wav"),
    "mp3": ("audio", "audio/mpeg"),
    "ogg": ("audio", "audio/ogg"),
    "flac": ("audio", "audio/flac"),
    "gif": ("video", "image/gif"),
    "mp4": ("video", "video/mp4"),
    "webm": ("video", "video/webm"),
}
"""The files that browsers play, by their suffix: what they are, and the name of their type."""
FOLDER: Final = "media"
"""Where they are in a work directory."""
LARGEST: Final = 50_000_000
"""Bytes of a file, and pixels of a video, beyond which neither is written."""
MOST_CHANNELS: Final = 8


@dataclass(frozen=True)
class Media:
    """A sound or a video as the content of a file.

    Args:
        kind: audio or video.
        suffix: What its name ends with, without the dot.
        data: The content.
        rate: Samples or frames in a second; 0 for a file that was given.
        shape: Samples and channels of a sound; frames, height and width of a video; empty for a file that was given.
    """

    kind: Kind
    suffix: str
    data: bytes
    rate: float = 0.0
    shape: tuple[int, ...] = ()

    @property
    def content_type(self) -> str:
        """The name of the type, as browsers know it."""
        return TYPES[self.suffix][1]


def sound_of(samples: Any, rate: int | None = None) -> Media:
    """Return a sound; raise `ValueError` where it is none.

    Args:
        samples: A row of samples, or one for each channel, in either order: floats from -1.0 to 1.0, or integers over
            the whole of their range. Or the path of a file.
        rate: Samples in a second.

    Example:
        >>> made = sound_of([0.0, 0.5, -0.5, 0.0], rate=8000)
        >>> made.suffix, made.shape, len(made.data)
        ('wav', (4, 1), 52)
    """
    if isinstance(samples, (str, Path)):
        return _of_file(Path(samples), "audio")
    if not rate or rate < 1:
        raise ValueError(f"rate: the samples in a second are needed, not {rate!r}")
    plain = _sixteen_bits(_array(samples))
    if plain.ndim == 1:
        plain = plain[:, None]
    elif plain.ndim == 2 and plain.shape[0] < plain.shape[1]:
        plain = plain.T
    if plain.ndim != 2 or not plain.size or plain.shape[1] > MOST_CHANNELS:
        raise ValueError(f"a sound is a row of samples, or some of them for a few channels, not {plain.shape}")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(plain.shape[1])
        writer.setsampwidth(2)
        writer.setframerate(int(rate))
        writer.writeframes(plain.astype("<i2").tobytes())
    return _checked(Media("audio", "wav", file.getvalue(), float(rate), (len(plain), plain.shape[1])))


def video_of(frames: Any, fps: float = 4.0) -> Media:
    """Return a video as an animated GIF; raise `ValueError` where it is none.

    Args:
        frames: Pictures of one size, as ``write_image`` takes them, or an array of them: frames x height x width x
            channels, or frames x channels x height x width. Or the path of a file.
        fps: Frames in a second.
    """
    if isinstance(frames, (str, Path)):
        return _of_file(Path(frames), "video")
    if not (math.isfinite(fps) and fps > 0):
        raise ValueError(f"fps: the frames in a second are needed, not {fps!r}")
    from PIL import Image

    pictures = [as_picture(frame)[:, :, :3] for frame in _frames(frames)]
    if not pictures or len({picture.shape for picture in pictures}) != 1:
        raise ValueError("a video has frames, all of one size")
    height, width = pictures[0].shape[:2]
    if len(pictures) * height * width > LARGEST:
        raise ValueError(f"{len(pictures)} frames of {height} x {width} are too much: write fewer, or smaller ones")
    first, *rest = (Image.fromarray(picture) for picture in pictures)
    file = io.BytesIO()
    # A GIF counts in hundredths of a second, and browsers slow down what is faster than two of them.
    shown_for = max(20, round(100 / fps) * 10)
    first.save(file, "GIF", save_all=True, append_images=rest, duration=shown_for, loop=0)
    return _checked(Media("video", "gif", file.getvalue(), float(fps), (len(pictures), height, width)))


def _of_file(path: Path, kind: Kind) -> Media:
    suffix = path.suffix.lower().removeprefix(".")
    known = [name for name, (of_kind, _) in TYPES.items() if of_kind == kind]
    if suffix not in known:
        raise ValueError(f"{path.name}: a file of {kind} is {', '.join(known)}")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path.name} has {size_in_words(path.stat().st_size)}: at most {size_in_words(LARGEST)}")
    return Media(kind, suffix, path.read_bytes())


def _checked(made: Media) -> Media:
    if len(made.data) > LARGEST:
        raise ValueError(f"it has {size_in_words(len(made.data))}: at most {size_in_words(LARGEST)} are written")
    return made


def _array(values: Any) -> Any:
    import numpy

    if hasattr(type(values), "detach"):
        values = values.detach().cpu()
        values = (values.float() if values.is_floating_point() else values).numpy()
    return numpy.asarray(values)


def _sixteen_bits(values: Any) -> Any:
    """Return samples as signed integers of 16 bits."""
    import numpy

    if values.dtype.kind == "f":
        kept = numpy.nan_to_num(values.astype(numpy.float64), posinf=1.0, neginf=-1.0).clip(-1, 1)
        return (kept * 32767).round().astype(numpy.int16)
    if values.dtype.kind not in "iu":
        raise ValueError(f"samples are numbers, not {values.dtype}")
    bits = 8 * values.dtype.itemsize
    # The middle of an unsigned range is silence.
    centred = values.astype(numpy.int64) - (1 << (bits - 1) if values.dtype.kind == "u" else 0)
    return (centred >> (bits - 16) if bits >= 16 else centred << (16 - bits)).astype(numpy.int16)


def _frames(frames: Any) -> list[Any]:
    """Return the frames one by one; a whole array may have its channels before or after height and width."""
    if not hasattr(type(frames), "shape"):
        return list(frames)
    frames = _array(frames)
    if frames.ndim not in (3, 4):
        raise ValueError(f"a video is frames x height x width x channels, not {tuple(frames.shape)}")
    channels = (1, 3, 4)
    if frames.ndim == 4 and frames.shape[1] in channels and frames.shape[3] not in channels:
        frames = frames.transpose(0, 2, 3, 1)
    return list(frames)
