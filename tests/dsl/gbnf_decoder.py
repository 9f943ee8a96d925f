"""A GBNF decoder behind a pipe: reads `{"grammar": ..., "text": ...}` a line, answers `true` or `false`.

A process of its own, because xgrammar imports torch where it is there, and transformers, whose tokenizers this does not
use: an empty module stands in for that.
"""

from __future__ import annotations

import json
import sys
import types


def _without_transformers() -> None:
    try:
        import transformers  # noqa: F401
    except ImportError:
        stand_in = types.ModuleType("transformers")
        for name in ("LogitsProcessor", "PreTrainedTokenizerBase", "PreTrainedTokenizerFast"):
            setattr(stand_in, name, type(name, (), {}))
        sys.modules["transformers"] = stand_in


def main() -> None:
    _without_transformers()
    import xgrammar
    from xgrammar.testing import _get_matcher_from_grammar

    print(json.dumps(xgrammar.__name__), flush=True)
    matchers: dict[str, object] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        text = asked["grammar"]
        if text not in matchers:
            matchers[text] = _get_matcher_from_grammar(xgrammar.Grammar.from_ebnf(text))
        matcher = matchers[text]
        matcher.reset()
        print(json.dumps(bool(matcher.accept_string(asked["text"]) and matcher.is_terminated())), flush=True)


if __name__ == "__main__":
    main()
