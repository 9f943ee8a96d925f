"""`avo models`: whom the agent avo may ask, what that costs, and whether it could be asked from here."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from avo.cli.options import JsonOption


def models(
    server: Annotated[
        str | None, typer.Argument(help="Ask this server what it has: http://host/v1.", metavar="[URL]")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the models whose price is known, in USD per million tokens, and whether SDK and key are here.

    With a URL it lists what that OpenAI-compatible server offers. Others may be named too: see docs/agents.md.

    Example: avo models http://localhost:8000/v1
    """
    from avo.cli.console import say, show_json, table, tame

    if server is not None:
        found = _served(server)
        if as_json:
            show_json(found)
        else:
            say("\n".join(map(tame, found)) if found else f"{server} offers no model")
        return
    rows = _known()
    if as_json:
        show_json(rows)
        return
    cells = [
        [r["name"], f"{r['usd_in']:g}", f"{r['usd_out']:g}", f"{r['usd_cached']:g}", r["read"], r["missing"] or "yes"]
        for r in rows
    ]
    say(table(["model", "in", "out", "cached", "read", "can be asked"], cells, right=(1, 2, 3)))
    say("\nUSD per million tokens, as read on that day; --json has the sources.")


def _known() -> list[dict[str, Any]]:
    from avo import plugins
    from avo.models.prices import PRICES

    missing = {name: _missing(name) for name in ("openai", "anthropic")}
    rows = [
        {
            "name": name,
            "usd_in": p.tokens_in,
            "usd_out": p.tokens_out,
            "usd_cached": p.cached,
            "read": p.read,
            "source": p.source,
            "missing": missing[name.partition(":")[0]],
        }
        for name, p in PRICES.items()
    ]
    nothing = {"usd_in": 0.0, "usd_out": 0.0, "usd_cached": 0.0, "read": "", "missing": ""}
    return rows + [{"name": p.name, **nothing, "source": p.owner} for p in plugins.installed("model")]


def _missing(provider: str) -> str:
    import importlib.util
    import os

    if importlib.util.find_spec(provider) is None:
        return "no SDK"
    return "" if os.environ.get(f"{provider.upper()}_API_KEY", "").strip() else "no key"


def _served(url: str) -> list[str]:
    from avo.errors import HarnessUnavailable, UserMistake
    from avo.models.endpoint import sdk, trouble

    if not url.startswith(("http://", "https://")):
        raise UserMistake(f"'{url}' is no address: write http://host:port/v1")
    kit = sdk("openai")
    try:
        with kit.OpenAI(api_key="none", base_url=url, max_retries=0, timeout=10.0) as client:
            return [f"{url.rstrip('/')}#{m.id}" for m in client.models.list()]
    except Exception as error:
        raise HarnessUnavailable(f"{url}: {trouble(kit, error)}") from None
