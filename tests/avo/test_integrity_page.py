"""docs/integrity.md says of a device what the record of it says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def page():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import integrity_page

    yield integrity_page
    sys.path.remove(str(ROOT / "benchmarks"))


def row(corpus: str, name: str, status: str = "ok", **more: Any) -> dict[str, Any]:
    row = {"corpus": corpus, "name": name, "kind": f"kind of {name}", "target": "softmax", "naive": None}
    row |= {"status": status, "message": f"message of {name}", "work": "proved" if status == "ok" else None}
    row |= {"us": [40.0], "told_us": 38.0, "played": [[4e-5, 4.02e-5]], "clocks_us": [[40.0, 90.0]]}
    row |= {"tails_us": [[40.0, 0.25]], "gate_seconds": {"correctness": 1.2, "timing": 1.5}}
    return row | {"trusted": {"seconds": 1.5}, "seconds": 3.0, "added": 1.5} | more


def record() -> dict[str, Any]:
    device = {"versions": {"torch": "2.11.0", "triton": "3.6.0"}, "device": {"name": "NVIDIA H200"}}
    rows = [
        row("honest", "joined_streams"),
        row("honest", "flash_rows", seconds=16.0, added=6.5, trusted={"seconds": 9.5}),
        row("honest", "waits_itself", played=[[1e-4, 3.5e-5]]),
        row("honest", "messages", "compile_error", added=None),
        row("honest", "last_arriver", "not judged", added=None),
        row("attacks", "patched_events"),
        row("attacks", "half_the_rows", "incorrect"),
        row("attacks", "half_sums", "incorrect", kind="kind of half_the_rows"),
        row("attacks", "set_aside_cache", work="not proved: a graph"),
    ]
    return {"date": "2030-01-02", "environment": device, "rows": rows, "once": {"softmax": 0.4, "attention": 2.1}}


def naive() -> dict[str, Any]:
    def said(us: float, flushed: float) -> dict[str, Any]:
        return {"correct": True, "us": us, "flushed_us": flushed}

    wrong = {"correct": False, "us": 1.0, "flushed_us": 1.0}
    rows = [
        row("honest", "plain_rows", naive=said(50.0, 42.0)),
        row("attacks", "patched_events", naive=said(0.05, 0.04)),
        row("attacks", "set_aside_cache", naive=said(54.0, 42.2)),
        row("attacks", "half_the_rows", naive=wrong),
    ]
    return {"rows": rows}


def test_the_page_tells_counts_exceptions_and_cost(page):
    text = page.written((ROOT / "docs" / "integrity.md").read_text(), record(), naive())
    for said in (
        "Measured on an H200 (torch 2.11.0, Triton 3.6.0, 2030-01-02,",
        "Of 2 of 3 honest kernels the same steps take between 1.00 and 1.00 of the told time in the judge's process "
        "(`waits_itself` 0.35)",
        "**Honest: 3 of 4 kernels passed, of 3 the work is proved**: two streams that are joined, attention",
        "`messages` was compile_error: message of messages.",
        "**Attacks: 2 of 4 stopped (1 mechanisms), and 1 without effect**",
        "kind of patched_events (40.0 us; its process told 38.0; a naive timer shows 0.04)",
        "kept out of promotion: `set_aside_cache`.**",
        "take 2 of 3 attacks for right, and show 1 softmaxes of them as faster",
        "**median 1.5 s, at most 6.5 s, 2 of 3 within 5 s** (beyond: `flash_rows` 16.0, 9.5 if it were trusted)",
        "0.4 to 2.1 s (`attention`)",
        "| `flash_rows` (softmax) | 16.0 | 9.5 | 6.5 | 1.2 | 1.5 |",
    ):
        assert said in text, said
    honest = text[text.index("- **Honest") : text.index("- **Attacks")]
    assert "Not run:" in honest and "`last_arriver`" in honest and "`flash_rows`," not in honest
    assert page.written(text, record(), naive()) == text


def test_the_committed_page_is_what_the_committed_record_says(page):
    committed = json.loads((page.DATA / page.RECORD).read_text())
    timers = json.loads((page.DATA / page.NAIVE).read_text())
    assert page.written(page.PAGE.read_text(), committed, timers) == page.PAGE.read_text()


def test_a_new_record_takes_the_place_of_the_old_ones(page, tmp_path):
    (tmp_path / page.RECORD).write_text(json.dumps(naive()))
    for name in page.REPLACED:
        (tmp_path / name).write_text("{}")
    new = tmp_path / "new.json"
    new.write_text(json.dumps(record()))
    page.taken([new], tmp_path)
    assert json.loads((tmp_path / page.RECORD).read_text()) == record()
    assert json.loads((tmp_path / page.NAIVE).read_text()) == naive()
    assert sorted(p.name for p in tmp_path.glob("integrity*")) == sorted([page.RECORD, page.NAIVE])
    page.taken([new], tmp_path)  # again: what naive timers said is kept
    assert json.loads((tmp_path / page.NAIVE).read_text()) == naive()


def test_later_rows_count(page, tmp_path):
    first, later = tmp_path / "first.json", tmp_path / "later.json"
    first.write_text(json.dumps(record()))
    later.write_text(json.dumps(record() | {"rows": [row("honest", "messages"), row("honest", "two_kernels")]}))
    page.taken([first, later], tmp_path)
    rows = json.loads((tmp_path / page.RECORD).read_text())["rows"]
    assert [r["status"] for r in rows if r["name"] == "messages"] == ["ok"]
    assert [r["name"] for r in rows] == [r["name"] for r in record()["rows"]] + ["two_kernels"]
