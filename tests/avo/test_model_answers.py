"""What a plug-in's model gives back is looked at where it comes in, and is its author's mistake."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from avo.errors import UserMistake
from avo.models import Message, Reply, Request, Usage, open_model
from avo.models.calling import Unkept, converse

REQUEST = Request("You make kernels fast.", (Message("user", "the brief"),), 500)


class Answers:
    """A model of somebody's own that always says the same."""

    name, price = "mine", None

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def send(self, request: Request, timeout_s: float) -> Any:
        return self.answer

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("warps 8", "the model mine returned str, not a Reply"),
        (None, "the model mine returned NoneType, not a Reply"),
        (Reply(None), "returned a Reply whose text is None; it wants text"),  # type: ignore[arg-type]
        (Reply("a", usage=(1, 2)), r"whose usage is \(1, 2\); it wants a Usage"),  # type: ignore[arg-type]
        (Reply("a", calls=[]), r"whose calls is \[\]; it wants a tuple of Calls"),  # type: ignore[arg-type]
        (Reply("a", calls=("f",)), "whose call is 'f'; it wants a Call"),  # type: ignore[arg-type]
        (Reply("a", "stop"), "outcome 'stop'; legal: ok, truncated, refused, empty"),  # type: ignore[arg-type]
        (Reply("a", usage=Usage(tokens_in=-5)), "usage.tokens_in=-5; it wants a number of tokens"),
        (Reply("a", usage=Usage(tokens_out=1.5)), "usage.tokens_out=1.5"),  # type: ignore[arg-type]
        (Reply("a", usage=Usage(tokens_out=float("nan"))), "usage.tokens_out=nan"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_reply_is_named(answer: Any, said: str) -> None:
    with pytest.raises(UserMistake, match=said + r".*see docs/agents.md"):
        converse(Answers(answer), REQUEST, Unkept())


def test_a_right_reply_comes_through() -> None:
    right = Reply("warps 8", usage=Usage(10, 2))
    assert converse(Answers(right), REQUEST, Unkept()) == dataclasses.replace(right)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("name, price = '', None", "has name ''; it wants a text"),
        ("name, price = 'mine', 3.0", "has price 3.0; it wants a Price or None"),
        ("name = 'mine'", r"lacks name, price, send\(\) or close\(\)"),
    ],
)
def test_a_model_without_a_name_or_a_price_is_refused(tmp_path: Path, fields: str, said: str) -> None:
    place = tmp_path / "model.py"
    place.write_text(f"class Mine:\n    {fields}\n    def send(self, r, t): ...\n    def close(self): ...\n")
    with pytest.raises(UserMistake, match=said):
        open_model(f"{place}:Mine")
