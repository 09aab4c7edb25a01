"""The style sheet of all pages: one column on a phone, light and dark."""

from __future__ import annotations

from collections.abc import Sequence

from ignite_hooks.drawing.theme import ON_DARK, ON_LIGHT, Colour, as_hex

COLOURS = len(ON_LIGHT)
"""Number of colours of lines; further lines begin with the first colour again."""


def look(number: int) -> str:
    """Return the classes of a line: after all colours they come again, dashed, and then from the beginning.

    Example:
        >>> look(1), look(1 + COLOURS), look(1 + 2 * COLOURS)
        ('s1', 's1 again', 's1')
    """
    return f"s{number % COLOURS}{' again' if number // COLOURS % 2 else ''}"


def _variables(colours: Sequence[Colour]) -> str:
    return " ".join(f"--s{number}: {as_hex(colour)};" for number, colour in enumerate(colours))


def _coloured(number: int) -> str:
    own, filled = f"s{number}", ("dot", "band", "star", "part")
    fills = ", ".join(f".{kind}.{own}" for kind in filled)
    ink = f"var(--{own})"
    lines = f".line.{own}, .ring.{own} {{ stroke: {ink}; }}"
    return f"{lines} {fills} {{ fill: {ink}; }} .key.{own} {{ background: {ink}; }}\n"


