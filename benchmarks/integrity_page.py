# ruff: noqa: E501  (sentences of a page)
"""What docs/integrity.md says of a device, from the record of it: no GPU, no network.

    python benchmarks/integrity_page.py [RECORD ...]

RECORD is what `integrity_on_device.py` wrote. It takes the place of the committed one, and of the records that added to
that; of several the later rows count. One with naive timers is kept for them where the new one has none. Without it the page is written anew from what
is committed under benchmarks/data.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from integrity_on_device import FOLDER, GOAL, chosen

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
PAGE = HERE.parent / "docs" / "integrity.md"
RECORD, NAIVE = "integrity_on_device_h200.json", "integrity_naive_h200.json"
REPLACED = ("integrity_added_h200.json", "integrity_new_inputs_h200.json")
Row = Mapping[str, Any]
# What honest kernels are, in the page's words.
WORDS = {
    "joined_streams": "two streams that are joined",
    "graph_that_reads": "a graph that re-reads its inputs",
    "autotuned": "Triton's autotuner",
    "kept_scratch": "kept scratch",
    "last_arriver": "the last program to arrive that ends the others' work",
    "spin_lock": "locks",
    "split_k_atomics": "split-k by atomics",
    "float32_sums": "float32 sums",
    "flash_rows": "attention with a running maximum",
    "host_descriptors": "host descriptors",
    "loss_kernel": "an indirect read",
    "in_place_kernel": "in place",
    "glue_around": "torch around it",
    "thread_that_is_joined": "a thread that is joined",
    "hints_for_the_cache": "hints to the cache",
    "messages": "assertions with messages",
}

# What was found by a record and mended after it: told as long as no later record has the kernel right.
MENDED = {
    "flash_rows": "probabilities that are rounded before they are rescaled are allowed for in what is planted",
    "tables_and_views": "steps in which the device waits for its host are played without a hold, and their time is not held against the told one",
    "splits_combined": "the device is held as long as forty launches of played steps take",
}


def of(record: Mapping[str, Any], corpus: str) -> list[Row]:
    """Rows of one corpus that were judged."""
    return [r for r in record["rows"] if r["corpus"] == corpus and r["status"] not in ("not judged", "unavailable")]


def missing(record: Mapping[str, Any], corpus: str) -> list[str]:
    done = {r["name"] for r in of(record, corpus)}
    return [i.name for i in chosen("") if i.kind == corpus and i.name not in done]


def not_run(names: Sequence[str]) -> str:
    return f" Not run: {', '.join(f'`{n}`' for n in names)}." if names else ""


def clocks(record: Mapping[str, Any]) -> str:
    honest = [r for r in of(record, "honest") if r["status"] == "ok"]
    ratios = {r["name"]: played / told for r in honest for told, played in r["played"] or [] if played and told}
    near = [x for x in ratios.values() if 0.9 <= x <= 1.1]
    other = [f"`{name}` {x:.2f}" for name, x in ratios.items() if not 0.9 <= x <= 1.1]
    tails = [tail for r in honest for _, tail in r["tails_us"]]
    waits = [wall - event for r in honest for event, wall in r["clocks_us"]]
    versions, device = record["environment"]["versions"], record["environment"]["device"]["name"]
    more = f" ({'; '.join(other)})" if other else ""
    return (
        f"Measured on an {device.removeprefix('NVIDIA ')} (torch {versions['torch'].partition('+')[0]}, "
        f"Triton {versions['triton']}, {record['date']}, `python benchmarks/integrity_on_device.py --hw h200`; "
        f"`benchmarks/data/{RECORD}`). Of {len(near)} of {len(ratios)} honest kernels the same steps take between "
        f"{min(near):.2f} and {max(near):.2f} of the told time in the judge's process{more}. After the end of an honest call "
        f"the device was idle within {max(tails):.1f} us ({len(tails)} calls, median {statistics.median(tails):.1f}), while "
        f"the host's own wait was {min(waits):.0f} to {max(waits):.0f} us off from call to call, which is why little hangs "
        "on that."
    )


def honest_part(record: Mapping[str, Any]) -> str:
    rows = of(record, "honest")
    passed = [r for r in rows if r["status"] == "ok"]
    proved = [r for r in passed if r["work"] == "proved"]
    among = [words for name, words in WORDS.items() if name in {r["name"] for r in proved}]
    text = f"- **Honest: {len(passed)} of {len(rows)} kernels passed, of {len(proved)} the work is proved**"
    text += f": {', '.join(among)} are among them." if among else "."
    for r in rows:
        if r["status"] != "ok":
            text += f" `{r['name']}` was {r['status']}: {r['message']}"
            text += (
                f" (mended since, and not run again on a device: {MENDED[r['name']]})." if r["name"] in MENDED else "."
            )
        elif r["work"] != "proved":
            text += f" Of `{r['name']}`: {r['work']}."
    return text + not_run(missing(record, "honest"))


def attacks_part(record: Mapping[str, Any], naive: Mapping[str, Any]) -> str:
    rows = of(record, "attacks")
    stopped = [r for r in rows if r["status"] != "ok"]
    idle = [r for r in rows if r["status"] == "ok"]
    fair = [r for r in idle if r["work"] == "proved"]
    kinds = len({r["kind"] for r in stopped})
    text = f"- **Attacks: {len(stopped)} of {len(rows)} stopped ({kinds} mechanisms), and {len(fair)} without effect**"
    seen = {r["name"]: r["naive"] for r in of(naive, "attacks") if r["naive"] and r["naive"]["correct"]}
    if fair:
        shown = []
        for r in fair:
            told = [f"{r['us'][0]:.1f} us", f"its process told {r['told_us']:.1f}"]
            shortest = min((v for v in _naive_times(seen.get(r["name"])) if v), default=None)
            told += [f"a naive timer shows {shortest:g}"] if shortest else []
            shown.append(f"{r['kind']} ({'; '.join(told)})")
        text += ", because the time that the verdict tells is that of their steps in the judge's process: "
        text += f"{', '.join(shown)}"
    text += "."
    if wrong := [r for r in idle if r["work"] != "proved"]:
        names = ", ".join(f"`{r['name']}`" for r in wrong)
        text += f" **Passed with the time that their own process tells, and so kept out of promotion: {names}.**"
    plain = [r for r in of(naive, "honest") if r["name"] == "plain_rows" and r["naive"]]
    if seen and plain:
        honest = _naive_times(plain[0]["naive"])
        fooled = [
            n for n, said in seen.items() if any(a < 0.9 * b for a, b in zip(_naive_times(said), honest, strict=True))
        ]
        total = sum(r["naive"] is not None for r in of(naive, "attacks"))
        softmax = {r["name"] for r in of(naive, "attacks") if r["target"] == "softmax"}
        fast = [n for n in fooled if n in softmax]
        text += (
            f" Naive timers, events around twenty calls or one call behind a wait and zeros, take {len(seen)} of {total} "
            f"attacks for right, and show {len(fast)} softmaxes of them as faster than the plainest honest one"
        )
        text += f" (`benchmarks/data/{NAIVE}`)." if naive is not record else "."
    return text + not_run(missing(record, "attacks"))


def _naive_times(said: Mapping[str, Any] | None) -> list[float]:
    return [said.get("us") or 0.0, said.get("flushed_us") or 0.0] if said else []


def cost_part(record: Mapping[str, Any]) -> str:
    rows = [r for r in of(record, "honest") if r["status"] == "ok" and r["added"] is not None]
    added, whole = sorted(r["added"] for r in rows), sorted(r["seconds"] for r in rows)
    over = [r for r in rows if r["added"] > GOAL]
    text = (
        f"On an H200 (16 cores a card): **median {statistics.median(added):.1f} s, at most {added[-1]:.1f} s, "
        f"{len(rows) - len(over)} of {len(rows)} within {GOAL:g} s**"
    )
    text += f" (beyond: {'; '.join(_costs(r) for r in over)})" if over else ""
    long = [r for r in rows if r["seconds"] > GOAL and r not in over]
    text += f"; the whole takes {statistics.median(whole):.1f} s in the median"
    text += f" ({'; '.join(_costs(r) for r in sorted(long, key=lambda r: -r['seconds'])[:6])})." if long else "."
    if once := record.get("once"):
        most = max(once, key=lambda name: once[name])
        text += (
            f" Once for each target, at its first candidate: {min(once.values()):.1f} to {once[most]:.1f} s (`{most}`)."
        )
    lines = [
        text,
        "",
        "| costliest, seconds | whole | if trusted | added | calls checked | timed |",
        "|---|---|---|---|---|---|",
    ]
    for r in sorted(rows, key=lambda r: -r["added"])[:8]:
        gates = r["gate_seconds"]
        lines.append(
            f"| `{r['name']}` ({r['target']}) | {r['seconds']:.1f} | {r['trusted']['seconds']:.1f} | {r['added']:.1f} | "
            f"{gates['correctness']:.1f} | {gates['timing']:.1f} |"
        )
    return "\n".join(lines)


def _costs(r: Row) -> str:
    return f"`{r['name']}` {r['seconds']:.1f}, {r['trusted']['seconds']:.1f} if it were trusted"


def written(page: str, record: Mapping[str, Any], naive: Mapping[str, Any]) -> str:
    """The page with its parts on a device made anew."""
    seen = "\n".join((clocks(record), "", honest_part(record), attacks_part(record, naive)))
    for name, text in (("device", seen), ("device cost", cost_part(record))):
        begin, end = f"<!-- {name}: benchmarks/integrity_page.py -->\n", f"<!-- end of {name} -->\n"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"{PAGE} has no part between {begin.strip()} and {end.strip()}")
        page = f"{before}{begin}{text}\n{end}{after}"
    return page


def taken(paths: Sequence[Path], data: Path) -> None:
    """The record, its rows replaced by those of later ones, takes the place of the one that is there."""
    new, *later = (json.loads(path.read_text()) for path in paths)
    for record in later:
        again = {(r["corpus"], r["name"]): r for r in record["rows"]}
        new["rows"] = [again.pop((r["corpus"], r["name"]), r) for r in new["rows"]] + list(again.values())
        new.setdefault("again", []).append({**record.get("asked", {}), "environment": record["environment"]})
    old = data / RECORD
    if old.exists() and not any(r["naive"] for r in of(new, "attacks")):
        before = json.loads(old.read_text())
        if any(r["naive"] for r in of(before, "attacks")):
            old.replace(data / NAIVE)
    old.write_text(json.dumps(new, indent=1) + "\n")
    for name in REPLACED:
        (data / name).unlink(missing_ok=True)


def main() -> None:
    assert FOLDER.is_dir()
    if len(sys.argv) > 1:
        taken([Path(path) for path in sys.argv[1:]], DATA)
    record = json.loads((DATA / RECORD).read_text())
    kept = DATA / NAIVE
    naive = (
        record if any(r["naive"] for r in of(record, "attacks")) or not kept.exists() else json.loads(kept.read_text())
    )
    PAGE.write_text(written(PAGE.read_text(), record, naive))
    for corpus in ("honest", "attacks"):
        print(f"{corpus}: {len(of(record, corpus))} judged, not run: {', '.join(missing(record, corpus)) or 'none'}")
        print("\n".join(f"  {r['name']} {r['status']}: {r['message'][:160]}" for r in _unlike(record, corpus)))


def _unlike(record: Mapping[str, Any], corpus: str) -> list[Row]:
    """Rows with another status than the corpus wants."""
    wanted = {i.name: i.status for i in chosen("") if i.kind == corpus}
    return [r for r in record["rows"] if r["corpus"] == corpus and r["status"] != wanted.get(r["name"])]


if __name__ == "__main__":
    main()
