"""Known causes in profiles that torch's profiler has made here, and in events as it makes them beside a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch import nn
from torch.autograd import DeviceType
from torch.nn.parallel import DistributedDataParallel

from ignite_hooks import attach_hooks
from ignite_hooks.distributed.collectives import rank
from ignite_hooks.hooks.profiler_hook import ProfilerHook
from ignite_hooks.measure import processor_waits
from ignite_hooks.measure.findings import profile_findings
from ignite_hooks.measure.profile import Circumstances, Profile, read_events
from tests.ranks import run_ranks

pytestmark = pytest.mark.usefixtures("enough_processors", "few_objects")

TIMES = 5
"""Number of profiles in one of which a cause has to stand out: on a busy machine single ones are about others."""


def profile_of(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor, also: Callable[[], object]
) -> Profile:
    def step(engine: Engine, x: torch.Tensor) -> None:
        optimizer.zero_grad()
        also()
        model(x).square().mean().backward()
        optimizer.step()

    hook = ProfilerHook(
        schedule={"wait": 1, "warmup": 1, "active": 5},
        export_chrome_trace=False,
        record_shapes=False,
        profile_memory=False,
    )
    hook._write_report = lambda runner: None  # type: ignore[method-assign]
    trainer = Engine(step)
    attach_hooks(trainer, [hook], work_dir=folder, model=model, optimizer=optimizer)
    trainer.run([batch] * 7)
    return hook._profile


@pytest.fixture
def _as_before() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def layers(number: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(number)))


@pytest.mark.slow
@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("fill", "aten::fill_ takes"),
        ("foreach", "the optimizer takes"),
        ("few samples", "batches have 2 samples, so starting operators takes longer than their work"),
        ("none", None),
        ("item", None),
    ],
)
def test_a_cause_is_found_in_a_real_profile(cause: str, said: str | None, tmp_path: Path) -> None:
    """`.item()` on a CPU waits for nothing."""
    torch.use_deterministic_algorithms(cause == "fill")
    model = layers(20)
    also: dict[str, Callable[[], object]] = {
        "fill": lambda: torch.empty(3000, 3000),
        "item": lambda: [torch.ones(1).item() for _ in range(9)],
    }
    kind = {"foreach": False} if cause == "foreach" else {"fused": True}
    batch = torch.ones(2 if cause == "few samples" else 64, 8)
    all_found = []
    for _ in range(TIMES if said else 1):
        optimizer = torch.optim.AdamW(model.parameters(), **kind)  # type: ignore[arg-type]
        profile = profile_of(tmp_path, model, optimizer, batch, also.get(cause, lambda: None))
        found = profile_findings(profile)
        all_found.append(found)
        if said and any(text.startswith(said) for text in found):
            return
    assert said is None, all_found
    known = ("aten::fill_", "the optimizer", "batches have", "the host waits", "copies from")
    assert not any(text.startswith(known) for text in all_found[0]), all_found


def in_two_ranks(folder: str) -> list[str]:
    """Return what is found in the first of two ranks, of which the other is slow."""
    processor_waits.TASKS = Path(folder) / "none"  # this process is the test's own
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    slow = torch.ones(500, 500)

    def work() -> None:
        for _ in range(12 if rank() else 0):
            slow.mm(slow)

    profile = profile_of(Path(folder), model, optimizer, torch.ones(64, 8), work)
    return profile_findings(profile)


@pytest.mark.slow
def test_a_wait_for_a_slower_rank_is_called_so(tmp_path: Path) -> None:
    all_found = []
    for number in range(TIMES):
        found, _ = run_ranks(in_two_ranks, str(tmp_path / f"{number}"))
        all_found.append(found)
        if any("it waits for the gradients of other ranks (all-reduce)" in text for text in found):
            return
    raise AssertionError(all_found)


# -- events of a GPU --------------------------------------------------------------------------------------------


def recorded(name: str, begin: int, end: int, number: int = 0, **other: Any) -> Any:
    """Return an event as torch's recorder has it, in microseconds."""
    known = {
        "device_type": DeviceType.CPU,
        "start_ns": begin * 1000,
        "end_ns": end * 1000,
        "correlation_id": number,
        "linked_correlation_id": 0,
        "is_async": False,
        "is_user_annotation": False,
        "start_thread_id": 1,
        "end_thread_id": 1,
        "nbytes": 0,
        "stack": [],
        "name": name,
        **other,
    }
    answers = {name: (lambda value=value: value) for name, value in known.items()}

    class Event:
        def __getattr__(self, name: str) -> Callable[[], Any]:
            return answers.get(name, lambda: 0)

    return Event()


