"""`avo audit --corpus`: both rates, and what was misjudged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from avo.cli import main

SOURCES = Path(__file__).parents[1] / "integrity"
LISTING = """
[attacks]
pointer_memo = { mechanism = "kept", beats = "in_process", layer = "new bytes", status = "gaming", said = "state kept" }

[honest]
plain_torch = { reason = "plain" }
config_cache = { reason = "a cache", torch = "glue" }
"""


@pytest.fixture
def corpus(tmp_path):
    for kind, names in (("attacks", ["pointer_memo"]), ("honest", ["plain_torch", "config_cache"])):
        (tmp_path / kind).mkdir()
        for name in names:
            (tmp_path / kind / f"{name}.py").write_text((SOURCES / kind / f"{name}.py").read_text())
    (tmp_path / "corpus.toml").write_text(LISTING)
    return tmp_path


def audit(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["audit", "--corpus", *map(str, arguments)])
    told = capsys.readouterr()
    return ended.value.code, told.out + told.err


def test_both_rates_and_the_misjudged(corpus, capsys):
    code, told = audit(capsys, corpus, "--json")
    found = json.loads(told)
    assert code == 1  # torch is not allowed in one of them, so it is rejected
    assert (found["attacks"], found["stopped"], found["honest"], found["passed"]) == (1, 1, 2, 1)
    assert [j["name"] for j in found["judged"] if not j["as_wanted"]] == ["config_cache"]
    (corpus / "corpus.toml").write_text(LISTING.replace(', torch = "glue"', ""))
    code, told = audit(capsys, corpus)
    assert code == 0 and "1 of 1 attack stopped (1 mechanism), 2 of 2 honest kernels passed" in told


def test_a_folder_that_is_no_corpus(tmp_path, corpus, capsys):
    (corpus / "attacks" / "more.py").write_text("")
    code, told = audit(capsys, corpus)
    assert code == 2 and "differ: more" in told
    code, told = audit(capsys, tmp_path / "attacks")
    assert code == 2 and "has no corpus.toml" in told
