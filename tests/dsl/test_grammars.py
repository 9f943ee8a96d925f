"""The printed grammars accept what the parser and the checks of form accept: on real decoders, by mutation too."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from decoders import Decoders
from family import CHIPS, FAMILY
from hypothesis import HealthCheck, Phase, given, settings
from test_printer import programs

from dsl.check import errors
from dsl.diagnostics import ProgramError
from dsl.directives import DIRECTIVES
from dsl.grammars import CONTEXT_RULES, FORMATS, edit_grammar, grammar
from dsl.grammars.ebnf import read, used
from dsl.grammars.formats import gbnf_pattern, patterns, without
from dsl.grammars.refine import keywords, language
from dsl.hardware import hardware
from dsl.knobs import knobs, neighbours, set_knob
from dsl.parser import grammar_text, parse
from dsl.printer import print_program
from dsl.schedule_form import form

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.avo"))
GRAMMARS = {f: grammar(f) for f in FORMATS}


def plain(text):
    """Without comments, which the grammars do not speak."""
    return re.sub(r"[ ]*#.*", "", text)


@pytest.fixture(scope="module")
def decoders():
    found = Decoders()
    yield found
    found.close()


@pytest.fixture(params=FORMATS)
def accepts(request, decoders):
    return lambda text: decoders.accepts(request.param, GRAMMARS[request.param], text)


def verdict(text):
    """What the parser and the checks of form say; None where only a rule that no grammar has rejects."""
    try:
        program = parse(text)
    except ProgramError as e:
        found = {d.rule for d in e.diagnostics}
    else:
        wrong = list(form(program.schedule.pipeline, "pipeline", program, None))
        for block in program.schedule.blocks:
            wrong += form(block.directives, "kernel", program, None)
        found = {d.rule for d in wrong if d.severity == "error"}
    return not found or (None if found <= CONTEXT_RULES else False)


def agree(accepts, text):
    expected = verdict(text)
    assert expected is None or accepts(text) == expected, text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_accepted_as_written_and_as_printed(path, accepts):
    assert accepts(plain(path.read_text()))
    assert accepts(print_program(parse(path.read_text())))
    assert accepts(plain(path.read_text()).rstrip())


@pytest.fixture(scope="module")
def scheduled():
    """200 programs and more: every family on three chips, each time with other knobs set."""
    rng = random.Random(5)
    texts = set()
    for member in FAMILY.values():
        program = parse(member.text)
        for chip in rng.sample(CHIPS, 3):
            found = knobs(program, hardware(chip))
            for _ in range(12 if found else 0):
                edited = program
                for knob in rng.sample(found, rng.randint(1, len(found))):
                    edited = set_knob(edited, knob, rng.choice(knob.legal))
                texts.add(print_program(edited))
    return {t for t in texts if verdict(t)}  # `stream none` leaves stages of nothing


def test_two_hundred_programs_of_random_schedules_are_accepted(scheduled, accepts):
    assert len(scheduled) >= 200
    assert [t for t in scheduled if not accepts(t)] == []


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(program=programs)
def test_random_programs_are_accepted_where_the_parser_and_form_accept(decoders, program):
    for text in (print_program(program), print_program(program).split("\nschedule")[0]):
        for f in FORMATS:
            agree(lambda t, f=f: decoders.accepts(f, GRAMMARS[f], t), text)


ODD = (
    "(",
    ")",
    "[",
    "]",
    "=",
    "==",
    "\n",
    ",",
    " in ",
    "schedule",
    ":",
    "|",
    "-",
    "**",
    "1e",
    ".",
    "not ",
    "or",
    "and",
)
ODD += (" ", "2", "x", "quantize", "True", "A", "_", "tile ", "lazy(3)", "for ", "false")


def mutated(text, rng):
    for _ in range(rng.choice((1, 1, 2))):
        kind, at = rng.random(), rng.randrange(len(text))
        words = [m.span() for m in re.finditer(r"\w+|[^\w\s]|\s+", text)]
        (a, b), (c, d) = rng.choice(words), rng.choice(words)
        if kind < 0.3:
            text = text[:at] + text[at + rng.randint(1, 3) :]
        elif kind < 0.6:
            text = text[:at] + rng.choice(ODD) + text[at:]
        elif kind < 0.8:
            text = text[:a] + text[c:d] + text[b:]
        else:
            text = text[:a] + text[b:]
    return text


def test_mutated_programs_are_rejected_alike(decoders):
    rng = random.Random(17)
    texts = [plain(p.read_text()) for p in EXAMPLES]
    tried = {True: 0, False: 0, None: 0}
    for text in (mutated(rng.choice(texts), rng) for _ in range(150)):
        found = {decoders.accepts(f, GRAMMARS[f], text) for f in FORMATS}
        expected = verdict(text)
        assert len(found) == 1 and (expected is None or found == {expected}), text
        tried[expected] += 1
    assert tried[True] >= 15 and tried[False] >= 80


@pytest.mark.slow
def test_two_thousand_mutated_programs_are_rejected_alike(decoders):
    rng = random.Random(18)
    texts = [plain(t) for t in (*(p.read_text() for p in EXAMPLES), *(m.text for m in FAMILY.values()))]
    for text in (mutated(rng.choice(texts), rng) for _ in range(2000)):
        for f in FORMATS:
            agree(lambda t, f=f: decoders.accepts(f, GRAMMARS[f], t), text)


HEAD = "kernel f\nin x[m n] f32\nout y[m n] f32\n"


@pytest.mark.parametrize(
    "line, right",
    [
        ("y = not(x > 0)and(x < 1)or x > 2", True),
        ("y = (x +\n\n   1)", True),
        ("y = x +\n1", False),
        ("y = x[m,n] + x[(m)n] + x[m(n)] + x[m 1]", True),
        ("y = x[m 1n]", False),
        ("y = .5 * x + 1.", True),
        ("y = sum[in](x)", False),
        ("y = inf + forn + in_", True),
        ("  y = x\n\t\n  schedule\n   warps 4  \n  ", True),
        ("y = in", False),
        ("y = notx", True),
        ("y = x and.5 > x", True),
        ("y = m > n > 1", False),
        ("y = True", False),
        ("y = sum(x, axis=n)", False),
        ("y = quantize(x, int8)", False),
        ("q[m n], s[m] = quantize(x, int8, limit=3)", True),
        ("q[m n], s[m] = sum[n](x)", False),
        ("y[M n] = x", False),
        ("y float32 = x", False),
        ("param p int = 1.5\ny = x", False),
        ("param p f32 = -1.5\ny = x", True),
        ("rank r\nrank q\ny = x", False),
        ("y = x\nschedule\ntile m=2\nschedule a\nwarps 4\nschedule\nwarps 4", False),
        ("y = x\nschedule\ntile m=3", False),
        ("y = x\nschedule\nstream stages=2, n", True),
        ("y = x\nschedule\norder grouped(8)l2=8MiB\nwarps?", True),
        ("y = x\nschedule\nfor sm_90 b200: tile m=2 n=4, load tma", True),
        ("y = x\nschedule\nfor sm_91: load tma", False),
        ("y = x\nschedule a\nlaunch queue", False),
        ("y = x\nschedule\nlaunch queue\nkernels a | y\n\n\n  \nwarps 8", True),
        ("y = x\nschedule\nblocksize 8", False),
    ],
)
def test_what_is_easily_got_wrong(line, right, accepts):
    assert verdict(HEAD + line) in (right, None)
    assert accepts(HEAD + line) == right


def test_the_lark_form_stays_in_the_subset_that_openai_takes():
    text = GRAMMARS["lark"]
    assert not any(mark in text for mark in ("(?", "\\b", "%import", "%declare", "%ignore", "~", "*?", "+?"))
    names = [line.partition(":")[0] for line in text.splitlines() if re.match(r"\w+:", line)]
    assert len(names) == len(set(names)) and not any("." in n or "{" in n for n in names)
    assert len(text) < 22_000


def test_the_gbnf_form_has_no_left_recursion_and_only_plain_names():
    rules = dict(re.findall(r"^([a-z0-9-]+) ::= (.*(?:\n    .*)*)", GRAMMARS["gbnf"], re.M))
    assert "root" in rules and all(re.fullmatch("[a-z][a-z0-9-]*", name) for name in rules)
    for name, body in rules.items():
        assert not re.match(rf"[( ]*{name}(?![a-z0-9-])", body), name


def test_every_rule_of_the_parser_and_every_directive_is_there():
    whole = used(language(), "program")
    flat = {"_or", "_and", "_sum", "_product", "_comparison", "_signed", "_not", "_expr", "_atom", "_literal", "_index"}
    lines = {"algorithm_line", "schedule_line", "_declaration", "directive", "item", "_value", "amount", "word"}
    replaced = flat | lines | {"word_argument", "block", "block_head", "targets", "keyword", "_argument", "default"}
    gone = set(read(grammar_text())[0]) - set(whole) - replaced
    assert gone - {"or", "and", "add", "multiply"} == set()
    assert set(DIRECTIVES) <= set(whole)


def test_names_are_the_complement_of_the_keywords():
    words = keywords()
    name = re.compile(without(words))
    rng = random.Random(3)
    assert {"kernel", "in", "inf", "not", "schedule", "kernels"} <= set(words)
    for word in words:
        assert not name.fullmatch(word)
        for other in (word[:-1], f"{word}_", f"{word}1", f"{word}s", f"_{word}", word.title()):
            assert bool(name.fullmatch(other)) == (other not in words and other != ""), other
    for _ in range(2000):
        other = "".join(rng.choice("inforaxst_1K") for _ in range(rng.randint(1, 6)))
        assert bool(name.fullmatch(other)) == (bool(re.fullmatch(r"[A-Za-z_]\w*", other)) and other not in words)


def test_the_two_kinds_of_float_are_the_parsers():
    _, terminals = read(grammar_text())
    both, own = re.compile(f"{patterns()['FLOAT']}|{patterns()['DOTTED']}"), re.compile(terminals["FLOAT"])
    rng = random.Random(4)
    for _ in range(5000):
        text = "".join(rng.choice("019.eE+-") for _ in range(rng.randint(1, 7)))
        assert bool(both.fullmatch(text)) == bool(own.fullmatch(text)), text


def test_a_pattern_in_gbnf():
    assert gbnf_pattern("[0-9]+\\.x{1,3}|(a)?") == '[0-9]+ "." "x"{1,3} | ( "a" )?'


# Edits of one program ---------------------------------------------------------------------------------------------

EDITED = [(name, chip) for name in ("attention", "gemm", "numa_attention") for chip in CHIPS] + [("sage2pp", "h200")]


@pytest.mark.parametrize("name, chip", EDITED)
def test_every_legal_edit_is_accepted_and_nothing_that_the_chip_lacks(name, chip, decoders):
    program, hw = parse((EXAMPLES[0].parent / f"{name}.avo").read_text()), hardware(chip)
    made = {f: edit_grammar(program, hw, f) for f in FORMATS}
    texts = {print_program(program)}
    for knob in knobs(program, hw):
        texts |= {print_program(set_knob(program, knob, v)) for v in neighbours(knob)}
    texts = {t for t in texts if not errors(parse(t), hw)}  # two of the programs load by TMA, whatever the chip
    for f in FORMATS:
        assert [t for t in texts if not decoders.accepts(f, made[f], t)] == []
        lacking = "waves_per_eu 2" if hw.vendor == "nvidia" else "roles load=1"
        bare = print_program(program).split("\nfor ")[0].rstrip("\n")
        for wrong in (f"{bare}\n{lacking}\n", bare.replace("tile", "tile zz=64"), bare.replace("bf16", "f16", 1)):
            assert wrong == bare or not decoders.accepts(f, made[f], wrong), wrong


def test_what_the_chip_lacks_is_offered_only_where_a_for_line_overrides_it():
    program = parse((EXAMPLES[0].parent / "attention.avo").read_text())
    assert '"load" " " "pointer"' in edit_grammar(program, hardware("a100"), "lark")
    amd = edit_grammar(program, hardware("mi300x"), "lark")
    assert '"tma"' in amd and '"for gfx942 gfx950: "' in amd and "sm_90" not in amd


def test_two_edits_at_once_that_fit_only_together_are_accepted(decoders):
    text = EXAMPLES[[p.stem for p in EXAMPLES].index("gemm")].read_text()
    program, hw = parse(text), hardware("b200")
    wide = text.replace("tile m=128 n=256 k=64", "tile m=64 n=64 k=64").replace("stages=4", "stages=6")
    edited = parse(wide)
    assert errors(edited, hw) == []
    for f in FORMATS:
        assert decoders.accepts(f, edit_grammar(program, hw, f), print_program(edited))
