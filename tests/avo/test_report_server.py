"""The served report: current while a run goes on, for this machine alone, and it disturbs nobody."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_browser import Browser, find

from avo.report.server import Dashboard, serve


@pytest.fixture
def address(evolved: Path) -> Iterator[str]:
    """Of a server on the run of `evolved`, which the end of the test process ends."""
    ready: list[str] = []
    up = threading.Event()

    def started(where: str) -> None:
        ready.append(where)
        up.set()

    threading.Thread(target=serve, args=("avo.db", None, 0, started), daemon=True).start()
    assert up.wait(60)
    yield ready[0]


def get(address: str, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address.split("/")[2], timeout=20)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode("utf-8")


def add(k: int, text: str) -> None:
    """One more candidate, by a writer beside the server."""
    from archive.archive import open_archive

    with open_archive("avo.db") as store, store.claim(1) as writer:
        writer.add_candidate(k, f"{k:016x}", text, agent="me", parents=[0])


def test_the_page_follows_the_archive(address: str) -> None:
    code, page = get(address, "/")
    assert code == 200 and "connect-src &#x27;self&#x27;" in page and page.count("</html>") == 1
    code, text = get(address, "/state")
    before = json.loads(text)
    assert code == 200 and before["run"] == 1 and not before["running"]
    add(5, "kernel changed\n")
    after = json.loads(get(address, "/state")[1])
    assert after["version"] != before["version"] and after["candidates"]["pending"] == 1
    assert get(address, "/nothing")[0] == 404


def test_a_page_that_costs_much_is_not_made_all_the_time(evolved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(0, 5)
    monkeypatch.setattr("avo.report.server.time.thread_time", lambda: next(seconds))
    dashboard = Dashboard("avo.db", None)
    page, version = dashboard.page(), dashboard.state()["version"]
    add(5, "kernel changed\n")
    assert dashboard.page() == page
    assert dashboard.state()["version"] == version, "or a browser would load the same page again and again"
    later = time.monotonic() + 15
    monkeypatch.setattr("avo.report.server.time.monotonic", lambda: later)
    assert dashboard.state()["version"] != version and dashboard.page() != page


def test_only_requests_that_name_this_machine_are_answered(address: str) -> None:
    assert get(address, "/state", host="evil.example")[0] == 403
    assert get(address, "/", host="127.0.0.1.evil.example:80")[0] == 403
    assert get(address, "/state", host="localhost:1234")[0] == 200


def test_what_cannot_be_served_is_told(cli: Callable[..., Any], evolved: Path, address: str) -> None:
    told = cli("report", "--serve", "--archive", "none.db")
    assert told.code == 2 and "there is no archive at none.db" in told.err
    told = cli("report", "9", "--serve", "--port", "0")
    assert told.code == 2 and "holds no run 9" in told.err
    port = address.split(":")[2].strip("/")
    told = cli("report", "--serve", "--port", port)
    assert told.code == 2 and f"port {port} cannot be used" in told.err


@pytest.mark.browser
@pytest.mark.skipif(find() is None, reason="no Chromium or Chrome on PATH (apt-get install chromium)")
def test_a_browser_sees_the_run_go_on(address: str) -> None:
    executable = find()
    assert executable is not None
    with Browser(executable) as browser:
        page = browser.visit(address + "#p1")
        assert page.evaluate("document.querySelectorAll('[role=treeitem]').length") == 5
        assert page.evaluate("document.querySelector('#live').textContent").startswith("Live")
        add(5, "kernel changed\n")
        page.wait("document.querySelectorAll('[role=treeitem]').length === 6")
        assert page.evaluate("location.hash") == "#p1"
        page.click("#live")
        assert page.evaluate("document.querySelector('#live').textContent") == "Live: paused"
        assert page.trouble() == []
        assert {u.rsplit("/", 1)[1] for u in page.requests()} <= {"state", "", "#p1"}


@pytest.mark.browser
@pytest.mark.skipif(find() is None, reason="no Chromium or Chrome on PATH (apt-get install chromium)")
def test_what_a_long_page_only_counts_is_shown_when_it_is_asked_for(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("avo.report.server.FULL", 2)
    for k in range(5, 10):
        add(k, f"kernel {k}\n")
    executable = find()
    assert executable is not None
    with Browser(executable) as browser:
        page = browser.visit(address)
        drawn = "[...document.querySelectorAll('[role=treeitem]')].map(r => r.dataset.k)"
        assert "6" not in page.evaluate(drawn) and "9" in page.evaluate(drawn)
        assert "more are not on this page" in page.evaluate("document.querySelector('#omitted').innerText")
        ask = (
            "(k => {{ const i = document.querySelector('#omitted input'); i.value = k; i.form.requestSubmit(); }})({k})"
        )
        page.evaluate(ask.format(k=6))
        page.wait("document.querySelector('#panel').innerText.includes('kernel 6')")
        assert page.evaluate("location.hash") == "#p6"
        page.evaluate(ask.format(k=77))
        page.wait("document.querySelector('#omitted [role=status]').textContent === 'this run has no proposal 77'")
        assert page.trouble() == []
    assert json.loads(get(address, "/candidate/77")[1]) is None
    assert get(address, "/candidate/x")[0] == 404
