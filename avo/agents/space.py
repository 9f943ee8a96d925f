"""The programs around those that were tried, on one chip for one target, and what is known of each before a verdict.

Every method is a pure function whose results are kept, for a run asks the same again and again.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from avo.agents import splitting
from avo.agents.protocol import Brief, Judged

if TYPE_CHECKING:
    from avo.agents.evidence import Evidence
    from avo.agents.surrogate import Model, Point
    from dsl.anatomy import Anatomy, Sizes
    from dsl.hardware import Hardware
    from dsl.knobs import Knob
    from dsl.schedule import KernelSchedule
    from dsl.syntax import Program
    from evaluators.evaluation import Evaluation

Value = int | str
Changes = Mapping[str, tuple[Value, Value]]  # knob -> (old, new)
Preview = Callable[[str], "Evaluation"]

GRID_WHOLE, GRID = 2000, 32  # joint settings that are looked at, and built for the pool
PER_TILE = 6  # of those with the same tiles
DRAWN = 400  # settings of all knobs, drawn at random where there are too many to look at each
TPE_ASKED = 16
MAX_CHANGES = 3  # numbers that a directed proposal changes together, so that a verdict says something about each
# knob -> the field of a schedule that it sets, and how
_FIELDS: Mapping[str, tuple[str, Callable[[Value], object]]] = {
    "stream stages": ("stages", lambda v: v),
    "warps": ("warps", lambda v: v),
    "load": ("load", lambda v: v),
    "split": ("split_masked", lambda v: v == "masked"),
    "exponent": ("exponent", lambda v: _words(v)),
    "rescale": ("rescale", lambda v: _words(v)),
    "order": ("order", lambda v: _words(v)),
    "persistent": ("persistent", lambda v: v == "on"),
    "roles mma": ("roles", lambda v: (1, v) if v else None),
    "issue": ("issue", lambda v: v),
    "reduce rows": ("rows", lambda v: v),
    "order l2": ("l2_bytes", lambda v: v or None),
}


# What is known to pay off together and seldom alone: values of knobs, set in this order as far as they are there and
# legal. A descriptor load frees the registers that a split loop needs; warps with roles need descriptors.
_ROLES: Mapping[str, Value] = {
    "load": "tma",
    "split": "masked",
    "exponent": "exp2",
    "order": "longest_first",
    "persistent": "on",
    "stream stages": 2,
    "tile": 128,  # of each axis but one that a single contraction walks: a group of warps needs rows
    "roles mma": 2,
    "order l2": 8 << 20,
    "issue": "next_contraction",
    "reduce rows": "per_thread",
    "rescale": "speculative",
}
IDIOMS: tuple[Mapping[str, Value], ...] = (
    {"load": "tma", "split": "masked", "exponent": "exp2", "order": "longest_first", "stream stages": 2},
    _ROLES,
    {**_ROLES, "hold": "registers"},  # of each input that has this knob; too many registers for long rows
)
# Beside them where a row of sums is long: buffers leave room for few keys, unless each output that has this knob goes
# without one. On an H200 at head dim 256 it is 1.12 of cuDNN, where 32 keys and a buffer are 0.86.
LONG_ROWS: Mapping[str, Value] = {**_ROLES, "tile walked": 64, "hold out": "registers"}
# Of the kernel that sums blocks of a long sum (`avo.agents.splitting`).
BLOCKS: Mapping[str, Value] = {"load": "tma", "tile": 128, "tile walked": 64, "stream stages": 4, "warps": 4}


def _words(value: Value) -> tuple[str, tuple[Value, ...]]:
    """`lazy(8)` as a schedule holds it."""
    name, _, inside = str(value).rstrip(")").partition("(")
    return name, tuple(int(a) if a.strip().isdigit() else a.strip() for a in inside.split(",") if a.strip())


@dataclass(frozen=True)
class Tried:
    """A judged candidate as the agent reads it. key: names what it does, defaults left out. score: 0: it failed."""

    judged: Judged
    program: Program
    key: str
    score: float


@dataclass(frozen=True)
class Option:
    """A program that could be proposed: what it changes of its parent and why it should be faster."""

    program: Program
    key: str
    parent: Tried
    changes: Changes
    source: str  # "edit", "grid", "idiom", "sampler" or "algorithm"


class Waiting(NamedTuple):
    """A program that is proposed and not judged yet, for all that the chooser sees. key: as `Tried.key`."""

    program: Program
    key: str


class Space:
    """What a brief leaves open. `preview`: gives the predicted verdict of a text, where the judge offers that."""

    def __init__(self, brief: Brief) -> None:
        self.hw: Hardware = brief.hardware
        self.target = brief.target
        self.opens = brief.opens
        self.options = dict(brief.options)
        given = brief.options.get("knobs")
        self.predicts = bool(brief.options.get("prediction", True))
        self.open = None if given is None else {str(n): tuple(v) for n, v in dict(given).items()}
        self.sizes: list[Sizes] = [dict(w.sizes) for w in brief.target.workloads] or [{}]
        distinct = list({tuple(sorted(s.items())): s for s in self.sizes}.values())
        self.typical = [distinct[i] for i in sorted({0, len(distinct) // 2, len(distinct) - 1})]
        self._read: dict[str, tuple[Program, str] | None] = {}
        self._options: dict[str, list[Option]] = {}
        self._grids: dict[str, list[tuple[Point, Changes]]] = {}
        self._scales: dict[str, dict[str, tuple[Value, ...]]] = {}
        self._points: dict[str, Point] = {}
        self._legal: dict[str, bool] = {}
        self._idioms: dict[str, list[tuple[str, Program]]] = {}
        self._previews: dict[str, float] = {}
        self.chosen: dict[object, Option | None] = {}
        self.found: dict[str, Evidence] = {}  # what each judged program's evidence says, by digest

    def serves(self, brief: Brief) -> bool:
        same = brief.hardware == self.hw and brief.target is self.target and brief.opens == self.opens
        return same and dict(brief.options) == self.options

    def know(self, text: str, option: Option) -> None:
        """Spares parsing what was proposed when it comes back with its verdict."""
        self._read[text] = (option.program, option.key)

    def tried(self, candidates: Sequence[Judged]) -> list[Tried]:
        """Those that are programs, each once, with their scores."""
        found: dict[str, Tried] = {}
        for c in candidates:
            read = self.read(c)
            if read is not None and read[1] not in found:
                score = c.value if c.status.value == "ok" else 0.0
                found[read[1]] = Tried(c, *read, score)
        return list(found.values())

    def read(self, c: Judged) -> tuple[Program, str] | None:
        """Program and key; None where a text does not parse or means nothing: another agent's."""
        from dsl.check import errors
        from dsl.diagnostics import ProgramError
        from dsl.parser import parse

        if c.text not in self._read:
            try:
                program = parse(c.text)
                wrong = c.status.value in ("parse_error", "check_error", "meaning_error") and bool(errors(program))
                self._read[c.text] = None if wrong else (program, key_of(program))
            except ProgramError:
                self._read[c.text] = None
        return self._read[c.text]

    def point(self, program: Program, name: str) -> Point:
        """Its knobs, and what arithmetic expects of it."""
        from avo.agents.surrogate import Point
        from dsl.anatomy import anatomies
        from dsl.knobs import settings
        from dsl.schedule import resolve

        if name not in self._points:
            time = 1.0
            for i, kernel in enumerate(anatomies(program)):
                time *= self._appraised(kernel, resolve(program, i, self.hw.arch, self.hw.name))
            found: dict[str, Value] = dict(settings(program, self.hw))
            if self.opens == "all":
                found[splitting.KNOB] = splitting.block(program)
            self._points[name] = Point(found, -math.log(time))
        return self._points[name]

    def _appraised(self, kernel: Anatomy, schedule: KernelSchedule) -> float:
        """Relative time by arithmetic; 1 for all where the agent is to do without."""
        from avo.agents.appraisal import appraise

        if not self.predicts:
            return 1.0
        few = self.typical if len(kernel.contractions) < 2 else self.typical[:1]  # longer sums: the sizes rank alike
        times = [appraise(kernel, schedule, self.hw, sizes).relative_time for sizes in few]
        return math.prod(times) ** (1 / len(times))

    def legal(self, program: Program, name: str) -> bool:
        """At every size that is public, and with a lowering."""
        from dsl.anatomy import anatomies
        from dsl.check import schedule_diagnostics, unlowered

        if name not in self._legal:
            kernels = anatomies(program)
            distinct = {tuple(sorted(s.items())): s for s in self.sizes}
            wrong = any(
                d.severity == "error"
                for sizes in distinct.values()
                for d in schedule_diagnostics(program, self.hw, sizes, kernels)
            )
            self._legal[name] = not wrong and not unlowered(program, self.hw, self.sizes[0])
        return self._legal[name]

    def predicted(self, options: Sequence[Option | Waiting], preview: Preview) -> list[float]:
        """The predicted score of each, compiled side by side; 0 for one that does not get so far."""
        from concurrent.futures import ThreadPoolExecutor

        from dsl.printer import print_program
        from evaluators.evaluation import score

        def one(option: Option | Waiting) -> float:
            return score(preview(print_program(option.program))).predicted or 0.0

        new = [o for o in options if o.key not in self._previews]
        if len(new) > 1:
            with ThreadPoolExecutor(len(new)) as threads:
                found = list(threads.map(one, new))
        else:
            found = [one(o) for o in new]
        self._previews.update(zip((o.key for o in new), found, strict=True))
        return [self._previews[o.key] for o in options]

    def knobs(self, program: Program) -> list[Knob]:
        """The program's knobs, within what the option `knobs` leaves open."""
        from dsl.knobs import knobs

        found = knobs(program, self.hw, self.sizes[0])
        if self.open is None:
            return found
        narrowed = []
        for k in found:
            allowed = self.open.get(k.name, ())
            legal, scale = (tuple(v for v in values if v in allowed) for values in (k.legal, k.scale))
            if len(legal) > 1 or legal not in ((), (k.value,)):
                narrowed.append(replace(k, legal=legal, scale=scale))
        return narrowed

    # -- options ---------------------------------------------------------------------------------------------------

    def edits(self, parent: Tried) -> list[Option]:
        """Every legal value of every knob, one knob at a time."""
        from dsl.knobs import set_knob

        key = f"edit {parent.key}"
        if key not in self._options:
            self._options[key] = [
                self._option(set_knob(parent.program, knob, value), parent, {knob.name: (knob.value, value)}, "edit")
                for knob in self.knobs(parent.program)
                for value in knob.legal
                if value != knob.value and not (knob.directive == "stream" and value == "none")
            ]
            if self.opens == "all" and (length := splitting.block(parent.program)):
                for other in (length // 2, 2 * length):
                    if other >= splitting.SHORTEST:
                        program, changes = splitting.resplit(parent.program, other), {splitting.KNOB: (length, other)}
                        self._options[key].append(self._option(program, parent, changes, "edit"))
        return [replace(o, parent=parent) for o in self._options[key]]

    def algorithms(self, first: Tried) -> list[Option]:
        """What the algorithm itself could be, where the target opens it: the first program's sum in blocks, where whole
        sums cannot fill the chip."""
        if self.opens != "all":
            return []
        found = []
        for length in splitting.lengths(first.program, self.hw, self.sizes):
            program = splitting.split(first.program, length)
            if program is not None:
                program = self._after(program, BLOCKS)
                option = self.itself(replace(first, program=program, key=key_of(program)), first)
                known = self.point(first.program, first.key).setting  # the other kernel's knobs are all new
                changes = {n: c for n, c in option.changes.items() if n in known and n != splitting.KNOB}
                changes = {splitting.KNOB: (0, length), **changes}
                found.append(replace(option, changes=changes, source="algorithm"))
        return found

    def idioms(self, parent: Tried) -> list[Tried]:
        """The program after each idiom that changes it: not judged, but a place to begin edits at."""
        key = f"idioms {parent.key}"
        if key not in self._idioms:
            found: dict[str, Program] = {}
            for idiom in (*IDIOMS, LONG_ROWS) if self._long_rows(parent.program) else IDIOMS:
                program = self._after(parent.program, idiom)
                found.setdefault(key_of(program), program)
            found.pop(parent.key, None)
            self._idioms[key] = list(found.items())
        return [replace(parent, program=program, key=name) for name, program in self._idioms[key]]

    def _after(self, program: Program, idiom: Mapping[str, Value]) -> Program:
        """The program with the idiom's knobs set, as far as they are there and open."""
        from dsl.knobs import knob_named, set_knob

        for name, value in _spelt_out(idiom, program):
            allowed = None if self.open is None else self.open.get(name, ())
            try:
                knob = knob_named(program, self.hw, name)
            except KeyError:
                continue
            if value in knob.scale and (allowed is None or value in allowed):
                program = set_knob(program, knob, value)
        return program

    def _long_rows(self, program: Program) -> bool:
        """Whether the sums of a loop that has two products are long."""
        from avo.agents.appraisal import LONG_ROW
        from dsl.anatomy import anatomies

        kernel, sizes = anatomies(program)[0], self.sizes[0]
        summed = [c for c in kernel.contractions if set(c.inner) & set(kernel.streamable)]
        return len(kernel.contractions) > 1 and any(
            math.prod(sizes.get(a, 1) for a in c.columns) > LONG_ROW for c in summed
        )

    def itself(self, base: Tried, parent: Tried) -> Option:
        """The program that an idiom made of its parent, as an option."""
        old, new = (self.point(t.program, t.key).setting for t in (parent, base))
        changes = {n: (old.get(n, "none"), v) for n, v in new.items() if old.get(n) != v}
        return Option(base.program, base.key, parent, changes, "idiom")

    def joint(self, parent: Tried, model: Model) -> list[Option]:
        """Several knobs of one kernel set together: those of which the model expects most."""
        if parent.key not in self._grids:
            self._grids[parent.key] = self._grid(parent)
        grid = self._grids[parent.key]
        if not grid:
            return []
        worth = model.improvement([point for point, _ in grid], [0.0] * len(grid))
        counts: Counter[object] = Counter()
        found = []
        for i in sorted(range(len(grid)), key=lambda i: (-round(float(worth[i]), 9), i)):
            point, changes = grid[i]
            tiles = tuple(v for n, v in point.setting.items() if "tile " in n)
            counts[tiles] += 1
            if counts[tiles] <= PER_TILE:
                found.append(self._set(parent, changes, "grid"))
                if len(found) == GRID:
                    break
        return found

    def _grid(self, parent: Tried) -> list[tuple[Point, Changes]]:
        """Settings that differ in two knobs or more, best first by arithmetic; legal or not."""
        from avo.agents.surrogate import Point
        from dsl.anatomy import anatomies
        from dsl.schedule import resolve

        found: list[tuple[Point, Changes]] = []
        before = self.point(parent.program, parent.key)
        every = [k for k in self.knobs(parent.program) if k.directive == "tile" or _field(k) in _FIELDS]
        for index, kernel in enumerate(anatomies(parent.program)):
            schedule = resolve(parent.program, index, self.hw.arch, self.hw.name)
            now = self._appraised(kernel, schedule)
            mine = [k for k in every if k.kernel == index]
            for values in _settings(mine):
                changes = {k.name: (k.value, v) for k, v in zip(mine, values, strict=True) if v != k.value}
                time = self._appraised(kernel, _with(schedule, mine, values)) / now
                setting = {**before.setting, **{n: v for n, (_, v) in changes.items()}}
                found.append((Point(setting, before.expected - math.log(time)), changes))
        found.sort(key=lambda f: (-f[0].expected, sorted(f[1])))
        return found[:GRID_WHOLE]

    def sampled(self, parent: Tried, tried: Sequence[Tried], seed: int, count: int = TPE_ASKED) -> list[Option]:
        """What TPE suggests for the numeric knobs of a program."""
        from avo.agents.sampler import suggestions

        if parent.key not in self._scales:
            self._scales[parent.key] = {n.name: n.scale for n in self.knobs(parent.program) if n.number}
        scales = self._scales[parent.key]
        good = [math.log(t.score) for t in tried if t.score > 0]
        floor = min(good, default=0.0) - 1.0
        history = [(self.point(t.program, t.key).setting, math.log(t.score) if t.score > 0 else floor) for t in tried]
        before = self.point(parent.program, parent.key).setting
        found = []
        for setting in suggestions(scales, history, seed, count):
            changes = {n: (before.get(n, "?"), v) for n, v in setting.items() if before.get(n) != v}
            found.append(self._set(parent, changes, "sampler"))
        return found

    def _set(self, parent: Tried, changes: Changes, source: str) -> Option:
        """Several knobs set, whatever is legal on the way; `legal` asks about the whole."""
        from dsl.knobs import knob_named, set_knob

        key = f"{parent.key} {sorted((n, str(v)) for n, (_, v) in changes.items())}"
        if key not in self._options:
            program = parent.program
            for name, (_, value) in changes.items():
                with contextlib.suppress(KeyError):  # one that a choice before it does away with
                    program = set_knob(program, knob_named(program, self.hw, name), value)
            self._options[key] = [self._option(program, parent, changes, source)]
        return replace(self._options[key][0], parent=parent, source=source)

    def _option(self, program: Program, parent: Tried, changes: Changes, source: str) -> Option:
        return Option(program, key_of(program), parent, changes, source)

    def streamed(self, program: Program) -> frozenset[str]:
        from dsl.anatomy import anatomies

        return frozenset(a for kernel in anatomies(program) for a in kernel.streamable)


def _spelt_out(idiom: Mapping[str, Value], program: Program) -> Iterator[tuple[str, Value]]:
    """The knobs of an idiom: `tile` for each axis of the first kernel that it is meant for, `tile walked` for those of
    them that a loop walks, `hold` for each input, `hold out` for each output."""
    from dsl.anatomy import anatomies

    kernel = anatomies(program)[0]
    rows = {a for c in kernel.contractions for a in (*c.rows, *c.columns)} | (
        {a for c in kernel.contractions for a in c.tiled} if len(kernel.contractions) > 1 else set()
    )
    for name, value in idiom.items():
        if name == "tile":
            yield from ((f"tile {axis}", value) for axis in sorted(rows))
        elif name == "tile walked":
            yield from ((f"tile {axis}", value) for axis in sorted(kernel.streamable))
        elif name in ("hold", "hold out"):
            of = program.algorithm.inputs if name == "hold" else program.algorithm.outputs
            yield from ((f"hold {t.name}", value) for t in of)
        else:
            yield name, value


def key_of(program: Program) -> str:
    from dsl.knobs import plain
    from dsl.printer import digest

    return digest(plain(program))


def _field(knob: Knob) -> str:
    return f"{knob.directive} {knob.key}".strip()


def _settings(knobs: Sequence[Knob]) -> Iterator[tuple[Value, ...]]:
    """Joint settings of these knobs: all where they are few; else any pair changed, the numbers changed together, and
    some of all knobs drawn at random, always the same ones."""
    now = tuple(k.value for k in knobs)
    scales = [k.scale if k.value in k.scale else (*k.scale, k.value) for k in knobs]

    def apart(values: tuple[Value, ...]) -> int:
        return sum(a != b for a, b in zip(values, now, strict=True))

    if math.prod(map(len, scales)) <= GRID_WHOLE:
        yield from (v for v in itertools.product(*scales) if apart(v) >= 2)
        return
    seen: set[tuple[Value, ...]] = set()
    numbers = [k.number and k.directive in ("tile", "stream", "warps") for k in knobs]
    few = [s if n else (v,) for s, n, v in zip(scales, numbers, now, strict=True)]
    pairs = (
        (*now[:i], a, *now[i + 1 : j], b, *now[j + 1 :])
        for i, j in itertools.combinations(range(len(now)), 2)
        for a in scales[i]
        for b in scales[j]
    )
    rng = random.Random(repr(scales))
    drawn = (tuple(rng.choice(s) for s in scales) for _ in range(DRAWN))
    numeric = (v for v in itertools.product(*few) if apart(v) <= MAX_CHANGES)
    for values in itertools.chain(numeric, pairs, drawn):
        if apart(values) >= 2 and values not in seen:
            seen.add(values)
            yield values


def _with(schedule: KernelSchedule, knobs: Sequence[Knob], values: Sequence[Value]) -> KernelSchedule:
    """The schedule with these knobs set, for arithmetic alone."""
    tile, rest = dict(schedule.tile), {}
    for k, v in zip(knobs, values, strict=True):
        if k.directive == "tile":
            tile[k.key] = v
        else:
            name, read = _FIELDS[_field(k)]
            rest[name] = read(v)
    return replace(schedule, tile=tile, **rest)  # type: ignore[arg-type]
