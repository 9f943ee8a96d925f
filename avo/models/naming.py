"""From a name to the model: `anthropic:NAME`, `openai:NAME`, `http://host/v1#NAME`, or a plug-in's name."""

from __future__ import annotations

from typing import Any

from avo.errors import UserMistake
from avo.models.prices import Price, price_of
from avo.models.protocol import Model

FORMS = "anthropic:NAME, openai:NAME, http://host:port/v1#NAME (any OpenAI-compatible server) or the name of a plug-in"
_OPTIONS = ("usd_in", "usd_out", "usd_cached", "base_url", "key_env", "stream")


def open_model(name: str, **options: Any) -> Model:
    """The model of that name; nothing is sent yet.

    options: usd_in, usd_out, usd_cached (USD per million tokens, instead of the table's), base_url (another address of
    the provider), key_env (the environment variable that holds the key), stream (False: a provider's reply in one
    piece). Raises UserMistake.
    """
    provider, colon, model = name.partition(":")
    if name.startswith(("http://", "https://")):
        url, hash_, model = name.partition("#")
        if not hash_ or not model:
            raise UserMistake(f"'{name}' names a server and no model: write {url}#NAME")
        _known(options)
        from avo.models.openai_api import ChatModel

        # Nobody knows what a server of one's own costs; a key of OpenAI's is never sent there.
        return ChatModel(name, model, url, _price(None, options), options.get("key_env"))
    if colon and provider in ("openai", "anthropic"):
        if not model:
            raise UserMistake(f"'{name}' names no model: write {provider}:NAME")
        _known(options)
        price = _price(price_of(name), options)
        stream = bool(options.get("stream", True))
        if provider == "openai":
            from avo.models.openai_api import OpenAIModel

            return OpenAIModel(name, model, options.get("base_url"), price, options.get("key_env"), stream)
        from avo.models.anthropic_api import AnthropicModel

        return AnthropicModel(name, model, options.get("base_url"), price, options.get("key_env"), stream)
    from avo import plugins

    if not colon and name not in plugins.names("model"):
        raise UserMistake(f"'{name}' is no model: write {FORMS}")
    found = plugins.load("model", name)
    made = found(**options) if isinstance(found, type) else found
    if not isinstance(made, Model):
        raise UserMistake(f"the model '{name}' lacks name, price, send() or close(): see docs/agents.md")
    for what, value, wanted, right in (
        ("name", made.name, "a text", isinstance(made.name, str) and bool(made.name)),
        ("price", made.price, "a Price or None", made.price is None or isinstance(made.price, Price)),
    ):
        if not right:
            raise UserMistake(f"the model '{name}' has {what} {value!r:.80}; it wants {wanted}: see docs/agents.md")
    return made


def _known(options: dict[str, Any]) -> None:
    for key in options:
        if key not in _OPTIONS:
            from avo.errors import unknown

            raise UserMistake(unknown("option of a model:", key, _OPTIONS))


def _price(table: Price | None, options: dict[str, Any]) -> Price | None:
    given = [options.get(key) for key in ("usd_in", "usd_out")]
    if given == [None, None] and options.get("usd_cached") is None:
        return table
    if None in given:
        raise UserMistake("a price needs both model_options.usd_in and model_options.usd_out (USD per million tokens)")
    values = [*given, options.get("usd_cached", given[0])]
    if any(isinstance(v, bool) or not isinstance(v, int | float) or not 0 <= v < 1e6 for v in values):
        raise UserMistake("model_options.usd_in, usd_out and usd_cached are USD per million tokens, at least 0")
    into, out, cached = map(float, values)  # type: ignore[arg-type]
    return Price(into, out, cached, into * 1.25, source="given")
