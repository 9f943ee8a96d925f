"""An evaluation as JSON and back, and the search keys that a list of candidates is made from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from archive.errors import ArchiveError
from evaluators.evaluation import Evaluation, score
from evaluators.times import times_of

# Raise it when `evaluators.evaluation.score` gives another number for the same facts, or another key is kept: archives
# then compute their search keys anew when they are next opened for writing.
SCORE_RULE = 3


def to_document(evaluation: Evaluation) -> str:
    """JSON without the source. Infinities and NaN become the strings "inf", "-inf", "nan": JSON has no others."""
    return json.dumps(plain(evaluation.model_dump(exclude={"source"})), allow_nan=False, separators=(",", ":"))


def from_document(document: str, source: str) -> Evaluation:
    """The inverse of `to_document`. What a run works with has always passed through both, so that a resumed run sees
    the very values that an undisturbed one saw."""
    try:
        return Evaluation.model_validate({**json.loads(document), "source": source})
    except (ValidationError, ValueError) as error:
        raise ArchiveError(f"an evaluation in the archive cannot be read: {error}") from error


def search_keys(evaluation: Evaluation) -> dict[str, Any]:
    """The columns of `evaluations` that repeat what the document says."""
    s, times = score(evaluation), times_of(evaluation)
    return {
        "status": evaluation.status.value,
        "mode": evaluation.mode,
        "failed_gate": evaluation.failed_gate,
        "message": line(evaluation.message),
        "predicted": _finite(s.predicted),
        "measured": _finite(s.measured),
        "headroom": _finite(s.headroom),
        "times": times.to_text() if times is not None else None,
    }


def deterministic(evaluation: Evaluation) -> dict[str, Any]:
    """What two judgements of one program must agree in: all but the seconds that gates took and the environment."""
    facts = json.loads(to_document(evaluation))
    for gate in facts["gates"]:
        del gate["seconds"]
    del facts["environment"]
    return {**facts, "source": evaluation.source}


def line(text: str) -> str:
    """A text that any database takes: no NUL, no lone surrogate."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def plain(value: Any) -> Any:
    """The nearest JSON to what somebody's evaluator left as evidence."""
    if isinstance(value, str):
        return line(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {line(str(k)): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(v) for v in value), key=str)
    if hasattr(value, "tolist"):  # NumPy and torch, without importing them
        return plain(value.tolist())
    return line(str(value))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
