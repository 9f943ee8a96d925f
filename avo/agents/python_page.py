"""The brief of a step in a run of raw Python: the file, the contract, what the judge watches, what was tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from avo.agents.protocol import Brief, Judged

if TYPE_CHECKING:
    from dsl.syntax import Algorithm

_LAST = 12  # verdicts shown

_GLUE = (
    "`run` may ask torch for memory, views, casts and elementwise arithmetic alone: the work is done by `@triton.jit` "
    "kernels. Calls are seen as torch's dispatcher sees them, and once no kernel is run: the answer must break then."
)
_WATCHED = """\
Every call is on new inputs in the same tensors, at the same addresses, and every answer is checked, against float64,
on several sizes (tails among them) and distributions. Outputs are looked at again later. What counts as gaming, and
scores nothing: answers kept between calls, work that goes on after the return, library calls where kernels are asked
for, kernels for show, outputs that are no plain tensors. A cache of settings by shape and scratch memory that is
written anew are fine. There is no network, no other process, and one folder to write to."""
ANSWER = """\
Send one whole Python file in one fence of three backticks, or a unified diff against the file above. Above the fence
write `why: ` and in one line what should get better and why. Do not send a file that was judged already."""


def python_page(brief: Brief) -> str:
    """Markdown. Follows from the seed, k and the verdicts alone, as every brief does."""
    from avo.agents.brief_page import QUOTED, fenced, scored, verdict_row

    target, parent = brief.target, brief.parent
    rows = [
        f"# Step {brief.k}: a Triton kernel for `{target.name}`",
        "",
        f"{(target.summary or target.name).rstrip('.')}. Chip: {brief.hardware.title}.",
        "",
        "## The contract",
        "",
        contract(brief),
        "",
        "Sizes: " + "; ".join(w.name for w in target.workloads) + ".",
        "",
        f"## The file to start from: `{parent.digest}` (proposal {parent.k}), {scored(brief, parent)}",
        "",
        fenced(parent.text, "python"),
    ]
    if len(brief.candidates) > 1:
        shown = min(_LAST, len(brief.candidates))
        rows += ["", f"## Verdicts, the last {shown} of {len(brief.candidates)}", "", QUOTED, ""]
        rows += [_verdict(brief, c, verdict_row(brief, c)) for c in brief.candidates[-_LAST:]]
    rows += ["", "## How to answer", "", ANSWER, ""]
    return "\n".join(rows)


def contract(brief: Brief) -> str:
    """What `run` takes and gives, what it may ask torch for, and what the judge watches."""
    from evaluators.loading import seed_program

    target = brief.target
    form = f"`def run({_signature(seed_program(target).algorithm)})` returns {_returned(brief)}, row-major."
    allowed = _GLUE if target.torch == "glue" else "`run` may call whatever it likes of torch."
    return f"{form}\n{allowed}\n\n{_WATCHED}"


def _verdict(brief: Brief, c: Judged, row: str) -> str:
    """With the rule that a gaming one broke: what was seen is the best teacher."""
    gate = c.evaluation.gate(c.evaluation.failed_gate) if c.evaluation.failed_gate else None
    rule = gate.evidence.get("rule") if gate is not None else None
    return row + (f" (rule: {rule})" if rule else "")


def _signature(algorithm: Algorithm) -> str:
    """`x[r c] bf16, w[c] bf16, causal: bool`."""
    given = [f"{t.name}{_axes(t.axes)} {t.dtype or 'f32'}" for t in algorithm.inputs]
    return ", ".join([*given, *(f"{p.name}: {p.dtype}" for p in algorithm.params)])


def _returned(brief: Brief) -> str:
    from evaluators.loading import seed_program
    from evaluators.oracle import output_dtypes

    algorithm = seed_program(brief.target).algorithm
    dtypes = output_dtypes(algorithm)
    told = []
    for t in algorithm.outputs:
        given = brief.target.inplace.get(t.name)
        place = f" in the memory of {given}" if given else ", a new tensor"
        told.append(f"{t.name}{_axes(t.axes)} {dtypes[t.name]}{place}")
    return "a tuple of " + "; ".join(told) if len(told) > 1 else told[0]


def _axes(axes: tuple[str, ...] | None) -> str:
    return f"[{' '.join(axes)}]" if axes else ""
