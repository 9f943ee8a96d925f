"""What one program says otherwise than another: as lines, and in the words of a person."""

from __future__ import annotations

import difflib


def line_diff(old: str, new: str, old_name: str = "parent", new_name: str = "candidate") -> str:
    """The unified difference, three lines of context, "" where the texts are equal."""
    rows = difflib.unified_diff(old.splitlines(), new.splitlines(), old_name, new_name, lineterm="")
    return "\n".join(rows)


def change(old: str, new: str, limit: int = 120) -> str:
    """The edit in one line, as a person would say it: `stream n stages: 1 → 2; + split masked`."""
    text = "; ".join(changes(old, new))
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def changes(old: str, new: str) -> list[str]:
    """The edit item by item. Lines are paired by their first words, so a directive whose value changed is one item."""
    before, after = statements(old), statements(new)
    kept = set(before) & set(after)
    gone = [line for line in before if line not in kept]
    come = [line for line in after if line not in kept]
    items: list[str] = []
    for line in gone:
        twin = next((c for c in come if c.split()[0] == line.split()[0]), None)
        if twin is None:
            items.append(f"− {line}")
            continue
        come.remove(twin)
        items.append(_within(line.split(), twin.split()))
    return items + [f"+ {line}" for line in come]


def statements(text: str) -> list[str]:
    stripped = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return [" ".join(line.split()) for line in stripped if line]


def _within(old: list[str], new: list[str]) -> str:
    lost = [w for w in old if w not in new]
    won = [w for w in new if w not in old]
    common = [w for w in new if w in old and "=" not in w]
    keys = {w.split("=")[0] for w in (*lost, *won)}
    if len(keys) == 1 and len(lost) == len(won) == 1 and "=" in lost[0]:
        return f"{' '.join((*common, *keys))}: {lost[0].split('=', 1)[1]} → {won[0].split('=', 1)[1]}"
    if not lost and not won:
        return f"{' '.join(old)} → {' '.join(new)}"
    sides = [" ".join(lost), " ".join(won)]
    if not all(sides):
        return f"{' '.join(common)}: {'+' if won else '−'} {sides[0] or sides[1]}"
    return f"{' '.join(common)}: {sides[0]} → {sides[1]}"
