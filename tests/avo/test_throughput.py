"""benchmarks/throughput.py: what it says of several devices."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def root() -> Iterator[None]:
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


def test_devices_are_busy_up_to_the_last_verdict_that_had_one(root: None) -> None:
    from benchmarks.throughput import Watch, busy_share

    watch = Watch(None)
    assert busy_share(watch) == 0.0
    watch.rows += [{"busy": 0.5}, {"busy": 0.91}, {"busy": None}]  # the last was refused before a device
    assert busy_share(watch) == 0.91
