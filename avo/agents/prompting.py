"""What models are told, as data: Markdown templates in `avo/agents/prompts/`, each replaced by one of the same name in
a folder of the person's own. A template's first line is a comment with its version; `{word}` is filled in."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from avo.errors import UserMistake, unknown

_HEAD = re.compile(r"\A<!--(.*?)-->\s*", re.DOTALL)


@dataclass(frozen=True)
class Template:
    """version: what its comment says of it. owner: "avo", or the path of the file that stands instead."""

    name: str
    text: str
    version: str
    owner: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    def fill(self, **words: str) -> str:
        """The text with `{word}` replaced; other braces stay."""
        return re.sub(r"\{(\w+)\}", lambda m: words.get(m[1], m[0]), self.text)


def names() -> list[str]:
    """Of every template."""
    return sorted(p.name.removesuffix(".md") for p in _built_in().iterdir() if p.name.endswith(".md"))


def template(name: str, folder: str | None = None) -> Template:
    """One template, the folder's where it has one of that name. Raises UserMistake."""
    if name not in names():
        raise UserMistake(unknown("prompt", name, names()))
    if folder is not None:
        from avo.files import read_text

        if not Path(folder).is_dir():
            raise UserMistake(f"agent_options.prompts names a folder with {', '.join(names())}; {folder} is none")
        path = Path(folder) / f"{name}.md"
        if path.exists():
            return _template(name, read_text(str(path)), str(path))
    return _template(name, (_built_in() / f"{name}.md").read_text(encoding="utf-8"), "avo")


def prompts(wanted: tuple[str, ...], folder: str | None) -> dict[str, Template]:
    return {name: template(name, folder) for name in wanted}


def signature(agent: str, used: dict[str, Template]) -> str:
    """What is recorded with each candidate: the agent's name and a digest over all its templates."""
    whole = "".join(f"{name}\0{t.text}\0" for name, t in sorted(used.items()))
    return f"{agent} {hashlib.sha256(whole.encode()).hexdigest()[:12]}"


def _template(name: str, text: str, owner: str) -> Template:
    head = _HEAD.match(text)
    return Template(name, _HEAD.sub("", text), head[1].strip() if head else "no version", owner)


def _built_in() -> Path:
    found = resources.files("avo.agents") / "prompts"
    return Path(str(found))
