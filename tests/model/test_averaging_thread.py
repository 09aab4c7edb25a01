from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from ignite_hooks.model.averaging_thread import AveragingThread, one_worker, why_no_thread


def test_models_on_other_devices_than_the_cpu_need_no_thread() -> None:
    model = nn.Linear(2, 2, device="meta")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert why_no_thread(model, optimizer) == "not all of the model is in the memory of the CPU, or of one GPU"
    assert why_no_thread(nn.Linear(2, 2), torch.optim.SGD(nn.Linear(2, 2).parameters())) is not None


def test_the_thread_has_one_core_and_the_training_its_own() -> None:
    torch.set_num_threads(3)
    worker = one_worker()
    try:
        assert worker.submit(torch.get_num_threads).result() == 1
        assert torch.get_num_threads() == 3
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert later == [3]
    finally:
        worker.shutdown()


@pytest.mark.parametrize("flushes", [False, True])
def test_the_thread_treats_the_smallest_numbers_as_the_training_does(flushes: bool) -> None:
    """Whether they are flushed to zero is a setting of each thread, and bits of the averages depend on it."""
    if not torch.set_flush_denormal(flushes):
        pytest.skip("this processor cannot")
    try:
        worker = one_worker()
        small, weight = torch.full((40,), 1e-38), 1e-3
        try:
            there = worker.submit(lambda: torch.zeros(40).lerp_(small, weight)).result()
        finally:
            worker.shutdown()
        assert torch.equal(there, torch.zeros(40).lerp_(small, weight))
        assert bool((there == 0).all()) is flushes
    finally:
        torch.set_flush_denormal(False)


def test_who_only_waits_leaves_the_result_to_others() -> None:
    thread = AveragingThread()
    try:
        thread.wait()
        thread.submit(lambda momentum: bool(1 // 0), 0.9)
        thread.wait()
        with pytest.raises(ZeroDivisionError):
            thread.result()
    finally:
        thread.close()


def test_a_result_is_returned_once() -> None:
    thread = AveragingThread()
    try:
        assert thread.result() is None
        thread.submit(lambda momentum: momentum > 0.5, 0.9)
        assert [thread.result(), thread.result()] == [True, None]
        thread.submit(lambda momentum: bool(1 // 0), 0.9)
        with pytest.raises(ZeroDivisionError):
            thread.result()
        assert thread.result() is None
    finally:
        thread.close()
