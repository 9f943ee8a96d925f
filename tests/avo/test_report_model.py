"""What the report derives, how it prints in a terminal and as JSON, and that nothing in a page can break out."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_sample import HOSTILE, digest_of, sample, untimed

from avo.errors import UserMistake
from avo.report import ReportModel, render_html, render_table, to_json, write_page
from avo.report.decisions import decisions
from avo.report.derive import commits, short_ids
from avo.report.differences import change
from avo.report.model import Candidate
from avo.report.page import kept
from evaluators.evaluation import GateResult, Score, Status


@pytest.fixture(scope="module")
def model() -> ReportModel:
    return sample(60)


def test_json_has_the_documented_names_and_reads_back(model: ReportModel) -> None:
    read = json.loads(to_json(model))
    assert read["schema"] == "avo.report/1"
    assert [c["digest"] for c in read["candidates"]] == [c.digest for c in model.candidates]
    assert {c["status"] for c in read["candidates"]} <= {s.value for s in Status}
    first = read["candidates"][0]
    assert first["score"]["predicted"] == pytest.approx(269.6, abs=0.1)
    assert first["score"]["measured"] is None
    assert ReportModel.model_validate(read) == model


def test_the_best_is_the_highest_of_its_kind_and_the_seed_is_the_baseline(model: ReportModel) -> None:
    best = model.best("predicted")
    assert best is not None
    assert best.score.predicted == max(c.score.predicted or 0 for c in model.candidates if c.status is Status.OK)
    assert model.best("measured") is None
    assert model.baseline == 0
    steps = [p.score for p in model.running_best.predicted]
    assert steps == sorted(steps)
    assert model.speed_of_light == pytest.approx(2200)


def test_gains_multiply_to_the_gain_over_the_seed_along_the_winning_line(model: ReportModel) -> None:
    line = [c for c in model.commits if c.line]
    product = 1.0
    for commit in line[1:]:
        assert commit.gain is not None
        product *= commit.gain
    assert product == pytest.approx(line[-1].over_seed)
    assert line[0].gain is None and line[0].over_seed is None


def test_an_interval_is_kept_where_one_is_given(model: ReportModel) -> None:
    rows = commits(model.candidates, "predicted", {model.commits[1].k: (1.1, 1.05, 1.2)})
    assert (rows[1].gain, rows[1].gain_low, rows[1].gain_high) == (1.1, 1.05, 1.2)


def test_a_decision_is_worth_what_the_program_that_decided_otherwise_alone_loses() -> None:
    head = "kernel k\nout y[r] bf16\ny = x\n\nschedule\n"

    def candidate(k: int, schedule: str, score: float) -> Candidate:
        text = head + schedule.replace("; ", "\n") + "\n"
        own = Score(measured=score, predicted=1.0)
        return Candidate(digest=f"{k:016x}", id="", k=k, status=Status.OK, score=own, text=text)

    tried = [
        candidate(0, "tile m=64; warps 4", 100.0),
        candidate(1, "tile m=128; load tma; persistent; hold q registers; warps 4", 200.0),
        candidate(2, "tile m=64; load tma; persistent; hold q registers; warps 4", 160.0),
        candidate(3, "tile m=128; load tma; persistent; warps 4", 190.0),
        candidate(4, "tile m=128; warps 4", 120.0),
        candidate(5, "tile m=128; load tma; persistent; hold q registers; warps 4; buffers k 3", 198.0),
    ]
    told = [(d.instead, d.k, round(d.ratio, 3), d.others) for d in decisions(tried, "measured", tried[1])]
    assert told == [
        ("tile m: 128 → 64", 2, 0.8, 0),
        ("− hold q registers", 3, 0.95, 0),
        ("+ buffers k 3", 5, 0.99, 0),
        ("− load tma", 4, 0.6, 2),
        ("− persistent", 4, 0.6, 2),
    ]
    raw = [c.model_copy(update={"text": "import triton"}) for c in tried]
    assert decisions(raw, "measured", raw[1]) == () == decisions(tried, "measured", None)


def test_a_repeated_program_is_one_candidate_more_and_no_failure(model: ReportModel) -> None:
    from avo.report.derive import complete

    first = model.candidates[3]
    again = first.model_copy(update={"k": 60, "parents": (5,), "committed": False})
    both = complete([*model.candidates, again], run=model.run, target=model.target, chip=model.chip, mode="predicted")
    assert both.candidates[-1].repeats == 3
    assert both.candidates[-1].outcome == "repeat"
    assert both.candidates[-1].id == both.candidates[3].id
    assert both.outcomes()["repeat"] == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("stream n stages=1", "stream n stages=2", "stream n stages: 1 → 2"),
        ("tile m=64 n=64", "tile m=128 n=64", "tile m: 64 → 128"),
        ("tile m=64 n=64", "tile m=128 n=32", "tile: m=64 n=64 → m=128 n=32"),
        ("warps 4", "warps 8", "warps: 4 → 8"),
        ("warps 4", "warps 4\nsplit masked", "+ split masked"),
        ("warps 4\nload tma", "warps 4", "− load tma"),
        ("rescale always", "rescale lazy(8)", "rescale: always → lazy(8)"),
        ("grid b h m", "grid h b m", "grid b h m → grid h b m"),
        ("warps 4  # four", "warps 4", ""),
    ],
)
def test_a_change_is_said_in_one_line(old: str, new: str, said: str) -> None:
    assert change(old, new) == said


def test_a_short_id_names_one_digest() -> None:
    digests = [digest_of(str(i)) for i in range(300)] + ["aaaaaaaaaaaa1111", "aaaaaaaaaaaa1112"]
    ids = short_ids(digests)
    assert ids["aaaaaaaaaaaa1111"] == "aaaaaaaaaaaa1111"
    for digest, short in ids.items():
        assert [d for d in digests if d.startswith(short)] == [digest]
    assert min(map(len, ids.values())) == 8


def test_the_terminal_table_fits_80_columns_and_keeps_the_kinds_apart() -> None:
    text = render_table(sample(60, measured=True), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert not [line for line in text.splitlines() if re.search(r"\bmeasured: [\d.]+.*predicted: [\d.]+", line)]
    assert "best, measured: " in text and "best, predicted: " in text
    assert "failed at: parse 2, check 4" in text


def test_a_run_without_times_prints_no_word_of_prediction() -> None:
    text = render_table(untimed())
    assert "No time is claimed (correctness alone, no claim of speed)." in text
    assert "predicted" not in text


def test_no_control_character_of_a_program_reaches_the_terminal() -> None:
    model = sample(12, hostile=True)
    text = render_table(model)
    assert "\x07" not in text and "\u202e" not in text
    assert "[bold]" in render_table(
        model.model_copy(
            update={"candidates": tuple(c.model_copy(update={"change": "[bold]x"}) for c in model.candidates)}
        )
    )


class _Elements(HTMLParser):
    """Every element of a page, with what stands in its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = [tag]
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = []

    def handle_data(self, data: str) -> None:
        if self.inside == ["script"]:
            self.scripts[-1] += data


