"""Real decoders that say whether a grammar accepts a text: llguidance for Lark, xgrammar for GBNF."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest


class Decoders:
    """`accepts(form, grammar, text)`. Skips the test where the decoder of a form is not installed."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[str] | None = None

    def accepts(self, form: str, grammar: str, text: str) -> bool:
        return _lark(grammar, text) if form == "lark" else self._gbnf(grammar, text)

    def _gbnf(self, grammar: str, text: str) -> bool:
        if self.child is None:
            pytest.importorskip(
                "tvm_ffi", reason="xgrammar is not installed: pip install --no-deps xgrammar apache-tvm-ffi"
            )
            script = str(Path(__file__).with_name("gbnf_decoder.py"))
            self.child = subprocess.Popen(
                [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert self._answer() == "xgrammar"
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps({"grammar": grammar, "text": text}) + "\n")
        self.child.stdin.flush()
        return self._answer() is True

    def _answer(self) -> object:
        assert self.child is not None and self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, "the GBNF decoder died"
        return json.loads(line)

    def close(self) -> None:
        if self.child is not None:
            assert self.child.stdin is not None
            self.child.stdin.close()
            self.child.wait(timeout=30)


@lru_cache(maxsize=8)
def _matcher(grammar: str):
    llguidance = pytest.importorskip("llguidance", reason="llguidance is not installed: pip install llguidance")
    tokenizer = llguidance.LLTokenizer("byte")
    lark = llguidance.LLMatcher.grammar_from_lark(grammar)
    error = llguidance.LLMatcher.validate_grammar(lark, tokenizer)
    assert not error, error
    return llguidance.LLMatcher(tokenizer, lark, log_level=0), tokenizer


def _lark(grammar: str, text: str) -> bool:
    matcher, tokenizer = _matcher(grammar)
    matcher.reset()
    taken = matcher.try_consume_tokens(tokenizer.tokenize_str(text))
    return taken == len(text.encode()) and matcher.is_accepting()
