"""The judge judged: attacks that have to be stopped and honest kernels that have to pass, from a folder of them.

A corpus is a folder with `corpus.toml` and the files that it names: `attacks/NAME.py` and `honest/NAME.py`. avo's own
is `tests/integrity/` of its sources; its tests show for each attack that it fools a grader as many are written.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dsl.hardware import hardware
from evaluators.evaluation import Evaluation
from evaluators.integrity.raw import RawEvaluator
from evaluators.target import Target
from evaluators.targets import target

Kind = Literal["attacks", "honest"]


class CorpusError(Exception):
    """The folder is no corpus; the message says what is missing."""


@dataclass(frozen=True)
class Item:
    """One file. kind_of: the attack's mechanism, or the reason why a filter could object to an honest kernel.

    beats, runs, true: which naive grader an attack fools, in how many runs, and whether its next answer is right all
    the same. layer: what stops it here. status, said: the verdict that is wanted, and a piece of its message.
    promoted: that of a promotion, for an attack that is kept out of that alone.
    """

    name: str
    kind: Kind
    path: Path
    kind_of: str
    target: str = "softmax"
    torch: Literal["glue", "any"] = "any"
    inplace: dict[str, str] = field(default_factory=dict)
    beats: str = ""
    runs: int = 1
    true: bool = False
    layer: str = ""
    status: str = "ok"
    said: str = ""
    promoted: bool = False

    @property
    def job(self) -> Target:
        return replace(target(self.target), torch=self.torch, inplace=self.inplace)

    def judged(self, evaluator: RawEvaluator, job: Target | None = None) -> Evaluation:
        """job: where it is at hand already."""
        judge = evaluator.promote if self.promoted else evaluator.evaluate
        return judge(self.path.read_text(encoding="utf-8"), job or self.job, hardware("cpu"))


@dataclass(frozen=True)
class Judged:
    """as_wanted: an attack was stopped, by its own layer; an honest kernel was accepted."""

    item: Item
    evaluation: Evaluation

    @property
    def as_wanted(self) -> bool:
        e = self.evaluation
        return e.status == self.item.status and self.item.said in e.message

    @property
    def stopped(self) -> bool:
        return self.evaluation.status != "ok"


def read(folder: Path) -> list[Item]:
    """Raises CorpusError where there is no `corpus.toml`, a file of it is missing, or a file is not in it."""
    listing = folder / "corpus.toml"
    if not listing.is_file():
        raise CorpusError(f"{folder} has no corpus.toml; the corpora come with avo's sources, in tests/integrity")
    found: list[Item] = []
    table: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(listing.read_text(encoding="utf-8"))
    kinds: tuple[tuple[Kind, str], ...] = (("attacks", "mechanism"), ("honest", "reason"))
    for kind, label in kinds:
        rows = table.get(kind, {})
        files = {file.stem for file in (folder / kind).glob("*.py")}
        if files != set(rows):
            odd = ", ".join(sorted(files ^ set(rows)))
            raise CorpusError(f"{listing}: the entries of [{kind}] and the files of {folder / kind} differ: {odd}")
        for name, row in rows.items():
            given = {key: value for key, value in row.items() if key != label}
            found.append(Item(name=name, kind=kind, path=folder / kind / f"{name}.py", kind_of=row[label], **given))
    return found


def judge(
    items: Sequence[Item], evaluator: RawEvaluator, jobs: int = 2, seen: Callable[[Judged], None] | None = None
) -> list[Judged]:
    """Judges all of them, `jobs` at a time; `seen` is called with each as it comes, in the order of the items."""
    targets = {repr((i.target, i.torch, i.inplace)): i.job for i in items}

    def one(item: Item) -> Judged:
        job = targets[repr((item.target, item.torch, item.inplace))]
        return Judged(item, item.judged(evaluator, job))

    found = []
    with ThreadPoolExecutor(jobs) as threads:
        for judged in threads.map(one, items):
            found.append(judged)
            if seen is not None:
                seen(judged)
    return found
