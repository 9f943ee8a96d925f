"""The models of a run: one, or several that a bandit chooses among; what they cost, and which limit has to hold."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from avo.config import DEFAULT_MAX_USD, RunConfig
from avo.errors import UserMistake
from avo.stopping import EPSILON, WINDOW

if TYPE_CHECKING:
    from avo.agents import Agent
    from avo.models import Model, Price


def names(config: RunConfig) -> list[str]:
    """Of its models, which stand in one text, separated by commas; empty where none is asked. Raises UserMistake."""
    found = [name.strip() for name in (config.model or "").split(",")]
    if config.model is None:
        return []
    if not all(found) or len(set(found)) < len(found):
        raise UserMistake(f"--model wants the name of a model, or several different ones, A,B; got '{config.model}'")
    return found


def options(config: RunConfig, name: str) -> dict[str, Any]:
    """Of one model: what `model_options` says of all, and what it says under this one's name."""
    several = names(config)
    shared = {k: v for k, v in config.model_options.items() if k not in several}
    own = config.model_options.get(name, {})
    if not isinstance(own, dict):
        raise UserMistake(f"model_options.{name} is a table of options of that model, such as usd_in and usd_out")
    return shared | own


def models(config: RunConfig) -> list[Model]:
    """Each of them; nothing is sent. Raises UserMistake."""
    from avo.models import open_model

    return [open_model(name, **options(config, name)) for name in names(config)]


def prices(config: RunConfig) -> dict[str, Price | None]:
    """Of each; None where it is not known, or the model is a plug-in that is not here."""
    from avo.models import open_model

    found: dict[str, Price | None] = {}
    for name in names(config):
        try:
            found[name] = open_model(name, **options(config, name)).price
        except UserMistake:
            found[name] = None
    return found


def agent(
    asked: Sequence[Model],
    costs: Mapping[str, Price | None],
    make: Callable[[Model | None], Agent],
    jobs: int,
) -> Agent:
    """The agent that asks these models; one that asks none where there are none."""
    if len(asked) < 2:
        return make(asked[0] if asked else None)
    from avo.agents.bandit import Bandit

    return Bandit({m.name: make(m) for m in asked}, costs, jobs)


def checked(config: RunConfig) -> tuple[RunConfig, list[Model]]:
    """The models, and the configuration with the rules for stopping that hold where one is asked.

    Raises UserMistake for an agent that asks none, a price that is needed and not known, a missing key or SDK, and
    where nothing limits what they may cost.
    """
    from avo import plugins

    if config.model is None:
        return config, []
    found = plugins.load("agent", config.agent)
    if not callable(found) or "model" not in inspect.signature(found).parameters:
        raise UserMistake(f"the agent '{config.agent}' asks no model; --agent avo does")
    opened = models(config)
    for name, model in zip(names(config), opened, strict=True):
        hosted = name.startswith(("openai:", "anthropic:"))
        if model.price is None and config.max_usd is not None:
            raise UserMistake(
                f"the price of {name} is not known, so --max-usd cannot be kept: give it with --set "
                "model_options.usd_in=X --set model_options.usd_out=Y (USD per million tokens), or use --max-tokens"
            )
        if model.price is None and hosted and config.max_tokens is None:
            raise UserMistake(
                f"the price of {name} is not known: limit it with --max-tokens N, or give the price with --set "
                "model_options.usd_in=X --set model_options.usd_out=Y (USD per million tokens)"
            )
    if costly(config):
        raise UserMistake(
            f"{config.model} costs money and nothing limits it: give --max-usd N (USD; {DEFAULT_MAX_USD:g} is usual) "
            "or --max-tokens N"
        )
    for model in opened:
        check = getattr(model, "check", None)
        if check is not None:
            check()
    stops = {"epsilon": EPSILON, "window": WINDOW}
    return config.model_copy(update={k: v for k, v in stops.items() if getattr(config, k) is None}), opened


def costly(config: RunConfig) -> bool:
    """Whether it asks a model that costs money, without a limit on it."""
    if config.model is None or config.max_usd is not None or config.max_tokens is not None:
        return False
    known = [model.price for model in models(config)]
    return any(price is not None and price.tokens_in + price.tokens_out > 0 for price in known)
