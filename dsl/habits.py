"""Forms that people and models write by habit, each with the form that the language has instead.

Looked for only in a line that does not parse, so that a pattern need not be exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Fix = str | Callable[[re.Match[str]], str]


@dataclass(frozen=True)
class Habit:
    """`found` marks the place; `{0}` in `message` is what stands there. `fix` is the right form.

    `exact`: the fix takes the place of what was found, as it stands. `repair`: what does, where the fix is no such
    text; None where it depends on more than the place.
    """

    found: re.Pattern[str]
    message: str
    fix: Fix
    half: str = "both"  # algorithm, schedule, both
    exact: bool = False
    repair: Callable[[re.Match[str]], str | None] | None = None

    def advice(self, match: re.Match[str]) -> str:
        return self.fix if isinstance(self.fix, str) else self.fix(match)

    def mended(self, match: re.Match[str]) -> str | None:
        """What takes the place of what was found; None where a person has to decide."""
        if self.repair is not None:
            return self.repair(match)
        return self.advice(match) if self.exact else None


def _power(m: re.Match[str]) -> str:
    base, exponent = m[1], m[2]
    if base == ")":
        base = "x"
    known = {"2": f"{base} * {base}", "3": f"{base} * {base} * {base}", "0.5": f"sqrt({base})", ".5": f"sqrt({base})"}
    known |= {"-1": f"1 / {base}", "-0.5": f"rsqrt({base})", "-.5": f"rsqrt({base})"}
    return known.get(exponent, f"exp2({exponent} * log2({base}))")


def _choice(m: re.Match[str]) -> str:
    parts = [m[2].strip(), m[1].strip(), m[3].strip()]
    if any(p.count("(") != p.count(")") for p in parts):
        return "where(condition, x, y)"
    return f"where({', '.join(parts)})"


def _where(m: re.Match[str]) -> str | None:
    found = _choice(m)
    return None if found == "where(condition, x, y)" else found


def _index(m: re.Match[str]) -> str:
    inside = m[2]
    if "," in inside:
        parts = [p.strip() for p in inside.split(",")]
        return f"{m[1]}[{' '.join(p if re.fullmatch(r'[A-Za-z_0-9]+', p) else f'({_spaced(p)})' for p in parts)}]"
    operator = r"\s*(//|[-+*/%])\s*"
    spaced = re.sub(r"([\w.]+)((?:" + operator + r"[\w.]+)+)", lambda e: f"({_spaced(e[0])})", inside)
    return f"{m[1]}[{spaced.strip()}]"


def _spaced(e: str) -> str:
    return re.sub(r"\s*(//|[-+*/%])\s*", r" \1 ", e)


def _increment(m: re.Match[str]) -> str:
    return "name the new value, or reduce: acc[m n] = sum[k](a * b)"


def _module(m: re.Match[str]) -> str:
    known = {
        "sum": "sum[n](x)",
        "max": "max[n](x)",
        "min": "min[n](x)",
        "mean": "mean[n](x)",
        "softmax": "softmax[n](x)",
    }
    known |= {"dot": "sum[k](a * b)", "matmul": "sum[k](a * b)", "einsum": "sum[k](a * b)", "bmm": "sum[k](a * b)"}
    known |= {
        "maximum": "max(x, y)",
        "minimum": "min(x, y)",
        "where": "where(condition, x, y)",
        "arange": "the axis itself",
    }
    known |= {"inf": "inf", "load": "the tensor's name", "store": "assign the output"}
    return known.get(m[2], f"{m[2]}(x)")


def _method(m: re.Match[str]) -> str:
    name = m[1]
    known = {"sum": f"sum[n]({name})", "max": f"max[n]({name})", "min": f"min[n]({name})", "mean": f"mean[n]({name})"}
    known |= {
        "T": f"{name}: axes have names, so nothing is transposed",
        "mT": known["sum"],
        "shape": "the axis in capitals",
    }
    known |= {"softmax": f"softmax[n]({name})", "float": f"f32({name})", "half": f"f16({name})", "to": f"bf16({name})"}
    known |= {"transpose": f"{name}: axes have names, so nothing is transposed", "size": "the axis in capitals"}
    return known.get(m[2], f"{m[2]}({name})")


_PYTHON = r"(import|from|def|class|return|if|elif|else|while|print|assert|with|lambda|try|pass|async|del|global|yield)"

_TYPOGRAPHY = {
    "≥": ">=",
    "≤": "<=",
    "≠": "!=",
    "×": "*",
    "·": "*",
    "∙": "*",
    "⋅": "*",
    "÷": "/",
    "−": "-",
    "–": "-",
    "—": "-",
    "∞": "inf",
    "∑": "sum[n](x)",
    "Σ": "sum[n](x)",
    "√": "sqrt(x)",
    "∧": "and",
    "∨": "or",
    "¬": "not",
    "∈": "in",
    "π": "3.141592653589793",
    "²": "x * x",
    "←": "=",
    "→": "=",
    "\u00a0": "a plain blank",
    "\u3000": "a plain blank",
    "（": "(",
    "）": ")",
    "，": ",",
    "：": ":",
    "＝": "=",
}

_EACH = "(" + "|".join(map(re.escape, _TYPOGRAPHY)) + ")"


def _habit(
    found: str,
    message: str,
    fix: Fix,
    half: str = "both",
    exact: bool = False,
    repair: Callable[[re.Match[str]], str | None] | None = None,
) -> Habit:
    return Habit(re.compile(found), message, fix, half, exact, repair)


def _plainly(m: re.Match[str]) -> str | None:
    """A character's own form, unless it stands for a function of something."""
    plain = {"²": None, "√": None, "∑": None, "Σ": None, "\u00a0": " ", "\u3000": " "}
    return plain.get(m[0], _TYPOGRAPHY[m[0]])


