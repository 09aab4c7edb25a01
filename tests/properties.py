"""Claims about any input: hypothesis makes the inputs, and shows the smallest one that a claim fails for.

`make test` tries few, the same each time, so that no test fails by chance. The long forms (`make faults`) try many, and
others each time; a failure prints what repeats it. Nothing is kept between runs, and nothing depends on the speed of a
machine.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

from tests.faults.tools import LONG

# It keeps tables of characters there, and constants of our modules.
set_hypothesis_home_dir(Path(__file__).parents[1] / ".cache" / "hypothesis")

MANY_MORE = 10
"""How many times as many inputs the long forms try."""

PROFILE = settings(
    database=None,
    deadline=None,
    derandomize=not LONG,
    print_blob=True,
    # Not the last phase, which says more of a failure: it may take minutes.
    phases=[Phase.explicit, Phase.generate, Phase.target, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)


def tried(inputs: int) -> settings:
    """Return the settings of a claim for which so many inputs are tried."""
    return settings(PROFILE, max_examples=inputs * MANY_MORE if LONG else inputs)


ANY_TEXT = st.text(st.characters(), max_size=30)
"""With control characters and halves of surrogate pairs."""
WORDS = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8)
# In JSON a character of a higher plane is written as two halves, which YAML does not join.
TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
"""What a configuration may consist of."""


@st.composite
def damaged(draw: st.DrawFn, text: str, pieces: list[str]) -> bytes:
    """Return a text in which pieces are put, taken out or repeated, perhaps with a byte that is another one."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        stop = min(len(text), start + draw(st.integers(0, 6)))
        kind = draw(st.sampled_from(["put", "taken out", "repeated"]))
        if kind == "put":
            middle = draw(st.sampled_from(pieces))
        else:
            middle = text[start:stop] * (draw(st.integers(2, 40)) if kind == "repeated" else 0)
        text = text[:start] + middle + text[stop:]
    content = bytearray(text.encode())
    if content and draw(st.integers(0, 9)) == 9:
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content)
