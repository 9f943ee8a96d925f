"""The order in which kernels go to the compile workers."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from evaluators.building import Builders


def test_the_earliest_candidate_goes_first() -> None:
    builders, begun, gate, done = Builders(1), threading.Event(), threading.Event(), list[tuple[int, int]]()
    first = builders.submit((9, 0), lambda: (begun.set(), gate.wait(60), None)[2])
    assert begun.wait(60)  # otherwise a later one could be what the only thread takes first
    later = [builders.submit(p, lambda p=p: done.append(p)) for p in ((3, 1), (2, 1), (3, 0), (2, 0))]
    gate.set()
    for future in (first, *later):
        future.result(60)
    assert done == [(2, 0), (2, 1), (3, 0), (3, 1)]
    builders.close()


def test_all_threads_are_used_and_no_more() -> None:
    builders, met = Builders(3), threading.Barrier(4)
    futures = [builders.submit((0, 0), lambda: (met.wait(60), None)[1]) for _ in range(3)]
    met.wait(60)
    for future in futures:
        future.result(60)
    builders.close()


def test_what_fails_says_so_and_the_others_go_on() -> None:
    builders = Builders(1)
    bad = builders.submit((0, 0), lambda: (_ for _ in ()).throw(ValueError("no")))
    good = builders.submit((1, 0), lambda: None)
    with pytest.raises(ValueError, match="no"):
        bad.result(60)
    assert good.result(60) is None
    builders.close()


def test_closing_cancels_what_waits() -> None:
    builders, begun, gate = Builders(1), threading.Event(), threading.Event()
    builders.submit((0, 0), lambda: (begun.set(), gate.wait(60), None)[2])
    assert begun.wait(60)
    waiting = builders.submit((1, 0), lambda: None)
    builders.close()
    gate.set()
    with pytest.raises(CancelledError):
        waiting.result(60)
    assert builders.submit((0, 0), lambda: None).cancelled()
