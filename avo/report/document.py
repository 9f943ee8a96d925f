"""The report as JSON, whose schema is in docs/report.md: piece by piece, so that no run is too long for the memory.

A field a line, and of the two long lists an item a line. No NaN, nothing rounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from avo.report.model import Candidate, ReportModel, Tried, finite


def to_json(model: ReportModel) -> str:
    """The whole model as one JSON document."""
    return "".join(pieces(model, model.candidates, model.tried))


def pieces(model: ReportModel, candidates: Iterable[Candidate], tried: Iterable[Tried]) -> Iterator[str]:
    """The document in parts that follow each other. candidates, tried: those of the run, instead of the model's own."""
    lists: dict[str, Iterable[BaseModel]] = {"candidates": candidates, "tried": tried}
    head = model.model_dump(by_alias=True, exclude={"candidates", "tried"})
    mark = "{"
    for name, field in ReportModel.model_fields.items():
        key = field.alias or name
        yield f'{mark}\n"{key}": '
        mark = ","
        if name in lists:
            yield from _list(lists[name])
        else:
            yield _json(head[key])
    yield "\n}"


def _list(found: Iterable[BaseModel]) -> Iterator[str]:
    mark = "["
    for one in found:
        yield f"{mark}\n{_json(one.model_dump())}"
        mark = ","
    yield "[]" if mark == "[" else "\n]"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:  # seldom, so it is not looked for each time
        return json.dumps(finite(value), allow_nan=False)