def on_gpu(name: str, begin: int, end: int, started_by: int, **other: Any) -> Any:
    return recorded(
        name, begin, end, number=started_by, linked_correlation_id=started_by, device_type=DeviceType.CUDA, **other
    )


def read(*events: Any) -> Profile:
    """Return the profile of ten iterations of 1 ms, read from what torch makes of the events."""
    of_torch = torch.autograd.profiler.profile(use_kineto=True)
    of_torch.use_device = "cuda"
    result = SimpleNamespace(events=lambda: list(events), trace_start_ns=lambda: 0)
    parsed = torch.autograd.profiler_util.EventList(
        of_torch._parse_kineto_results(result), use_device="cuda", profile_memory=False, with_flops=False
    )
    parsed._build_tree()
    profile = Profile()
    profile.add(10, {"other": 0.01}, read_events(parsed, stacks=False)[0])
    return profile


KERNEL = "void gemm_kernel<float>(float*)"


def test_the_time_of_a_kernel_is_counted_once() -> None:
    profile = read(
        recorded("aten::linear", 0, 50, 1),
        recorded("aten::addmm", 10, 40, 2),
        recorded("cudaLaunchKernel", 20, 30, 2, linked_correlation_id=2),
        on_gpu(KERNEL, 100, 4100, started_by=2),
        on_gpu("Optimizer.step#SGD.step", 100, 4100, started_by=0, is_user_annotation=True),
        on_gpu("a graph", 5000, 6000, started_by=0),
    )
    assert {name: one.device for name, one in profile.operators.items() if one.device} == {
        "aten::addmm": pytest.approx(0.004),
        "a graph": pytest.approx(0.001),
    }
    assert profile_findings(profile) == ["aten::addmm takes 40 % of the iteration: one call of 4.0 ms"]


def test_copies_from_memory_that_is_not_pinned_are_found_beside_casts() -> None:
    events = [
        recorded("aten::copy_", 0, 40, 1),
        on_gpu("Memcpy HtoD (Pageable -> Device)", 100, 1100, started_by=1),
        recorded("aten::copy_", 50, 90, 2),
        on_gpu("void copy_kernel<half>(float*)", 1200, 2200, started_by=2),
    ]
    [found] = profile_findings(read(*events))
    assert found.startswith("copies from memory that is not pinned take 10 % of the iteration: set pin_memory=True")
    assert profile_findings(read(*events[2:])) == []


@pytest.mark.parametrize(("times", "said"), [(1, []), (5, ["the host waits for the device 5 times per iteration"])])
def test_item_waits_for_a_gpu(times: int, said: list[str]) -> None:
    """That the host waits once in an iteration is usual, and most of the time of many runs."""
    events = []
    for number in range(1, 10 * times + 1):
        begin = number * 200
        events += [
            recorded("aten::item", begin, begin + 190, 2 * number - 1),
            recorded("aten::_local_scalar_dense", begin + 5, begin + 185, 2 * number),
            recorded("cudaStreamSynchronize", begin + 20, begin + 180, 2 * number, linked_correlation_id=2 * number),
            on_gpu("Memcpy DtoH (Device -> Pageable)", begin + 15, begin + 16, started_by=2 * number),
        ]
    found = profile_findings(read(*events))
    assert [text.partition(":")[0] for text in found] == said


def test_memory_is_no_operator() -> None:
    profile = read(recorded("[memory]", 5, 5, nbytes=4096, device_type=DeviceType.CUDA), recorded("aten::add", 10, 20))
    assert set(profile.operators) == {"aten::add"}


def test_a_profile_of_a_busy_machine_says_only_that() -> None:
    profile = Profile(circumstances=Circumstances(samples=1))
    profile.add(6, {"data": 3.0, "backward": 6.0, "other": 1.0}, [], waited=0.8)
    [found] = profile_findings(profile)
    assert found.startswith(
        "threads of the training waited for a processor 80 % of the time, so no phase is judged: other programs"
    )
