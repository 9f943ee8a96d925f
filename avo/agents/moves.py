"""Which edit answers which bottleneck: a literal table of moves over the knobs, and what each is expected to bring.

A move changes one knob in one direction. Its expected gain is the share of time that its causes take, times how much
of that it usually saves; what it costs elsewhere is the appraisal's and the surrogate's to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from avo.agents.evidence import Evidence
from avo.agents.splitting import KNOB

Value = int | str
Direction = Literal["up", "down", "to", "any"]

_DATA = ("load latency", "L2 bandwidth", "HBM bandwidth")
_WAIT = ("latency", "load latency", "tile overhead")


@dataclass(frozen=True)
class Move:
    """knob: its name without the kernel's number ("tile" stands for any axis). to: the value, for direction "to", as it
    begins; old: the value that it answers alone, where there is one.

    causes: what it answers. saves: the part of their time that it may take away. role: which tiles it is for.
    """

    knob: str
    direction: Direction
    causes: tuple[str, ...]
    saves: float
    claim: str
    to: str = ""
    old: str = ""
    role: Literal["", "grid", "stream"] = ""


MOVES: tuple[Move, ...] = (
    Move("tile", "up", (*_DATA, *_WAIT, "shared memory"), 0.4,
         "larger tiles read each operand less often and share a trip's latency", role="grid"),
    Move("tile", "up", ("latency", "load latency", "instruction issue"), 0.25,
         "longer blocks make fewer trips, so less waiting and fewer rescales", role="stream"),
    Move("tile", "down", ("spills",), 0.9, "smaller tiles need fewer registers, so nothing spills"),
    Move("tile", "down", ("tail wave",), 0.5, "smaller tiles fill the last wave", role="grid"),
    Move("stream stages", "up", ("load latency",), 0.6, "more blocks in flight hide the loads"),
    Move("stream stages", "down", ("latency",), 0.2, "less shared memory lets another block in"),
    Move("warps", "up", ("spills", "latency"), 0.5, "more warps share the registers and hide each other's latency"),
    Move("warps", "down", ("shared memory", "instruction issue"), 0.15, "fewer warps repeat less work"),
    Move("split", "to", ("instruction issue",), 0.25, "blocks that need no mask skip its arithmetic", to="masked"),
    Move("load", "to", ("instruction issue", "load latency"), 0.25,
         "descriptors compute addresses in hardware", to="tma"),
    Move("exponent", "to", ("exponentials", "instruction issue"), 0.15,
         "log2(e) goes into the scale, one multiplication less for each element", to="exp2", old="exp"),
    Move("exponent", "to", ("exponentials",), 0.25,
         "a share of the exponentials goes to the multiply-add units", to="poly"),
    Move("rescale", "to", ("instruction issue", "latency"), 0.12,
         "the sums are rescaled only when the maximum rises", to="lazy"),
    Move("order", "to", ("tail wave",), 0.7, "tiles with the longest loop start first, so the tail is short",
         to="longest_first"),
    Move("order", "to", ("L2 bandwidth", "HBM bandwidth"), 0.3, "neighbouring tiles share what they read in L2",
         to="grouped"),
    Move("persistent", "to", ("tile overhead", "tail wave"), 0.4,
         "a block goes on to its next tile without being launched again", to="on"),
    Move("persistent", "to", ("tail wave",), 0.3, "the hardware hands tiles to whoever is free", to="off"),
    Move("swizzle", "to", ("L2 bandwidth", "HBM bandwidth"), 0.5, "tiles that share data stay on one die", to="dies"),
    Move("roles mma", "up", (*_DATA, *_WAIT, "instruction issue"), 0.5,
         "warps that only load run ahead, and those that multiply overlap it with their arithmetic"),
    Move("rescale", "to", ("instruction issue", "latency"), 0.15,
         "most blocks need no maximum; the few that do are done again", to="speculative"),
    Move("order l2", "up", ("L2 bandwidth", "HBM bandwidth", "tail wave"), 0.2,
         "heads whose keys fit in L2 run together"),
    Move(KNOB, "any", ("tail wave", "latency", "load latency"), 0.8,
         "blocks of a long sum give every processor work, and a second kernel adds them up"),
    Move("waves_per_eu", "any", ("latency", "spills"), 0.1, "another balance of registers against waves"),
    Move("matrix_instr", "any", ("matrix units",), 0.05, "another shape of the matrix instruction"),
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What a change of one knob answers: expected gain (ratio of scores, 1 for none), the cause, and the claim."""

    gain: float
    cause: str
    claim: str


def answer(name: str, old: Value, new: Value, found: Evidence, streamed: frozenset[str] = frozenset()) -> Answer:
    """The best reason in the table for this change; gain 1 where there is none. `streamed`: axes that loops walk."""
    knob = name.split(": ", 1)[-1]
    best = Answer(1.0, "", f"{knob} {old} -> {new}")
    for move in MOVES:
        if not _is(move, knob, old, new, streamed):
            continue
        share = min(0.8, _urgent(move, found) * move.saves)
        gain = 1 / (1 - share)
        if gain > best.gain:
            cause = max(move.causes, key=lambda c: found.shares.get(c, 0.0)) if found.shares else move.causes[0]
            best = Answer(gain, cause, move.claim)
    return best


def _is(move: Move, knob: str, old: Value, new: Value, streamed: frozenset[str]) -> bool:
    if move.knob == "tile":
        if not knob.startswith("tile "):
            return False
        axis = knob.removeprefix("tile ")
        if move.role and move.role != ("stream" if axis in streamed else "grid"):
            return False
    elif knob != move.knob:
        return False
    match move.direction:
        case "up" | "down":
            return isinstance(old, int) and isinstance(new, int) and (new > old) == (move.direction == "up")
        case "to":
            if move.old and old != move.old:
                return False
            return str(new).startswith(move.to) and not str(old).startswith(move.to)
        case _:
            return True


def _urgent(move: Move, found: Evidence) -> float:
    """The share of time that the move could touch. Where nobody told shares, spilled registers are reason enough."""
    share = found.share(move.causes)
    if "spills" in move.causes and not found.shares:
        share = 0.3 if found.spills else 0.0
    if move.knob == "stream stages" and move.direction == "down":
        share = share if found.occupancy_limit == "shared memory" else 0.0
    return share


def claims(changes: Mapping[str, tuple[Value, Value]], found: Evidence, streamed: frozenset[str]) -> tuple[Answer, ...]:
    """The answer of each changed knob, the largest gain first."""
    answers = [answer(name, old, new, found, streamed) for name, (old, new) in changes.items()]
    return tuple(sorted(answers, key=lambda a: -a.gain))
