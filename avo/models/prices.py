"""What tokens cost: a table with the date and the source of each row, and prices that a person gives instead."""

from __future__ import annotations

import re
from dataclasses import dataclass

from archive.records import Spend
from avo.models.protocol import Request, Usage


@dataclass(frozen=True)
class Price:
    """USD per million tokens. cached: input read from the provider's cache; written: input written to it."""

    tokens_in: float = 0.0
    tokens_out: float = 0.0
    cached: float = 0.0
    written: float = 0.0
    read: str = ""  # the day
    source: str = ""

    def usd(self, usage: Usage) -> float:
        fresh = max(0, usage.tokens_in - usage.tokens_cached - usage.tokens_written)
        return (
            fresh * self.tokens_in
            + usage.tokens_cached * self.cached
            + usage.tokens_written * self.written
            + usage.tokens_out * self.tokens_out
        ) / 1e6


_OPENAI = ("2026-11-29", "https://developers.openai.com/api/docs/pricing, standard tier, by dated copies of it")
_ANTHROPIC = ("2026-11-29", "https://platform.claude.com/docs/en/about-claude/pricing, stored copy")

# Requests here are short: prices for long contexts (above 100,000 or 272,000 tokens of input) never apply.
PRICES: dict[str, Price] = {
    "openai:gpt-6-astra": Price(10.0, 50.0, 1.0, 12.5, *_OPENAI),
    "openai:gpt-6.1-sol": Price(2.0, 10.0, 0.1, 2.5, *_OPENAI),
    "openai:gpt-6-sol": Price(2.0, 10.0, 0.2, 2.5, *_OPENAI),
    "openai:gpt-6-luna": Price(0.1, 0.5, 0.01, 0.125, *_OPENAI),
    "openai:gpt-5.6-sol": Price(4.0, 20.0, 0.4, 4.0, *_OPENAI),
    "openai:gpt-5.6-terra": Price(2.0, 12.0, 0.2, 2.0, *_OPENAI),
    "openai:gpt-5.6-luna": Price(0.2, 1.2, 0.02, 0.2, *_OPENAI),
    "openai:gpt-5.5": Price(5.0, 30.0, 0.5, 5.0, *_OPENAI),
    "openai:gpt-5.4": Price(2.5, 15.0, 0.25, 2.5, *_OPENAI),
    "openai:gpt-5.4-mini": Price(0.75, 4.5, 0.075, 0.75, *_OPENAI),
    "openai:gpt-5.4-nano": Price(0.2, 1.25, 0.02, 0.2, *_OPENAI),
    "anthropic:claude-fable-5-1": Price(10.0, 50.0, 0.25, 12.5, *_ANTHROPIC),
    "anthropic:claude-opus-5-5": Price(4.0, 20.0, 0.2, 5.0, *_ANTHROPIC),
    "anthropic:claude-opus-5": Price(5.0, 25.0, 0.5, 6.25, *_ANTHROPIC),
    "anthropic:claude-opus-4-5": Price(5.0, 25.0, 0.5, 6.25, *_ANTHROPIC),
    "anthropic:claude-sonnet-5-5": Price(2.0, 10.0, 0.1, 2.5, *_ANTHROPIC),
    "anthropic:claude-sonnet-5": Price(2.0, 10.0, 0.2, 2.5, *_ANTHROPIC),
    "anthropic:claude-sonnet-4-5": Price(3.0, 15.0, 0.3, 3.75, *_ANTHROPIC),
    "anthropic:claude-haiku-5-5": Price(0.1, 0.5, 0.01, 0.125, *_ANTHROPIC),
    "anthropic:claude-haiku-4-5": Price(1.0, 5.0, 0.1, 1.25, *_ANTHROPIC),
}

_DATED = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


def price_of(name: str) -> Price | None:
    """The price of `provider:model`; a dated name costs what the undated one does. None: unknown."""
    return PRICES.get(name) or PRICES.get(_DATED.sub("", name))


def spend(price: Price | None, usage: Usage) -> Spend:
    return Spend(
        usd=None if price is None else price.usd(usage),
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        tokens_cached=usage.tokens_cached,
    )


def most(price: Price | None, request: Request) -> Spend:
    """The most that a request can cost: a token for every two bytes in, and every token that it allows out."""
    size = len(request.to_json().encode()) // 2 + 64
    dearest = None if price is None else max(price.tokens_in, price.written)
    usd = None if price is None or dearest is None else (size * dearest + request.max_tokens * price.tokens_out) / 1e6
    return Spend(usd=usd, tokens_in=size, tokens_out=request.max_tokens)