_SHEET = """
:root { color-scheme: light dark;
  --paper: #f6f7f9; --card: #fff; --ink: #1c2127; --faint: #5c6672; --line: #e1e5ea; --link: #0060a0;
  --good: #067647; --good-bg: #e3f6ec; --live: #0060a0; --live-bg: #e2f0fb;
  --warn: #8a5300; --warn-bg: #fdf0d5; --bad: #b42318; --bad-bg: #fdeae8; --edge: #0003;
  @light }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14171a; --card: #1d2125; --ink: #e8eaed; --faint: #a0a8b1; --line: #343a41; --link: #7cc0f5;
  --good: #6fdca6; --good-bg: #12372a; --live: #7cc0f5; --live-bg: #10314a;
  --warn: #f5c663; --warn-bg: #3b2d0b; --bad: #ff9a90; --bad-bg: #45191a; --edge: #fff4;
  @dark } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main, header, footer { max-width: 76rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 1.75rem; }
footer { color: var(--faint); font-size: 13px; padding-top: 1.5rem; padding-bottom: 2.5rem; }
a { color: var(--link); text-underline-offset: 2px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; display: inline; }
h2 { font-size: 1.15rem; margin: 0 0 .75rem; }
h3 { font-size: .95rem; margin: 0 0 .35rem; overflow-wrap: anywhere; }
p { margin: .4rem 0; } p, li, dt, dd, summary { overflow-wrap: anywhere; } .faint, .sub { color: var(--faint); }
.title { display: flex; flex-wrap: wrap; gap: .5rem .9rem; align-items: center; }
.pill { border-radius: 99px; padding: .1rem .75rem; font-weight: 600; font-size: .9rem; white-space: nowrap; }
.finished { color: var(--good); background: var(--good-bg); }
.running { color: var(--live); background: var(--live-bg); }
.stopped { color: var(--warn); background: var(--warn-bg); }
.failed { color: var(--bad); background: var(--bad-bg); }
progress { width: 100%; height: .5rem; accent-color: var(--live); margin-top: .5rem; display: block; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; margin: .9rem 0 0; font-size: 14px; }
.cards { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: .9rem; margin-top: 1.1rem; }
@media (max-width: 66rem) { .cards { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
.card, section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.1rem;
  }
section { margin-top: 1.1rem; scroll-margin-top: .5rem; }
.card .name { color: var(--faint); font-size: .85rem; font-weight: 600; }
.card .big { font-size: 1.3rem; line-height: 1.35; font-weight: 650; overflow-wrap: anywhere; }
.card .big small { font-size: .95rem; font-weight: 500; color: var(--faint); }
.card p { margin: .15rem 0 0; font-size: .9rem; overflow-wrap: anywhere; }
.trouble { border-left: 4px solid var(--bad); } .caution { border-left: 4px solid var(--warn); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr));
  gap: 1.4rem 1.6rem; }
.charts.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); }
figure { margin: 0; min-width: 0; } figcaption { font-size: .85rem; color: var(--faint); overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--faint); font: 11px system-ui, sans-serif; }
svg .grid { stroke: var(--line); } svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .over { paint-order: stroke; stroke: var(--card); stroke-width: 3px; }
svg .band { opacity: .18; stroke: none; } svg .hover { fill: transparent; } svg .hover:hover { fill: var(--faint); }
svg .ring { fill: none; stroke-width: 2; } svg .line.again { stroke-dasharray: 6 4; }
svg .ring.again { stroke-dasharray: 3 2; }
svg .star { stroke: var(--card); stroke-width: 1; } svg.bar { height: 1.4rem; border-radius: 5px; }
.legend { list-style: none; margin: .3rem 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem 1rem;
  font-size: .85rem; }
.legend li { display: flex; align-items: baseline; min-width: 0; overflow-wrap: anywhere; }
.legend span { min-width: 0; } .legend .odd { color: var(--bad); }
.key { flex: none; width: .75rem; height: .75rem; border-radius: 3px; margin-right: .4rem; }
.key.again { mask: linear-gradient(90deg, #000 38%, transparent 38% 62%, #000 62%); }
.named { display: inline-flex; align-items: baseline; } .runs th { cursor: pointer; }
.killed { color: var(--bad); background: var(--bad-bg); }
/* An edge is shaded where there is more to scroll to. */
.wide { overflow-x: auto; max-width: 100%; background-color: var(--card); background-repeat: no-repeat;
  background-attachment: local, local, scroll, scroll;
  background-size: 2.5rem 100%, 2.5rem 100%, .8rem 100%, .8rem 100%;
  background-position: left, right, left, right; background-image:
  linear-gradient(to right, var(--card) 40%, transparent), linear-gradient(to left, var(--card) 40%, transparent),
  linear-gradient(to right, var(--edge), transparent), linear-gradient(to left, var(--edge), transparent); }
table { border-collapse: collapse; font-size: 14px; width: 100%; }
th, td { text-align: left; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--faint); font-weight: 600; white-space: nowrap; font-size: 13px; }
tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td:last-child, th:last-child { padding-right: 0; } table.best { width: auto; }
table.best :is(td, th) { padding-right: 1.6rem; }
.plan td:first-child { width: 1%; font: 13px ui-monospace, monospace; padding-top: .5rem; }
.notes { font-size: 13px; }
.profile { font-size: 13px; } .profile td:first-child { font-family: ui-monospace, monospace; }
.profile td:not(.n) { overflow-wrap: anywhere; } .profile td:nth-child(n+2):not(.n) { color: var(--faint); }
.picture { display: block; width: 100%; max-width: 56rem; min-width: 36rem; border-radius: 6px; }
.chips { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem .35rem; }
.chips li { border: 1px solid var(--line); border-radius: 6px; padding: 0 .45rem; background: var(--paper); }
.chips small { color: var(--faint); }
.stack > div + div { margin-top: 1.1rem; } section h3:not(:first-child) { margin-top: 1rem; }
figure h3 { margin-top: 0 !important; }
.share { display: inline-block; height: .65rem; border-radius: 2px; background: var(--s0); min-width: 2px;
  vertical-align: baseline; }
.room { display: inline-block; width: 6rem; text-align: left; margin-left: .6rem; }
dl { display: grid; grid-template-columns: fit-content(45%) 1fr; gap: .25rem 1.2rem; margin: 0; font-size: 14px; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
pre { margin: 0; font: 13px/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere;
  max-height: 34rem; overflow: auto; background-color: var(--card); background-repeat: no-repeat;
  background-attachment: local, local, scroll, scroll;
  background-size: 100% 2.5rem, 100% 2.5rem, 100% .8rem, 100% .8rem;
  background-position: top, bottom, top, bottom; background-image:
  linear-gradient(to bottom, var(--card) 40%, transparent), linear-gradient(to top, var(--card) 40%, transparent),
  linear-gradient(to bottom, var(--edge), transparent), linear-gradient(to top, var(--edge), transparent); }
code { font: .92em ui-monospace, monospace; overflow-wrap: anywhere; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1.2rem;
  align-items: start; grid-auto-flow: dense; }
@media (min-width: 48rem) { .pictures .broad { grid-column: span 2; } }
.pictures img { width: 100%; height: auto; max-height: 30rem; object-fit: contain; object-position: left top;
  background: #fff; border: 1px solid var(--line); border-radius: 6px; display: block; }
.pictures :is(audio, video) { width: 100%; display: block; }
.results { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: 1.4rem 1.8rem; }
.results > div { min-width: 0; } .results .wide-result { grid-column: 1 / -1; }
.results h3 { margin-top: 0 !important; }
.confusion { width: auto; font-size: 13px; } .confusion :is(th, td) { padding: .25rem .5rem; text-align: right;
  font-variant-numeric: tabular-nums; } .confusion td { min-width: 2.4rem; border: 1px solid var(--line); }
.bars { list-style: none; margin: 0; padding: 0; font-size: 14px; } .bars li { display: grid; align-items: center;
  grid-template-columns: minmax(3rem, 30%) 1fr 3.6rem; gap: .6rem; } .bars .room { width: auto; margin: 0; }
.bars .of { overflow-wrap: anywhere; } .bars .n { text-align: right; font-variant-numeric: tabular-nums; }
.samples img { width: 3.5rem; image-rendering: pixelated; display: block; border: 1px solid var(--line); }
.said { margin: 0; padding-left: 1.15rem; } .said li { margin: .25rem 0; overflow-wrap: anywhere; }
summary { cursor: pointer; font-weight: 600; margin: .8rem 0 .5rem; }
.times { color: var(--faint); font-size: 13px; margin-right: .5rem; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.1rem 2rem; }
@media (max-width: 40rem) {
  .plan, .plan tbody, .plan tr, .plan td { display: block; width: auto; } .plan thead { display: none; }
  .plan td { border: 0; padding-right: 0; } .plan td:first-child { width: auto; }
  .plan tr { border-bottom: 1px solid var(--line); }
  main, header, footer { padding-left: .8rem; padding-right: .8rem; } .card, section { padding: .85rem; }
  .cards { grid-template-columns: 1fr; gap: .7rem; } .room { width: 3rem; }
  svg text { font-size: 12.5px; } dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; }
  .long td:first-child:not(.n) { min-width: 12rem; }
  .key { width: .7rem; height: .7rem; } table.best td { white-space: nowrap; }
  table.best td:first-child { white-space: normal; min-width: 6rem; } table.best { font-size: 13px; }
  table.best :is(td, th) { padding-right: .75rem; } }
@media print { body { background: #fff; } nav { display: none; } section { break-inside: avoid; }
pre { max-height: none; } }
"""

_LINES = "".join(_coloured(number) for number in range(COLOURS))
STYLE = _SHEET.replace("@light", _variables(ON_LIGHT)).replace("@dark", _variables(ON_DARK)) + _LINES
