"""Short pages on chips and techniques: when each helps, how it is written in the language, what was measured.

The package's own are in `pages/`; a person adds folders of Markdown. A page may begin with lines `chips:`, `targets:`,
`limits:` and `words:` under its title: which chips (names, architectures or vendors), targets and bottlenecks it is
for, and what else it should be found by. Nothing here asks a model or a network.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from avo.errors import UserMistake

if TYPE_CHECKING:
    from dsl.hardware import Hardware

_FIELD = re.compile(r"^(chips|targets|limits|words):[ \t]*(.*)$", re.MULTILINE)
_WORD = re.compile(r"[a-z0-9_]{2,}")
_NOISE = frozenset({"the", "and", "for", "with", "that", "this", "are", "was", "its", "not", "from", "than", "how"})
LARGEST = 1_000_000  # characters of one page of a person's folder


@dataclass(frozen=True)
class Page:
    """text: without the lines of fields. chips, targets, limits: for which; empty: for all. owner: avo, or a path."""

    name: str
    title: str
    text: str
    chips: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    owner: str = "avo"

    def suits(self, hw: Hardware) -> bool:
        return not self.chips or bool({hw.name, hw.arch, hw.vendor} & set(self.chips))


def pages(folders: Sequence[str] = ()) -> list[Page]:
    """The package's own, then those of the folders, by name; one of the same name stands instead of an earlier one.

    Raises UserMistake for a folder that is not there.
    """
    found = {p.name: p for p in _own()}
    for folder in folders:
        if not Path(folder).is_dir():
            raise UserMistake(f"agent_options.knowledge names folders of Markdown; {folder} is none")
        for path in sorted(Path(folder).rglob("*.md")):
            text = path.read_text(encoding="utf-8", errors="replace")[:LARGEST]
            found[path.stem] = _page(path.stem, text, str(path))
    return [found[name] for name in sorted(found)]


@lru_cache(maxsize=1)
def _own() -> tuple[Page, ...]:
    folder = Path(str(resources.files("avo.knowledge") / "pages"))
    return tuple(_page(p.stem, p.read_text(encoding="utf-8"), "avo") for p in sorted(folder.glob("*.md")))


def _page(name: str, text: str, owner: str) -> Page:
    fields = {m[1]: tuple(w.strip() for w in m[2].split(",") if w.strip()) for m in _FIELD.finditer(text)}
    body = re.sub(r"\n{3,}", "\n\n", _FIELD.sub("", text)).strip() + "\n"
    title = next((row.lstrip("# ").strip() for row in body.splitlines() if row.startswith("#")), name)
    return Page(name, title, body, **fields, owner=owner)


def search(
    query: str, hw: Hardware, *, target: str = "", limit: str = "", among: Sequence[Page] | None = None, most: int = 3
) -> list[Page]:
    """The pages that fit best, best first: by the words of the query (rare ones count more), the chip, the target and
    the bottleneck. Pages for other chips are left out. Without a query the bottleneck and the target decide."""
    found = [p for p in (pages() if among is None else among) if p.suits(hw)]
    asked = set(_words(query))
    held = {p.name: set(_words(f"{p.name} {p.title} {' '.join(p.words)} {p.text}")) for p in found}

    def worth(page: Page) -> float:
        heads = set(_words(f"{page.name} {page.title} {' '.join(page.words)}"))
        value = 0.0
        for word in asked & held[page.name]:
            rare = math.log((1 + len(found)) / sum(word in h for h in held.values()))
            value += rare * (3.0 if word in heads else 1.0)
        if asked and value == 0:
            return 0.0
        value += 1.5 * bool(limit and limit in page.limits) + 1.0 * bool(target and target in page.targets)
        return value + 0.5 * bool(page.chips)

    ranked = sorted(((worth(p), p) for p in found), key=lambda x: (-round(x[0], 9), x[1].name))
    return [p for value, p in ranked if value > 0.5][:most]


def _words(text: str) -> list[str]:
    """Lower-case words, plurals as singulars."""
    return [w[:-1] if len(w) > 4 and w.endswith("s") else w for w in _WORD.findall(text.lower()) if w not in _NOISE]