def _unless(inexact: Callable[[re.Match[str]], bool], fix: Callable[[re.Match[str]], str]) -> Any:
    return lambda m: None if inexact(m) else fix(m)


def _bare(m: re.Match[str]) -> str | None:
    """`np.exp` is `exp`; what is no function of one value alone needs its axis."""
    return m[2] if _module(m) == f"{m[2]}(x)" else None


def _low_bits(m: re.Match[str]) -> str:
    """A mask of the lowest bits is a rest."""
    mask = int(m[1], 0) if m[1][:2] in ("0x", "0X") else int(m[1])
    return f"% {mask + 1}" if mask & (mask + 1) == 0 else "x // 16 % 16 for four bits of x"


_ASSIGNED = r"[A-Za-z_]\w*(?:\[[^\]]*\])?"

# Earlier ones win where two match at one place.
HABITS = (
    _habit(_EACH, "`{0}` is not a character of the language", lambda m: _TYPOGRAPHY[m[0]], repair=_plainly),
    _habit(r"(^\s*(//|--)|/\*).*", "comments start with `#`", "# text"),
    _habit(r"^\s*@\w[\w.]*", "there are no decorators", "kernel NAME"),
    _habit(
        r"^\s*" + _PYTHON + r"\b.*", "this is Python; a program has no statements but `name[axes] = expression`", ""
    ),
    _habit(
        r"^\s*for\s+\w+\s+in\s+[^:]*(range|\().*",
        "there are no loops",
        "name axes: sum[k](a * b) runs over k",
        "algorithm",
    ),
    _habit(r"(^|\s)(let|var|auto)\s+(?=\w)", "names are not declared", "name[axes] = expression", "algorithm"),
    _habit(
        r"\b([A-Za-z_]\w*)\[\s*(?:axis|axes|dim)\s*=\s*(\w+)\s*\]",
        "`{0}`: the bracket of a reduction holds the axis alone",
        lambda m: f"{m[1]}[{m[2]}](x)",
    ),
    _habit(
        r"\b(np|numpy|torch|tl|triton|math|F|jnp|jax|nn|functional)\.(?:\w+\.)*(\w+)",
        "`{0}`: functions belong to no module",
        _module,
        repair=_bare,
    ),
    _habit(r"\b([A-Za-z_]\w*)\.([A-Za-z_]\w*)", "`{0}`: there are no attributes and no methods", _method),
    _habit(
        r"\b([A-Za-z_]\w*)\((.*?),\s*(?:axis|axes|dim|dims)\s*=\s*\(?([^),]+)\)?[^)]*\)",
        "`{0}`: the axis of a reduction stands in brackets",
        lambda m: f"{m[1]}[{m[3].strip()}]({m[2].strip()})",
        repair=_unless(
            lambda m: m[2].count("(") != m[2].count(")"), lambda m: f"{m[1]}[{m[3].strip()}]({m[2].strip()})"
        ),
    ),
    _habit(
        r"(\w+|\))\s*\*\*\s*(-?[\w.]+|\()",
        "`**` is no operator",
        _power,
        repair=_unless(lambda m: m[1] == ")" or m[2] == "(", _power),
    ),
    _habit(
        r"([A-Za-z_]\w*|\))\s*@\s*([A-Za-z_]\w*|\()",
        "`@` is no operator: a contraction names the axis that it sums over",
        lambda m: f"sum[k]({m[1] if m[1] != ')' else 'a'} * {m[2] if m[2] != '(' else 'b'})",
    ),
    _habit(
        r"(?<==)([^=]*?)\bif\b(.+?)\belse\b(.+)$", "`x if c else y` is not an expression here", _choice, repair=_where
    ),
    _habit(
        r"(?:(?<==)|(?<=[(,]))([^=(,]*?)\bif\b(.*?)\belse\b([^,]*)",
        "`x if c else y` is not an expression here",
        _choice,
        repair=_where,
    ),
    _habit(
        r"([^=(,?]+)\?([^:]+):([^,)]+)",
        "`c ? x : y` is not an expression here",
        lambda m: f"where({m[1].strip()}, {m[2].strip()}, {m[3].strip()})",
        "algorithm",
    ),
    _habit(r"&\s*(0[xX][0-9a-fA-F]+|\d+)", "`&` is no operator", _low_bits, repair=_low_bits),
    _habit(r"&&?", "`{0}` is no operator", "and", exact=True),
    _habit(r"\|\|", "`||` is no operator", "or", exact=True),
    _habit(r"\|", "`|` is no operator", "or", "algorithm", exact=True),
    _habit(r"!(?!=)\s*(\w*)", "`!` is no operator", lambda m: f"not {m[1] or 'x'}", repair=lambda m: f"not {m[1]}"),
    _habit(r"~\s*(\w*)", "`~` is no operator", lambda m: f"not {m[1] or 'x'}", repair=lambda m: f"not {m[1]}"),
    _habit(r"\^\s*(\w*)", "`^` is no operator", "x * x for a power; x != y for exclusive or"),
    _habit(r"\blambda\b.*", "there are no functions of one's own", "write the expression where it is used"),
    _habit(r"<>", "`<>` is no operator", "!=", exact=True),
    _habit(
        r"(<<|>>)\s*(\d\d?)\b",
        "`{1}` is no operator",
        lambda m: f"{'*' if m[1] == '<<' else '//'} {2 ** int(m[2])}",
        exact=True,
    ),
    _habit(r"<<|>>", "`{0}` is no operator", "x * 2 or x // 2"),
    _habit(r"(//|[-+*/%])=", "`{0}`: every name is assigned once", _increment, "algorithm"),
    _habit(r":=|<-", "`{0}` does not assign", "=", "algorithm", exact=True),
    _habit(r"->|=>", "`{0}` is not part of the language", "name[axes] dtype = expression"),
    _habit(
        r"\bfloat\(\s*([\"'])-?inf(inity)?\1\s*\)|([\"'])-?inf(inity)?\3", "there are no strings", "inf", exact=True
    ),
    _habit(r"\"[^\"]*\"?|'[^']*'?", "there are no strings", "a name or a number"),
    _habit(
        r"\bis\s+(not\s+)?None\b|[!=]=\s*None\b", "there is no None", "a `param NAME bool` that says whether it applies"
    ),
    _habit(
        r"\b([A-Za-z_]\w*)\[[^\]]*:[^\]]*\]",
        "`{0}`: there are no slices",
        lambda m: f"named axes broadcast by themselves; {m[1]}[b (m + 1)] reads by position",
    ),
    _habit(r"\.\.\.", "there is no ellipsis", "write every axis"),
    _habit(r"[{}]", "there are no braces", "one statement a line; parentheses group"),
    _habit(r";\s*", "`;` separates nothing", "one statement a line", repair=lambda m: "\n"),
    _habit(r"\\\s*$", "a line is not continued by a backslash", "break it inside parentheses"),
    _habit(
        r"\b([A-Za-z_]\w*)\[([^\][()=|]*[-+*/%][^\][()=|]*)\]",
        "`{0}`: an index that is no plain axis stands in parentheses",
        _index,
        exact=True,
    ),
    _habit(r"^\s*" + _ASSIGNED + r"(?:\s+\w+)?\s*(==)(?!=)", "`==` compares", "="),
    _habit(
        r"^\s*(?:in|out)\s+(f32|f16|bf16|e4m3|e5m2|int8|i32|bool)\s+(\w+\[[^\]]*\])",
        "the dtype stands after the brackets",
        lambda m: f"{m[2]} {m[1]}",
    ),
    _habit(
        r"^\s*(f32|f16|bf16|e4m3|e5m2|int8|i32|bool|float|int|double|half)\s+(\w+(?:\[[^\]]*\])?)\s*=",
        "the dtype stands after the brackets",
        lambda m: f"{m[2]} {m[1]} = ...",
        "algorithm",
    ),
    _habit(
        r"(?:^\s*(?:in|out)\s+|^\s*|,\s*)(\w+)\s+(f32|f16|bf16|e4m3|e5m2|int8|i32|bool)\s*\[([^\]]*)\]",
        "the dtype stands after the brackets",
        lambda m: f"{m[1]}[{m[3]}] {m[2]}",
        "algorithm",
    ),
    _habit(
        r"(?:^\s*(?:in|out)\s+|,\s*)(\w+)\s*:\s*(\w+)(?:\[([^\]]*)\])?",
        "no colon stands after a name",
        lambda m: f"{m[1]}[{m[3] or 'm n'}] {m[2]}",
        "algorithm",
    ),
    _habit(
        r"(\w+)\[([^\]]*)\]\s*:\s*(\w+)",
        "`{0}`: no colon stands before a dtype",
        lambda m: f"{m[1]}[{m[2]}] {m[3]}",
        "algorithm",
        exact=True,
    ),
    _habit(
        r"^\s*kernel\s+(\w+)\s*\(.*",
        "a kernel has no parameter list",
        lambda m: f"kernel {m[1]}, then `in` and `out` lines",
    ),
    _habit(
        r"^\s*(kernel|rank|in|out|axis|param|schedule|kernels)\b[^:]*(:)\s*$",
        "a line does not end in a colon",
        "leave it out",
        repair=lambda m: m[0].strip()[:-1].rstrip(),
    ),
    _habit(
        r"^\s*(in|out|axis|param|schedule|kernels|tile|grid|stream|order|load|warps)\s*(:)",
        "no colon stands after `{1}`",
        lambda m: f"{m[1]} ...",
        repair=lambda m: m[1],
    ),
    _habit(
        r",\s*$", "a line does not end in a comma", "go on in the same line, or start the next with `in` or `out` again"
    ),
    _habit(
        r"^\s*num_warps\s*=\s*(\d+)", "`num_warps` is no directive", lambda m: f"warps {m[1]}", "schedule", exact=True
    ),
    _habit(
        r"^\s*num_stages\s*=\s*(\d+)", "`num_stages` is no directive", lambda m: f"stream n stages={m[1]}", "schedule"
    ),
    _habit(
        r"^\s*BLOCK(?:_SIZE)?_(\w)\w*\s*=\s*(\d+)",
        "`{0}`: block lengths stand in the `tile` line",
        lambda m: f"tile {m[1].lower()}={m[2]}",
        "schedule",
    ),
    _habit(
        r"^\s*(warps|waves_per_eu|matrix_instr|load|split|rescale|exponent|grid|order|swizzle|stream|skip|launch)\s*=\s*(\w*)",
        "`{0}`: no `=` stands after the name of a directive",
        lambda m: f"{m[1]} {m[2]}".strip(),
        "schedule",
        exact=True,
    ),
    _habit(
        r"^\s*(tile|grid|stream|order|load|warps|split|rescale|exponent|swizzle|stages)\s*\(([^)]*)\)",
        "`{0}`: a directive takes no parentheses",
        lambda m: f"{m[1]} {' '.join(m[2].replace(',', ' ').split())}",
        "schedule",
        exact=True,
    ),
    _habit(
        r"\b(\w+)\s*:\s*(\d+|all)\b",
        "`{0}`: a key is set by `=`",
        lambda m: f"{m[1]}={m[2]}",
        "schedule",
        exact=True,
    ),
)


