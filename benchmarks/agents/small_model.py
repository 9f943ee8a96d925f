"""How much of what a very small model writes passes `avo check`: edits and whole programs, free and under a grammar.

The model has 135 million parameters and runs on the CPU (`make small-model` installs and serves it); it stands for
the weakest end of what an agent may be. Each arm asks with the brief of step 1 of a target, as `--agent avo` does,
and has what is wrong sent back once. Counted is what has no error for the chip and breaks nothing that the target
keeps: no judge is asked.

python benchmarks/agents/small_model.py http://127.0.0.1:8123/v1#smollm2 [--replies 20] [--target softmax] [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from avo import plugins
from avo.agents.brief_page import page
from avo.agents.constrained import reply_grammar
from avo.agents.prompting import template
from avo.agents.protocol import Brief
from avo.agents.reading import look
from avo.errors import HarnessUnavailable
from avo.models import Message, Request, open_model
from avo.models.calling import Unkept, Waits, converse
from avo.testing import brief
from dsl.grammars import grammar

WHOLE = "\n\nAnswer with the whole program, changed, from its `kernel` line to its last line, in one fence."
EDITS = "\n\nAnswer with directive lines alone, in one fence."


@dataclass
class Arm:
    """first, repaired: replies without an error at once, and after one repair. same: the parent itself came back."""

    name: str
    replies: int = 0
    first: int = 0
    repaired: int = 0
    same: int = 0
    seconds: float = 0.0

    def row(self) -> str:
        def share(n: int) -> str:
            return f"{n}/{self.replies} ({n / self.replies:.0%})" if self.replies else "-"

        return (
            f"| {self.name} | {share(self.first)} | {share(self.first + self.repaired)} | {self.same} | "
            f"{self.seconds / max(1, self.replies):.0f} s |"
        )


def tried(problem: str) -> tuple[bool, bool]:
    """(passes the check, is the parent's own program)."""
    known = problem.startswith("this program was judged already")
    return not problem or known, known


def run(arm: Arm, url: str, one: Brief, ask: str, rule: str, replies: int, tokens: int) -> None:
    model = open_model(url)
    waits = Waits(timeout_s=900, attempts=1)
    repair = template("repair")
    for _ in range(replies):
        start = time.monotonic()
        told = (Message("user", page(one) + ask),)
        request = Request(template("system").text, told, tokens, grammar=rule)
        try:
            reply = converse(model, request, Unkept(), waits=waits)
            answer, problem = look(reply, one)
            good, known = tried(problem)
            good &= answer is not None
            arm.first += good
            arm.same += known
            if not good:
                back = Message("user", repair.fill(problem=problem[:1500]))
                again = replace(request, messages=(*told, reply.said, back))
                answer, problem = look(converse(model, again, Unkept(), waits=waits), one)
                good, known = tried(problem)
                arm.repaired += good and answer is not None
                arm.same += known
        except HarnessUnavailable as error:
            print(f"{arm.name}: {str(error)[:200]}", file=sys.stderr)
        arm.replies += 1
        arm.seconds += time.monotonic() - start
        print(arm.row(), file=sys.stderr, flush=True)
    model.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="http://host:port/v1#NAME")
    parser.add_argument("--replies", type=int, default=20)
    parser.add_argument("--target", default="softmax")
    parser.add_argument("--hw", default="b200")
    parser.add_argument("--tokens", type=int, default=400, help="of one reply")
    parser.add_argument("--arms", nargs="*", type=int, default=[1, 2, 3, 4], choices=[1, 2, 3, 4])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    one = brief(plugins.load("target", given.target), plugins.load("hardware", given.hw))
    fenced = grammar("gbnf").replace("root ::=", "text ::=", 1)
    arms = [
        ("edits, under the grammar of the brief", EDITS, reply_grammar(one, "gbnf")),
        ("edits, free", EDITS, ""),
        ("whole programs, under the grammar of the language", WHOLE, 'root ::= "```\\n" text "```\\n"\n' + fenced),
        ("whole programs, free", WHOLE, ""),
    ]
    arms = [arms[n - 1] for n in given.arms]
    found = [Arm(name) for name, _, _ in arms]
    for arm, (_, ask, rule) in zip(found, arms, strict=True):
        run(arm, given.model, one, ask, rule, given.replies, given.tokens)
        if given.json:
            facts = {"model": given.model.partition("#")[2], "target": given.target, "hw": given.hw}
            given.json.write_text(json.dumps(facts | {"arms": [asdict(a) for a in found]}, indent=1) + "\n")
    print(f"{given.target} on {given.hw}, {given.model.partition('#')[2]}: replies that pass avo check")
    print("| arm | at once | after one repair | the parent again | a reply |\n|---|---|---|---|---|")
    print("\n".join(arm.row() for arm in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
