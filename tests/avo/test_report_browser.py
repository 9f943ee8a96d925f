"""The page in a real browser: no errors, no requests, every candidate in the tree, evidence at a click."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from report_browser import Browser, Page, find
from report_sample import HOSTILE, sample, untimed

from avo.report import write_page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find() is None, reason="no Chromium or Chrome on PATH (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = find()
    assert executable is not None
    with Browser(executable) as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("report")
    models = {
        "plain": sample(60),
        "measured": sample(30, measured=True),
        "hostile": sample(12, hostile=True),
        "long": sample(1000),
        "single": sample(1),
        "untimed": untimed(),
    }
    return {name: write_page(model, folder / f"{name}.html") for name, model in models.items()}


def clean(page: Page) -> None:
    assert page.trouble() == []
    assert page.requests() == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1024, 1600])
def test_the_page_draws_at_every_size_without_trouble(
    browser: Browser, pages: dict[str, Path], tmp_path: Path, width: int, dark: bool
) -> None:
    page = browser.open(pages["plain"], width=width, dark=dark)
    clean(page)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("document.querySelectorAll('[role=treeitem]').length") == 60
    page.wait("document.querySelectorAll('svg.plot .best').length === 1")  # drawn once its box has been measured
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(16, 19, 24)" if dark else "rgb(246, 247, 249)")
    page.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


def test_a_failure_shows_its_evidence_at_a_click(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["plain"])
    failing = "[role=treeitem][data-outcome=correctness]"
    page.click(failing)
    assert page.evaluate(f"document.querySelector({json.dumps(failing)}).getAttribute('aria-selected')") == "true"
    assert page.evaluate("document.querySelector('[role=tab][aria-selected=true]').textContent") == "Gates"
    panel = page.evaluate("document.querySelector('#panel').innerText")
    assert "correctness" in panel and "not reached" in panel
    assert page.evaluate("document.querySelector('[data-gate=correctness]').open")
    table = page.evaluate("document.querySelector('[data-gate=correctness] table').innerText")
    assert "relative l2" in table and "of 0.004100, honest 0.002100" in table
    assert page.evaluate("document.querySelectorAll('[data-gate=correctness] .over-limit').length") == 6
    clean(page)


def test_each_tab_of_a_candidate_has_its_content(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["plain"])
    expected = {
        "Program": "kernel attention",
        "Difference": "against its parent",
        "Gates": "prediction",
        "Workloads": "Per workload predicted",
        "Triton": "import triton",
    }
    for name, text in expected.items():
        page.evaluate(f"[...document.querySelectorAll('[role=tab]')].find(t => t.textContent === '{name}').click()")
        assert text in page.evaluate("document.querySelector('[role=tabpanel]').textContent"), name
    assert page.evaluate("document.querySelectorAll('.copy').length") == 1
    clean(page)


def test_what_a_model_wrote_is_text(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["hostile"])
    page.click("[data-k='1']")
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.scripts.length") == 2
    shown = page.evaluate("document.querySelector('blockquote').textContent")
    assert shown.startswith(HOSTILE[:40])
    assert "⟨U+202E⟩" in shown and "\u202e" not in shown
    clean(page)


def test_the_tree_works_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["plain"])
    page.click("[data-k='0']")
    page.key("ArrowDown")
    second = page.evaluate("document.activeElement.dataset.k")
    assert second != "0"
    assert page.evaluate("document.querySelector('#panel h3').textContent") in page.evaluate(
        "document.activeElement.textContent"
    )
    page.key("Home")
    shown = "[...document.querySelectorAll('[role=treeitem]')].filter(r => !r.hidden).length"
    before = page.evaluate(shown)
    page.key("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
    assert page.evaluate(shown) < before
    assert page.evaluate("document.querySelectorAll('[role=treeitem][tabindex=\"0\"]').length") == 1
    clean(page)


def test_filters_hide_by_outcome_and_by_words(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["plain"])
    shown = "[...document.querySelectorAll('[role=treeitem]:not([hidden]):not(.context)')]"
    # each click draws the chips anew, so they are found by their words
    names = page.evaluate("[...document.querySelectorAll('.chip span:first-of-type')].map(s => s.textContent)")
    for name in names:
        if name != "passed":
            page.evaluate(
                f"[...document.querySelectorAll('.chip')].find(c => c.textContent.startsWith('{name}')).click()"
            )
    assert page.evaluate(f"[...new Set({shown}.map(r => r.dataset.outcome))]") == ["passed"]
    count = page.evaluate(f"{shown}.length")
    assert page.evaluate("document.querySelector('.tree-tools .note').textContent") == f"{count} of 60 candidates"
    page.evaluate(
        "(() => { const i = document.querySelector('input[type=search]'); i.value = 'warps';"
        " i.dispatchEvent(new Event('input')); })()"
    )
    assert 0 < page.evaluate(f"{shown}.length") < count
    clean(page)


def test_two_candidates_stand_side_by_side(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["measured"])
    page.click("[data-k='0']")
    page.click(".pin")
    best = page.evaluate("[...document.querySelectorAll('[data-outcome=committed]')].at(-1).dataset.k")
    page.click(f"[data-k='{best}']")
    page.evaluate("[...document.querySelectorAll('[role=tab]')].find(t => t.textContent === 'Compare').click()")
    text = page.evaluate("document.querySelector('[role=tabpanel]').innerText")
    assert "score, measured" in text and "score, predicted" in text
    assert page.evaluate("document.querySelectorAll('table.sides td.plus').length") > 0
    clean(page)


def test_measured_and_predicted_have_charts_of_their_own(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["measured"])
    kinds = page.evaluate("[...document.querySelectorAll('figcaption .kind')].map(k => k.textContent)")
    assert kinds == ["measured", "predicted"]
    clean(page)


def test_a_run_without_times_claims_none(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["untimed"])
    text = page.evaluate("document.body.innerText")
    assert "no claim of speed" in text and "predicted" not in text.replace("A predicted time comes from", "")
    assert page.evaluate("document.querySelectorAll('[role=treeitem]').length") == 12
    clean(page)


def test_an_address_opens_a_candidate_and_the_theme_turns(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["plain"], fragment="#p7")
    assert page.evaluate("document.querySelector('[aria-selected=true]').dataset.k") == "7"
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 24)"
    clean(page)


def test_every_control_has_a_name(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["measured"])
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = ("button", "treeitem", "tab", "tree", "textbox", "searchbox", "combobox", "progressbar", "tablist")
    nameless = [
        node["role"]["value"]
        for node in tree
        if not node.get("ignored")
        and node.get("role", {}).get("value") in roles
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []


def test_a_thousand_candidates_and_a_single_one(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["long"], width=1600)
    assert page.evaluate("document.querySelectorAll('[role=treeitem]').length") == 1000
    clean(page)
    page = browser.open(pages["single"], width=360)
    assert page.evaluate("document.querySelectorAll('[role=treeitem]').length") == 1
    clean(page)


def test_the_parts_stand_in_the_order_of_what_is_asked(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["measured"], width=1600)
    ways = page.evaluate("[...document.querySelectorAll('#ways a')].map(a => a.getAttribute('href'))")
    assert ways == ["#now", "#best", "#won", "#worth", "#lineage", "#cost", "#tried", "#flagged"]
    tops = page.evaluate("[...document.querySelectorAll('main > section')].map(s => s.getBoundingClientRect().top)")
    assert tops == sorted(tops)
    labels = "[...document.querySelectorAll('.finders label')].map(l => l.firstChild.textContent.trim())"
    assert page.evaluate(labels) == ["Agent", "Model", "Find"]
    shown = "document.querySelectorAll('[role=treeitem]:not([hidden]):not(.context)').length"
    before = page.evaluate(shown)
    page.evaluate(
        "(() => { const s = document.querySelectorAll('.finders select')[1]; s.value = 'm-large';"
        " s.dispatchEvent(new Event('change')); })()"
    )
    assert 0 < page.evaluate(shown) < before
    clean(page)


@pytest.mark.parametrize("count", [10, pytest.param(10_000, marks=pytest.mark.slow)])
def test_runs_of_any_length_are_drawn_at_every_size(browser: Browser, tmp_path: Path, count: int) -> None:
    path = write_page(sample(count), tmp_path / "run.html")
    assert path.stat().st_size < 25_000_000
    for width in (360, 1024, 1600):
        page = browser.open(path, width=width)
        clean(page)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        drawn = page.evaluate("document.querySelectorAll('[role=treeitem]').length")
        assert drawn == count if count <= 2000 else drawn >= 2000
