"""Runs every benchmark and writes what it found: ``docs/benchmarks.md`` with pictures and JSON, ``docs/costs.md``.

Each script runs in a separate interpreter, so that none finds the threads, the memory or the modules of another.
Nothing on the page is written by hand: its remarks about a figure are in the script that measures it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from measure import put_in

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PEERS = ("torch", "pytorch-ignite", "mmengine", "lightning", "timm", "numpy")
QUIET_ENGINE_NS = 3400
"""What an empty iteration of the bare engine took on the machine on which the targets in microseconds were set."""


class Section(NamedTuple):
    """A script, and what the page says above what it has measured."""

    script: str
    title: str
    text: str


SECTIONS = (
    Section(
        "default_set",
        "The complete default set",
        "Checkpoint each epoch, a line each 50 iterations, EMA, validation, early stopping, a timer: four epochs of "
        "500 iterations of a small MLP. The limit is the same work in a bare loop, written by hand for this one case.",
    ),
    Section(
        "dispatch",
        "Calling hooks",
        "An iteration of an empty step with 50 hooks. The limit is the bare Ignite engine, and for each further hook "
        "the call itself.",
    ),
    Section(
        "held",
        "Memory",
        "What an attached hook takes, and what a run of a million iterations with the default set and an empty step "
        "adds to its memory after the first ten thousand.",
    ),
    Section(
        "logs",
        "Logging",
        "Console, `metrics.jsonl`, TensorBoard, learning rate and timer every 50 iterations, above the bare loop of "
        "the same library, at the start of a run and late in one.",
    ),
    Section(
        "trackers",
        "Trackers in trouble",
        "Iterations of some milliseconds while an MLflow server misbehaves, over the same without a tracker.",
    ),
    Section(
        "losses",
        "Looking for NaN",
        "Whole iterations with CheckInvalidLossHook, over the same without hooks.",
    ),
    Section(
        "ema",
        "Averaging weights",
        "One update of the averages, and exchanging the weights for them. The limit is one fused operation over lists "
        "kept ready, which for large models is the speed of memory. Ours also makes sure that the weights are finite.",
    ),
    Section(
        "save",
        "Saving checkpoints",
        "What one save takes from a loop of real iterations. The limit is copying as many bytes into memory that is "
        "already there. Asynchronous savers may finish later, which is waited for outside the time.",
    ),
    Section(
        "sharded",
        "Saving sharded models",
        "What one save of a model that two processes share takes from their loop. The limit is copying as many bytes, "
        "in both at once.",
    ),
    Section(
        "distributed",
        "Two processes",
        "Making averages equal, agreeing about the end of a run, evaluating together, over gloo.",
    ),
    Section("imports", "Importing", "Each in a new interpreter. The limit is importing torch, which all of them do."),
    Section(
        "profiling", "Watching", "Timers and profilers while nothing is looked at, by the processor time of the loop."
    ),
    Section("drawing", "Pictures", "A sheet of 16 images, on one core; the loop only waits for a copy."),
)


COLUMNS = {"ours": "ignite_hooks", "Ignite": "Ignite's handlers", "MMEngine": "MMEngine", "Lightning": "Lightning"}
"""How the names of bars begin, and what the table in docs/costs.md calls them."""
SUMMARY = (
    ("default_set", "default_set"),
    ("default_set", "default_set_1ms"),
    ("logs", "logging"),
    ("dispatch", "dispatch_idle"),
    ("dispatch", "dispatch_acting"),
    ("ema", "ema_1"),
    ("save", "save_500"),
)
"""The charts that are rows of it, by script and name."""


# -- running ---------------------------------------------------------------------------------------------------


def run(section: Section, folder: Path, quick: bool) -> bool:
    """Run one script; a failure is reported and the others continue."""
    file = folder / f"{section.script}.json"
    command = [sys.executable, str(HERE / f"{section.script}.py"), "--json", str(file), *(["--quick"] if quick else [])]
    print(f"\n== {section.title}: {section.script}.py", flush=True)
    return subprocess.run(command).returncode == 0


def machine() -> dict[str, Any]:
    """Return the machine that all of it was measured on."""
    return {
        "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": {name: version for name in PEERS if (version := version_of(name)) is not None},
        "memcpy_gb_s": round(memory_speed(), 1),
    }


def cpu_name() -> str:
    """Return the name of the CPU as the system has it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def version_of(package: str) -> str | None:
    """Return the installed version, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def memory_speed(megabytes: int = 256) -> float:
    """Return the gigabytes per second of copying into memory that was touched before: the best of five."""
    import numpy as np

    source, target = (np.ones(megabytes << 20, np.uint8) for _ in range(2))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - start)
    return megabytes / 1024 / min(times)


# -- pictures --------------------------------------------------------------------------------------------------


def draw(chart: Mapping[str, Any], file: Path) -> None:
    """Bars beside each other, ours in colour, with the quartiles and what cannot be gone below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from ignite_hooks.drawing import theme as look

    def colour(rgb: look.Colour) -> tuple[float, ...]:
        return tuple(value / 255 for value in rgb)

    bars = chart["bars"]
    names = list(bars)
    medians = [bars[name]["median"] for name in names]
    longest = max([abs(value) for value in medians] + [chart["limit"] or 0]) or 1.0
    figure = Figure(figsize=(7.6, 1.15 + 0.36 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    axes.barh(
        range(len(names)),
        medians,
        height=0.66,
        color=[colour(look.RIGHT) if is_ours(name) else (0.72, 0.72, 0.72) for name in names],
    )
    for place, name in enumerate(names):
        lower, upper = bars[name]["lower"], min(bars[name]["upper"], 1.15 * longest)
        axes.plot([lower, max(lower, upper)], [place, place], color=colour(look.INK), linewidth=1)
        right = max(bars[name]["median"], upper, 0)
        words = number(bars[name]["median"])
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        axes.text(right + 0.014 * longest, place, words, va="center", fontsize=9, bbox=box)
    if chart["limit"] is not None:
        axes.axvline(chart["limit"], color=colour(look.WRONG), linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xlabel(
            f"- - -  {chart['limit_name']}: {number(chart['limit'])}", loc="left", fontsize=8, color=colour(look.WRONG)
        )
    axes.axvline(0, color=colour(look.INK), linewidth=0.8)
    axes.set_yticks(range(len(names)), ["ignite_hooks" + name[4:] if is_ours(name) else name for name in names])
    axes.invert_yaxis()
    axes.set_xlim(min(0, *medians) * 1.1, longest * 1.28)
    axes.set_title(f"{chart['title']}, {chart['unit']}", loc="left", fontsize=10)
    axes.tick_params(labelsize=9)
    axes.tick_params(axis="x", labelsize=8, colors=colour(look.FAINT))
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    file.parent.mkdir(parents=True, exist_ok=True)
    canvas = FigureCanvasAgg(figure)
    figure.set_dpi(110)
    canvas.print_png(file)  # type: ignore[no-untyped-call]


def is_ours(name: str) -> bool:
    """Return whether a bar is one of ours."""
    return name.startswith("ours")


def number(value: float) -> str:
    """Return a number with three significant digits, or all digits of a large one.

    Example:
        >>> [number(value) for value in (0.0, 0.01234, 1.5, 14.26, 662.4, 12345.6)]
        ['0', '0.0123', '1.50', '14.3', '662', '12,346']
    """
    size = abs(value)
    if size >= 100 or size == 0:
        return f"{value:,.0f}"
    digits = 1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.1 else 4
    return f"{value:.{digits}f}"


# -- the page --------------------------------------------------------------------------------------------------


def page(results: Mapping[str, Mapping[str, Any]], on: Mapping[str, Any], quick: bool) -> str:
    """Return the whole page."""
    parts = list(head(results, on, quick))
    if not quick:
        parts += [*short(results), *lost(results)]
    for section in SECTIONS:
        if section.script in results:
            parts += body(section, results[section.script], quick)
    return "\n".join([*parts, *method()]) + "\n"


def head(results: Mapping[str, Mapping[str, Any]], on: Mapping[str, Any], quick: bool) -> Iterator[str]:
    """Yield what the page is, and what it was measured on."""
    minutes = sum(result["seconds"] for result in results.values()) / 60
    versions = ", ".join(f"{name} {version}" for name, version in on["versions"].items())
    yield "# Benchmarks"
    yield ""
    yield (
        f"Written by `make bench` on {on['when']} UTC, in {minutes:.0f} minutes; numbers, pictures and words come from "
        "the run, and the numbers of every round are in [benchmarks/](benchmarks/)."
    )
    yield ""
    if quick:
        yield "**A short run, which only shows that everything works: its numbers mean nothing.**"
        yield ""
    yield (
        f"On {on['cores']} cores of {on['cpu']}, which copy {on['memcpy_gb_s']} GB a second, with a load of "
        f"{on['load']} when it began; Python {on['python']}, {versions}."
    )
    yield ""
    engine = (results.get("dispatch") or {"values": {}})["values"].get("bare engine")
    if engine:
        times = median(engine) / QUIET_ENGINE_NS
        yield (
            f"An empty iteration of the bare Ignite engine took {median(engine) / 1e3:.1f} µs here, {times:.1f} times "
            f"as long as on the machine on which the targets in microseconds were set: where this is far from 1, go by "
            "the ratios."
        )
        yield ""


def short(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield every figure that has a target."""
    yield "## Targets"
    yield ""
    yield "| | figure | target | median | quartiles | |"
    yield "|---|---|--:|--:|--:|---|"
    for section in SECTIONS:
        topic = section.title
        for name, figure in named(results.get(section.script, {}).get("figures", [])):
            if figure["at_most"] is None:
                continue
            verdict = "reached" if figure["verdict"] == "reached" else "**missed**"
            yield f"| {topic} | {name} | {limit(figure)} | {with_unit(figure)} | {quartiles(figure)} | {verdict} |"
            topic = ""
    yield ""


def named(figures: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield figures with their whole names: three dots mean the one before."""
    whole = ""
    for figure in figures:
        dots = figure["name"].startswith("...")
        whole = whole if dots else figure["name"]
        yield (f"{whole}: {figure['name'][4:]}" if dots else whole), figure


def lost(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the targets that were missed, and the comparisons in which others do better."""
    yield "## What we lose"
    yield ""
    rows = []
    for section in SECTIONS:
        result, said = results.get(section.script, {}), ""
        for name, figure in named(result.get("figures", [])):
            if figure["verdict"] == "missed":
                why = figure["why"] or "no reason is known beside the machine"
                words = "for the same reason" if why == said else why
                rows.append(f"- **{name}**: {with_unit(figure)}, not {limit(figure)}: {words}.")
                said = why
        for chart in result.get("charts", []):
            rows += behind(chart)
    yield from rows or ["Nothing, in this run."]
    yield ""


def behind(chart: Mapping[str, Any]) -> Iterator[str]:
    """Yield who is ahead of the first of ours, by more than the quartiles are apart."""
    ours = next((bar for name, bar in chart["bars"].items() if is_ours(name)), None)
    for name, bar in chart["bars"].items():
        if ours is not None and not is_ours(name) and bar["upper"] < ours["lower"]:
            words = f"{number(bar['median'])} against our {number(ours['median'])} {chart['unit']}"
            yield f"- {chart['title']}: {name} takes {words}."


def body(section: Section, result: Mapping[str, Any], quick: bool) -> Iterator[str]:
    """Yield one script's part of the page; a short run is compared with no target."""
    yield f"## {section.title}"
    yield ""
    yield section.text
    yield ""
    for chart in result["charts"]:
        yield f"![{chart['title']}, {chart['unit']}](benchmarks/{chart['name']}.png)"
        yield ""
    yield "| figure | median | quartiles | target | |"
    yield "|---|--:|--:|--:|---|"
    for figure in result["figures"]:
        target = " | " if quick else f"{limit(figure)} | {figure['verdict']}"
        yield f"| {figure['name']} | {with_unit(figure)} | {quartiles(figure)} | {target} |"
    yield ""
    for note in result["notes"]:
        yield note
        yield ""
    yield f"<details><summary>every case: {result['about']}</summary>"
    yield ""
    yield f"| {result['unit']} | median | quartiles | rounds |"
    yield "|---|--:|--:|--:|"
    for name, values in result["values"].items():
        low, middle, high = quarters(values)
        yield f"| {name} | {number(middle)} | {number(low)} … {number(high)} | {len(values)} |"
    yield ""
    yield "</details>"
    yield ""


def costs(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table of docs/costs.md: the first bar of each library."""
    yield f"| less is better | {' | '.join(COLUMNS.values())} |"
    yield f"|---{'|--:' * len(COLUMNS)}|"
    for script, name in SUMMARY:
        for chart in results.get(script, {}).get("charts", []):
            if chart["name"] == name:
                bars = chart["bars"].items()
                cells = [next((number(bar["median"]) for who, bar in bars if who.startswith(c)), "") for c in COLUMNS]
                yield f"| {chart['title']}, {chart['unit']} | {' | '.join(cells)} |"


def method() -> Iterator[str]:
    """Yield how it is measured."""
    yield "## How it is measured"
    yield ""
    yield (
        "Every case takes its turn in each round, or in each second to fifth if it takes seconds, in a new order each "
        "time, and a ratio or a difference is the median of those within the rounds: a machine that is slow for a "
        "second is slow for all. Quartiles are those of the rounds. Iterations are timed in the middle of runs, 200 at "
        "a time; only the default set is timed as whole runs, whose parts take turns. Peers are set up as their "
        "documentation shows and do as much as we do. `benchmarks/README.md` tells how to run one script alone, and "
        "`tests/test_costs.py` holds what does not depend on a clock."
    )


def quarters(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the quartiles of any number of values."""
    import statistics

    if len(values) < 2:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return quarters(values)[1]


def with_unit(figure: Mapping[str, Any]) -> str:
    """Return the median with its unit."""
    return f"{number(figure['measured']['median'])} {figure['unit']}".strip()


def quartiles(figure: Mapping[str, Any]) -> str:
    """Return the quartiles, between which half of all rounds lie."""
    found = figure["measured"]
    return "" if found["lower"] == found["upper"] else f"{number(found['lower'])} … {number(found['upper'])}"


def limit(figure: Mapping[str, Any]) -> str:
    """Return the target in words."""
    return "" if figure["at_most"] is None else f"≤ {figure['at_most']:g} {figure['unit']}".strip()


def write_page(out: Path, on: Mapping[str, Any], quick: bool) -> Path:
    """Draw and write what the folder of the results holds."""
    folder = out / "benchmarks"
    files = {section.script: folder / f"{section.script}.json" for section in SECTIONS}
    results = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.exists()}
    for result in results.values():
        for chart in result["charts"]:
            draw(chart, folder / f"{chart['name']}.png")
    target = out / "benchmarks.md"
    target.write_text(page(results, on, quick), encoding="utf-8")
    if out == DOCS:
        put_in(DOCS / "costs.md", "costs", "make bench", list(costs(results)))
    return target


def main() -> int:
    """Run, draw, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few and short rounds: does it run, not how fast is it")
    parser.add_argument("--only", nargs="+", metavar="SCRIPT", choices=[s.script for s in SECTIONS], help="not all")
    parser.add_argument("--out", type=Path, default=DOCS, help="where the page goes; docs by default")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing: draw and write from the numbers there are"
    )
    given = parser.parse_args()
    folder = given.out / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    about = folder / "machine.json"
    wanted = [section for section in SECTIONS if given.only is None or section.script in given.only]
    failed = []
    if given.page and about.exists():
        on = json.loads(about.read_text(encoding="utf-8"))
    else:
        on = {**machine(), "quick": given.quick}
        about.write_text(json.dumps(on, indent=1) + "\n", encoding="utf-8")
    if not given.page:
        failed = [section.script for section in wanted if not run(section, folder, given.quick)]
    print(f"\nwritten: {write_page(given.out, on, bool(on['quick']))}")
    if failed:
        print(f"failed, and not new on the page: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
