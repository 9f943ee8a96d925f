"""The canonical text: parse then print is the identity, for whole random programs too."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl import directives
from dsl.parser import parse
from dsl.printer import DIRECTIVES, LANGUAGE_VERSION, canonical, digest, print_expr, print_program
from dsl.syntax import (
    Algorithm,
    AxisDecl,
    AxisIn,
    Binary,
    Block,
    Bool,
    Call,
    Directive,
    Item,
    Name,
    Number,
    Param,
    Program,
    Read,
    Schedule,
    Statement,
    Tensor,
    Unary,
    Word,
)

# Names that come near keywords, directives, functions, dtypes and numbers.
names = st.sampled_from(
    [
        "a",
        "b",
        "h",
        "m",
        "n",
        "d",
        "nb",
        "x1",
        "q8",
        "_",
        "__x",
        "in_",
        "inn",
        "forn",
        "kernel_",
        "axis2",
        "tile",
        "warps",
        "l2",
        "sum",
        "quantise",
        "bf16",
        "e4m3",
        "e5",
        "int8",
        "infx",
        "true1",
    ]
)
capitals = st.sampled_from(["A", "H", "M2", "NB", "INF"])
whole = st.integers(0, 10**17)
numbers = st.one_of(whole, st.floats(0, allow_nan=False, allow_infinity=True)).map(lambda v: Number(v + 0))
axes = st.lists(names, max_size=4).map(tuple)
DTYPES = ("f32", "f16", "bf16", "e4m3", "e5m2", "int8", "i32", "bool", "mxfp4", "nvfp4")
dtypes = st.sampled_from(DTYPES)


def composed(inner):
    index = st.one_of(names.map(Name), whole.map(Number), inner)
    brackets = st.lists(st.builds(AxisIn, names, st.none() | names), min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Unary, st.sampled_from(["-", "not"]), inner),
        st.builds(
            Binary,
            st.sampled_from(["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"]),
            inner,
            inner,
        ),
        st.builds(Read, names, st.lists(index, min_size=1, max_size=4).map(tuple)),
        st.builds(Call, names, st.none() | brackets, st.lists(inner, max_size=3).map(tuple)),
    )


expressions = st.recursive(st.one_of(numbers, st.booleans().map(Bool), names.map(Name), capitals.map(Name)), composed)
tensors = st.builds(Tensor, names, st.none() | axes, st.none() | dtypes)
inputs = st.builds(Tensor, names, axes, dtypes)
coarse = st.builds(AxisDecl, names, names, st.one_of(whole.map(Number), capitals.map(Name)))
free = st.builds(AxisDecl, names, st.none(), st.one_of(whole.map(Number), capitals.map(Name)))
# One namespace: a param is never the axis that another lies over.
param_names = names.map("p_{}".format)
params = st.one_of(
    st.builds(Param, param_names, st.just("bool"), st.none() | st.booleans()),
    st.builds(Param, param_names, st.just("int"), st.none() | st.integers(-(10**17), 10**17)),
    st.builds(Param, param_names, st.just("f32"), st.none() | st.floats(allow_nan=False).map(lambda v: v + 0.0)),
)
plain = st.builds(lambda t, e: Statement((t,), e), tensors, expressions)
quantized = st.builds(
    lambda q, s, e, limit: Statement((q, s), Call("quantize", None, (e, Name("int8")), limit)),
    tensors,
    tensors,
    expressions,
    st.just(()) | st.builds(lambda e: (("limit", e),), expressions),
)
words = st.one_of(
    st.builds(Word, names, st.lists(whole | names, max_size=2).map(tuple)), st.just(Word("?")), names.map(Word)
)
items = st.builds(Item, st.none() | names | st.just("l2"), whole | words)
pipeline = st.builds(Directive, st.sampled_from(["launch", "comm"]), st.lists(items, max_size=3).map(tuple))
any_directive = st.builds(
    Directive,
    st.sampled_from([d for d in DIRECTIVES if d not in ("launch", "comm")]) | names,
    st.lists(items, max_size=4).map(tuple),
    st.just(()) | st.lists(names, min_size=1, max_size=3).map(tuple),
)
groups = st.lists(names, min_size=1, max_size=3).map(tuple)
blocks = st.lists(
    st.builds(Block, st.just(()) | groups, st.lists(any_directive, max_size=6).map(tuple)),
    max_size=3,
    unique_by=lambda b: b.writes,
).map(tuple)
programs = st.builds(
    Program,
    st.builds(
        Algorithm,
        names,
        st.none() | names,
        st.lists(inputs, max_size=3).map(tuple),
        st.lists(tensors, max_size=2).map(tuple),
        st.lists(coarse | free, max_size=3).map(tuple),
        st.lists(params, max_size=3).map(tuple),
        st.lists(plain | quantized, max_size=4).map(tuple),
    ),
    st.builds(Schedule, st.lists(groups, max_size=3).map(tuple), st.lists(pipeline, max_size=2).map(tuple), blocks),
)


@settings(max_examples=100, deadline=None)
@given(programs)
def test_parse_undoes_print(program):
    text = print_program(program)
    found = parse(text)
    assert found == canonical(program)
    assert repr(found) == repr(canonical(program))  # 1 and 1.0 are equal, their texts are not
    assert print_program(found) == text
    assert digest(found) == digest(program)


@settings(max_examples=150, deadline=None)
@given(expressions)
def test_no_parenthesis_is_superfluous(e):
    text = print_expr(e)
    head = "kernel f\nout y f32\ny = "
    for i, c in enumerate(text):
        if c == "(" and (i == 0 or not (text[i - 1].isalnum() or text[i - 1] in "_]")):
            close = _closing(text, i)
            without = text[:i] + " " + text[i + 1 : close] + " " + text[close + 1 :]
            try:
                other = parse(head + without).algorithm.statements[0].value
            except Exception:
                continue
            assert other != e, (text, without)


def _closing(text, start):
    depth = 0
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise AssertionError(text)


@pytest.mark.parametrize(
    "text",
    [
        "(a + b) * c",
        "a - (b - c)",
        "a / (b * c)",
        "-(a + b)",
        "-a * b",
        "not (a and b)",
        "not a == b",
        "(a == b) == c",
        "(not a) + b",
        "where(not causal or m >= n, s, -inf)",
        "x[b s h (d - D // 2)]",
        "sum[m h in g](p * go)",
        "quantize(v, e4m3, limit=2.25)",
        "1e-06 + 1e+20 + 0.5",
    ],
)
def test_expressions_print_as_written(text):
    assert (
        print_expr(
            parse(f"kernel f\nout y f32\n{'y, z' if 'quantize' in text else 'y'} = {text}")
            .algorithm.statements[0]
            .value
        )
        == text
    )


UGLY = """
kernel   f   # comments go
param  causal bool=true
axis nb=n//64
out y[m]f32
in x[m,n] bf16
rank r
y=sum[n](  (x) )
schedule y
for b200: warps 8, tile m=64
warps 4
tile m=128, n=64
schedule
order longest_first l2=8388608
kernels s|y
comm s engine=copy
for gfx942: load pointer
tile m = 1
for gfx942: tile m = 2
"""
NEAT = """kernel f
rank r
in  x[m n] bf16
out y[m] f32
axis nb = n // 64
param causal bool = true
y = sum[n](x)

schedule
kernels s | y
comm s engine=copy
tile m=1
order longest_first l2=8MiB
for gfx942: tile m=2, load pointer

schedule y
tile m=128 n=64
warps 4
for b200: tile m=64, warps 8
"""


def test_one_style():
    assert print_program(parse(UGLY)) == NEAT


def test_digest_names_the_canonical_text():
    program = parse(UGLY)
    assert digest(program) == digest(parse(NEAT)) == "1e255dc7282f7cfa"
    assert digest(program) != digest(parse(NEAT.replace("n=64", "n=32")))
    assert LANGUAGE_VERSION == 1


def test_directives_built_in_any_order_print_alike():
    program = parse(NEAT)
    (first, *rest) = program.schedule.blocks
    turned = Block(first.writes, first.directives[::-1])
    other = replace(program, schedule=replace(program.schedule, blocks=(*rest, turned)))
    assert other != program and canonical(other) == program and digest(other) == digest(program)


def test_numbers():
    assert [print_expr(Number(v)) for v in (1, 1.0, 0.1, 1e300, math.inf)] == ["1", "1.0", "0.1", "1e+300", "inf"]


def test_printed_order_is_that_of_the_knob_table():
    assert tuple(directives.DIRECTIVES) == DIRECTIVES
