"""The order in which kernels go to the compile workers."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from evaluators.building import Builders


def test_the_earliest_candidate_goes_first() -> None:
    builders, gate, done = Builders(1), threading.Event(), list[tuple[int, int]]()
    first = builders.submit((9, 0), lambda: (gate.wait(10), None)[1])
    later = [builders.submit(p, lambda p=p: done.append(p)) for p in ((3, 1), (2, 1), (3, 0), (2, 0))]
    gate.set()
    for future in (first, *later):
        future.result(10)
    assert done == [(2, 0), (2, 1), (3, 0), (3, 1)]
    builders.close()


def test_all_threads_are_used_and_no_more() -> None:
    builders, met = Builders(3), threading.Barrier(4)
    futures = [builders.submit((0, 0), lambda: (met.wait(10), None)[1]) for _ in range(3)]
    met.wait(10)
    for future in futures:
        future.result(10)
    builders.close()


def test_what_fails_says_so_and_the_others_go_on() -> None:
    builders = Builders(1)
    bad = builders.submit((0, 0), lambda: (_ for _ in ()).throw(ValueError("no")))
    good = builders.submit((1, 0), lambda: None)
    with pytest.raises(ValueError, match="no"):
        bad.result(10)
    assert good.result(10) is None
    builders.close()


def test_closing_cancels_what_waits() -> None:
    builders, gate = Builders(1), threading.Event()
    first = builders.submit((0, 0), lambda: (gate.wait(10), None)[1])
    while not first.running():
        pass
    waiting = builders.submit((1, 0), lambda: None)
    builders.close()
    gate.set()
    with pytest.raises(CancelledError):
        waiting.result(10)
    assert builders.submit((0, 0), lambda: None).cancelled()