# Functions of other languages: what there is instead. A name in backticks takes the same arguments.
_PRODUCT = "sum[k](a * b)"
_CHANCE = "the language has no random numbers; let the mask be an input"
_TURNED = "axes have names: nothing is turned or reshaped"
_RANKED = "topk[n](x, k) marks the k largest; nothing is sorted"
FUNCTIONS_ELSEWHERE = {
    "amax": "`max`", "amin": "`min`", "maximum": "`max`", "minimum": "`min`", "swish": "`silu`", "cumsum": "`runsum`",
    "cummax": "`runmax`", "clip": "`clamp`", "fabs": "`abs`", "logistic": "`sigmoid`", "select": "`where`",
    "argmin": "argmax[n](-x)", "var": "mean[c](z * z), with z[r c] = x - mean[c](x)", "sort": _RANKED,
    "argsort": _RANKED, "std": "sqrt(mean[c](z * z)), with z[r c] = x - mean[c](x)", "norm": "sqrt(sum[c](x * x))",
    "logsumexp": "z + log(sum[n](exp(x - z))), with z[m] = max[n](x)",
    "log_softmax": "x - z - log(sum[n](exp(x - z))), with z[m] = max[n](x)",
    "cumprod": "exp(runsum[n](log(x)))", "runprod": "exp(runsum[n](log(x)))", "pow": "x * x, or exp2(a * log2(x))",
    "power": "x * x, or exp2(a * log2(x))", "square": "x * x", "reciprocal": "1 / x", "log1p": "log(1 + x)",
    "expm1": "exp(x) - 1", "ceil": "-floor(-x)", "round": "floor(x + 0.5)",
    "trunc": "where(x < 0, -floor(-x), floor(x))",
    "sign": "where(x > 0, 1.0, where(x < 0, -1.0, 0.0))", "dot": _PRODUCT, "matmul": _PRODUCT, "mm": _PRODUCT,
    "bmm": _PRODUCT, "einsum": _PRODUCT, "transpose": _TURNED, "permute": _TURNED, "reshape": _TURNED, "view": _TURNED,
    "trans": _TURNED, "arange": "the axis itself: n is the index", "gather": "table[id c] reads by position",
    "scatter": "sum[t](where(id == v, x, 0.0)): a result is read together, never written by position",
    "scatter_add": "sum[t](where(id == v, x, 0.0)): a result is read together, never written by position",
    **dict.fromkeys(("dropout", "rand", "randn", "random", "bernoulli"), _CHANCE),
}  # fmt: skip

# What the first word of a line was meant to be.
KEYWORDS = ("kernel", "rank", "in", "out", "axis", "param", "schedule")
MEANT = {
    "input": "in",
    "inputs": "in",
    "arg": "in",
    "args": "in",
    "output": "out",
    "outputs": "out",
    "returns": "out",
    "axes": "axis",
    "dim": "axis",
    "dims": "axis",
    "block": "axis",
    "const": "param",
    "constexpr": "param",
    "params": "param",
    "parameter": "param",
    "parameters": "param",
    "func": "kernel",
    "function": "kernel",
    "fn": "kernel",
    "program": "kernel",
    "ranks": "rank",
    "world": "rank",
    "schedules": "schedule",
    "sched": "schedule",
}