def test_nothing_that_was_written_becomes_markup() -> None:
    page = render_html(sample(12, hostile=True))
    assert HOSTILE not in page
    read = _Elements()
    read.feed(page)
    assert "img" not in [tag for tag, _ in read.tags]
    assert len(read.scripts) == 2
    assert page.count("</script") == 2
    assert all(c not in read.scripts[0] for c in "<>&\u2028\u2029")
    data = json.loads(read.scripts[0])
    assert data["candidates"][1]["rationale"] == HOSTILE
    assert HOSTILE in "\n".join(data["lines"])


def test_the_page_is_one_file_under_a_policy_that_lets_nothing_in() -> None:
    page = render_html(sample(12))
    read = _Elements()
    read.feed(page)
    policy = next(a["content"] for t, a in read.tags if t == "meta" and a.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy and "http" not in policy
    assert {a.get("href") for t, a in read.tags if t == "link"} == {"data:,"}
    assert not [a for _, a in read.tags if "src" in a or any(name.startswith("on") for name in a)]


def test_numbers_that_json_lacks_are_words() -> None:
    model = sample(4)
    odd = GateResult(gate="correctness", passed=False, evidence={"rel_l2": float("nan"), "max": [float("inf")]})
    sick = model.candidates[0].model_copy(update={"gates": (odd,)})
    model = model.model_copy(update={"candidates": (sick, *model.candidates[1:])})
    evidence = json.loads(to_json(model))["candidates"][0]["gates"][0]["evidence"]
    assert evidence == {"rel_l2": "nan", "max": ["inf"]}
    assert '"nan"' in render_html(model)


def test_a_run_without_candidates_has_a_report() -> None:
    empty = sample(1).model_copy(
        update={"candidates": (), "commits": (), "baseline": None, "running_best": type(sample(1).running_best)()}
    )
    assert "0 candidates" in render_table(empty)
    assert "avo: attention on b200" in render_html(empty)


def test_a_long_run_keeps_what_matters_and_counts_the_rest() -> None:
    model = sample(400)
    keep = kept(model, 50)
    assert set(range(350, 400)) <= keep
    assert {c.k for c in model.candidates if c.flagged} <= keep
    assert {c.k for c in model.commits} <= keep
    parents = {c.k: c.parents for c in model.candidates}
    assert {p for c in model.commits for p in parents[c.k]} <= keep
    read = _Elements()
    read.feed(render_html(model, full=50))
    data = json.loads(read.scripts[0])
    assert {c["k"] for c in data["candidates"]} == keep
    assert sum(data["omitted"].values()) == 400 - len(keep)
    assert all(c["over"] in keep or c["k"] == 0 for c in data["candidates"])


def test_a_page_that_is_too_large_keeps_fewer_in_full() -> None:
    model = sample(200)
    assert len(render_html(model, limit=250_000)) < len(render_html(model))


def test_the_page_is_written_whole_where_asked(tmp_path: Path, model: ReportModel) -> None:
    where = write_page(model, tmp_path / "a.html")
    assert where.read_text("utf-8") == render_html(model)
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]
    with pytest.raises(UserMistake, match=r"cannot write .*missing"):
        write_page(model, tmp_path / "missing" / "a.html")


def test_the_documents_name_every_field_of_the_json() -> None:
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text("utf-8")
    schema = ReportModel.model_json_schema()
    named = set(re.findall(r"`(\w+)", page))
    fields = set(schema["properties"])
    for part in schema["$defs"].values():
        fields |= set(part.get("properties", {}))
    assert fields - named == set()
    assert {s.value for s in Status} - named == set()


def _contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two colours `#rrggbb` or `#rgb`."""

    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_text_colour_is_legible_in_both_themes() -> None:
    import avo.report

    style = (Path(avo.report.__file__).parent / "page.css").read_text("utf-8")
    themes = re.findall(r"color-scheme: (?:light|dark);(.*?)\n\}", style, re.S)
    assert len(themes) == 3
    for theme in themes:
        colours = dict(re.findall(r"(--[\w-]+): (#\w+)", theme))
        inks = [n for n in colours if n.startswith(("--o-", "--t-", "--text", "--dim", "--plus-", "--minus-"))]
        for ink in inks:
            for ground in ("--surface", "--sunk", "--bg"):
                assert _contrast(colours[ink], colours[ground]) >= 4.5, f"{ink} on {ground}"
