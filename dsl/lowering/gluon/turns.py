"""`issue turns=ping_pong`: groups issue their products one after the other, by named barriers, which Gluon has not.

A group waits for its own barrier before it issues a block's products and arrives at the next group's behind them: so
the arithmetic of one runs beside the products of another. Barriers 12 and up are nobody's else; the last group gives
the first its turn before the first tile, and the first takes back the turn that nobody uses after the last one.
"""

from __future__ import annotations

from dsl.lowering.gluon.plan import WARPGROUP, Plan

FIRST = 12


def takes_turns(plan: Plan) -> bool:
    return plan.kernel.schedule.turns == "ping_pong" and plan.rotated and plan.consumers > 1


def functions(groups: int) -> dict[str, str]:
    return {
        "take_turn": _function(groups, "take_turn", "bar.sync", "Waits until the group WG may issue its products."),
        "pass_turn": _function(groups, "pass_turn", "bar.arrive", "The group WG may issue its products now."),
    }


def _function(groups: int, name: str, instruction: str, doc: str) -> str:
    lines = [f"def {name}(WG: gl.constexpr):", f'    """{doc}"""']
    for g in range(groups):
        asm = f"{instruction} {FIRST + g}, {2 * WARPGROUP}; mov.b32 $0, 0;"
        lines += [
            f"    if WG == {g}:",
            f'        gl.inline_asm_elementwise("{asm}", "=r,r", [0], dtype=gl.int32, is_pure=False, pack=1)',
        ]
    return "\n".join(lines)


def take() -> str:
    return "take_turn(WG)"


def hand_on(plan: Plan) -> str:
    return f"pass_turn((WG + 1) % {plan.consumers})"


def begin(plan: Plan) -> list[str]:
    return [f"if WG == {plan.consumers - 1}:", "    pass_turn(0)"]


def end() -> list[str]:
    return ["if WG == 0:", "    take_turn(0)"]
