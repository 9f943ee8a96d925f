"""Whose work it is: the steps of a call, played where the candidate has never been."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from dsl.hardware import hardware
from evaluators.evaluation import Status
from evaluators.integrity.mixing import Mixing
from evaluators.integrity.proving import PROVED
from evaluators.integrity.raw import RawEvaluator
from evaluators.integrity.tape import NotTaped, Player, Recorder
from evaluators.integrity.watching import is_glue
from evaluators.pool import Session
from evaluators.targets import target

HERE = Path(__file__).parent
CPU = hardware("cpu")
SOFTMAX = target("softmax")

# It hides what it asks of torch from those who watch, and its kernel is needed: it copies the answer.
HIDDEN = """
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def run(x):
    answer = torch.softmax(x.float(), -1).to(x.dtype)
    sys.modules["evaluators.integrity.child"]._State.calls.found.clear()
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 1024),)](answer, y, x.numel(), BLOCK=1024)
    return y
"""


@pytest.fixture(scope="module")
def judge():
    with RawEvaluator(seed=5) as one:
        yield one


def work(found):
    return found.gate("integrity").evidence["work"]


@pytest.mark.slow  # the interpreter runs 4,000 programs twice
def test_what_is_long_is_interpreted_twice_before_a_promotion_and_its_work_proved(judge, monkeypatch):
    runs = []
    call = Session.call

    def counted(self, task, payload, *rest, **more):
        if task in ("raw_run", "raw_tape") and not payload.get("ghost"):
            runs.append(payload["inputs"][0]["shape"][0])
        return call(self, task, payload, *rest, **more)

    monkeypatch.setattr(Session, "call", counted)
    found = judge.promote((HERE / "honest" / "triton_rows.py").read_text(), SOFTMAX, CPU)
    assert found.status is Status.OK and work(found) == PROVED, found.message
    assert sum(rows > 1000 for rows in runs) == 2


@pytest.mark.parametrize(
    "name", ["triton_rows", "counter_reset", "two_kernels", "small_bookkeeping", "splits_combined"]
)
def test_the_work_of_honest_kernels_is_proved(judge, name):
    found = judge.evaluate((HERE / "honest" / f"{name}.py").read_text(), SOFTMAX, CPU)
    assert found.status is Status.OK and work(found) == PROVED, found.message or work(found)
    assert found.gate("integrity").evidence["ghost"] == "wrong"


@pytest.mark.parametrize("name", ["dtype_argument", "library_functions", "tables_and_views"])
def test_what_a_kernel_may_name_and_what_is_made_as_the_file_loads(judge, name):
    found = judge.evaluate((HERE / "honest" / f"{name}.py").read_text(), target("rmsnorm"), CPU)
    assert found.status is Status.OK and work(found) == PROVED, found.message or work(found)


def test_who_hides_a_library_call_is_not_proved_and_not_promoted(judge):
    found = judge.evaluate(HIDDEN, SOFTMAX, CPU)
    assert found.status is Status.OK, found.message  # what it hides is hidden
    assert "not proved" in work(found) and "no glue" in work(found)
    with RawEvaluator(seed=6, accept="process") as other:
        again = other.promote(HIDDEN, SOFTMAX, CPU)
    assert again.status is Status.SUSPICIOUS and "a person has to look" in again.message


# Torch computes what is judged, and the kernel that is told of is another.
OTHER = (
    HIDDEN.replace("def run(x):", "def run(x):\n    child = sys.modules['evaluators.integrity.child']._State")
    .replace("    y = torch.empty", "    child.launches.count += 1\n    y = torch.empty")
    .replace("    answer = torch", "    if told(child.launches):\n        return kernel(x)\n    answer = torch")
    .replace("    copy[", "    return answer\n    copy[")
    + """

@triton.jit
def rows(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
    e = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + at, (e / tl.sum(e, 0)).to(tl.bfloat16), mask=at < columns)


def told(launches):
    return launches.recorder is not None or launches.ghost


def kernel(x):
    y = torch.empty_like(x)
    rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""
)


def test_steps_that_are_told_of_have_to_give_the_bits_that_were_judged():
    with RawEvaluator(seed=6, accept="process") as one:
        found = one.promote(OTHER, SOFTMAX, CPU)
    assert "other bits than it returned" in work(found) and found.status is not Status.OK, found.message


def test_a_decoy_is_seen_where_it_cannot_see_us(judge):
    job = replace(target("softmax"), name="plain")
    text = HIDDEN.replace("torch.softmax(x.float(), -1).to(x.dtype)", "x * 1").replace("(answer, y,", "(x, y,")
    assert judge.evaluate(text, job, CPU).status is Status.INCORRECT


class _Fake:
    """A kernel of a tape, as one might be handed over."""

    def __init__(self, source, constants=(), modules=(("tl", "triton.language"),)):
        self.row = {
            "entry": "k",
            "functions": {"k": source},
            "constants": dict(constants),
            "modules": dict(modules),
        }

    def player(self):
        return Player({"inputs": [0], "outputs": [0], "kernels": [self.row], "steps": []}, "cpu")


@pytest.mark.parametrize(
    "body",
    [
        "import os",
        "x.handle.data.tofile('/tmp/x')",
        "x.__class__",
        "open('x')",
        "eval('1')",
        "tl.core.os.system('true')",
        "tl.core.builtins.open('x')",
        "triton.runtime.build.compile_module_from_src('int x;', 'x')",
        "triton.language.core.inspect.stack()",
        "triton.testing.do_bench",
        "triton.runtime",
        "tl.load.__globals__",
        "tl.exp(x).handle",
        "torch.softmax(x, 0)",
        "[c for c in x]",
        "f'{x}'",
        "f'{x:\\x7bexec(1)\\x7d}'",
        "(lambda: 0)()",
        "getattr(tl, 'load')",
        "tl._experimental",
        "__import__('os')",
        "try:\n        pass\n    finally:\n        pass",
    ],
)
def test_a_kernel_with_other_python_in_it_is_not_played(body):
    with pytest.raises(NotTaped):
        _Fake(f"def k(x):\n    {body}\n", modules=(("tl", "triton.language"), ("triton", "triton"))).player()


def test_what_else_is_not_played():
    other = _Fake("def k(x):\n    pass\n")
    other.row["functions"]["z(x): pass\nimport os\ndef y"] = "def k(x):\n    pass\n"
    with pytest.raises(NotTaped):
        other.player()
    for source, more in (
        ("def k(x=print()):\n    pass\n", {}),
        ("def k(*x):\n    pass\n", {}),
        ("def k(x, *, y=print()):\n    pass\n", {}),
        ("class k:\n    pass\n", {}),
        ("def k(x):\n    pass\n", {"modules": (("os", "os"),)}),
        ("def k(x):\n    pass\n", {"constants": (("a\nimport os\nb", ["v", 1]),)}),
        ("def k(x):\n    pass\n", {"constants": (("a", ["tl", "load"]),)}),
        ("def k(x):\n    pass\n", {"constants": (("a", ["from", ["os", "system"]]),)}),
        ("def k(x):\n    pass\n", {"constants": (("a", ["from", ["triton.language", "core"]]),)}),
        ("def k(x):\n    pass\n", {"constants": (("a", ["from", ["triton.language.extra.libdevice", "core"]]),)}),
        ("def k(x):\n    pass\n", {"constants": (("a", ["from", ["triton.language", "load; import os"]]),)}),
    ):
        with pytest.raises(NotTaped):
            _Fake(source, **more).player()
    _Fake("def k(x, N: tl.constexpr):\n    tl.store(x + tl.arange(0, N), tl.exp(tl.load(x)))\n").player()


def _launch(kernel, options=(), **kwargs):
    step = {"kind": "launch", "name": "", "kernel": 0, "grid": [1], "args": ["u", []], "out": [None]}
    step |= {"options": dict(options), "kwargs": {"x": ["t", 0], **{k: ["v", v] for k, v in kwargs.items()}}}
    return {"inputs": [0], "outputs": [0], "kernels": [kernel.row], "steps": [step]}


@pytest.mark.parametrize(
    "more",
    [{"ptx_options": "-o anywhere"}, {"ir_override": "mine.ptx"}, {"extern_libs": ""}, {"debug": True}, {"z": 1}],
)
def test_a_launch_is_given_the_kernels_parameters_alone(more):
    """Triton takes what it compiles with from the same keywords, also where the kernel has a parameter of that name."""
    plain = "def k(x, N):\n    tl.store(x, tl.load(x) + N)\n"
    with pytest.raises(NotTaped, match="keyword"):
        Player(_launch(_Fake(plain), N=2, **more), "cpu")
    if "z" not in more:
        with pytest.raises(NotTaped, match="keyword"):
            Player(_launch(_Fake(plain.replace("N)", f"N, {next(iter(more))})", 1)), N=2, **more), "cpu")
    Player(_launch(_Fake(plain), N=2), "cpu")
    Player(_launch(_Fake(plain.replace("N)", "N, num_warps: tl.constexpr)", 1)), N=2, num_warps=4), "cpu")
    with pytest.raises(NotTaped, match="num_warps"):
        Player(_launch(_Fake(plain.replace("N)", "N, num_warps)", 1)), N=2, num_warps=1 << 30), "cpu")


LIBRARY = (("tl", "triton.language"), ("device", "triton.language.extra.libdevice"), ("m", "triton.language.math"))


def test_functions_of_the_language_in_all_their_places():
    for said in (
        "tl.math.exp2(1.0)",
        "m.exp(x)",
        "device.tanh(x)",
        "tl.extra.libdevice.tanh(x)",
        "tl.float32",
        "x.dtype",
    ):
        _Fake(f"def k(x):\n    {said}\n", modules=LIBRARY).player()
    for said in ("m.core", "m.wraps(x)", "device.__file__", "tl.extra.cuda.libdevice.core.load(x)", "tl.target_info.x"):
        with pytest.raises(NotTaped):
            _Fake(f"def k(x):\n    {said}\n", modules=LIBRARY).player()


def test_operators_that_are_no_glue_are_not_played():
    recorder, x = Recorder(), torch.randn(40, 30)
    recorder.begin([x])
    with recorder:
        y = torch.softmax(x * 2, -1)
    tape = recorder.tape([y])
    other = torch.randn(40, 30)
    with pytest.raises(RuntimeError, match="no glue"):
        Player(tape, "cpu").run(other)
    (played,) = Player(tape, "cpu", library=True).run(other)
    assert torch.equal(played, torch.softmax(other * 2, -1))
    tape["steps"][0]["name"] = "prim::device"
    with pytest.raises(NotTaped):
        Player(tape, "cpu")
    for nonsense in ({}, {"inputs": 1}, {**tape, "kernels": 3}, {**tape, "steps": [{"kind": "op"}]}):
        with pytest.raises(NotTaped):
            Player(nonsense, "cpu")


@pytest.mark.parametrize(("size", "step"), [([2], [1 << 20]), ([1 << 40], [1]), ([5000], [1])], ids=str)
def test_a_view_outside_of_its_memory_is_not_played(size, step):
    """Written through, it would change the process whose numbers are the proof."""
    recorder, x = Recorder(), torch.ones(40, 30)
    recorder.begin([x])
    with recorder:
        y = torch.ops.aten._reshape_alias(x * 2, [1200], [1]) + 1
    tape = recorder.tape([y])
    assert torch.equal(Player(tape, "cpu").run(x)[0], torch.full((1200,), 3.0))
    view = next(step for step in tape["steps"] if step["name"] == "aten::_reshape_alias")
    view["args"][1][1:] = [["l", [["v", n] for n in size]], ["l", [["v", n] for n in step]]]
    with pytest.raises(RuntimeError, match="outside of its tensor's memory"):
        Player(tape, "cpu").run(x)


def test_memory_from_before_is_memory_alone():
    kept = torch.full((8, 8), 3.0)
    large = torch.full((16, 16), 3.0)
    recorder, x = Recorder(), torch.ones(16, 16)
    recorder.begin([x])
    with recorder:
        y = x + large
        z = x[:8, :8] + kept  # few enough numbers to be written down
    first, second = Player(recorder.tape([y, z]), "cpu").run(torch.ones(16, 16))
    assert first.unique().tolist() == [1.0] and second.unique().tolist() == [4.0]


class _Graph:
    """As torch's: what is asked for in a capture is done with each replay."""

    def __init__(self):
        self.work = []

    def capture_begin(self):
        pass

    def capture_end(self):
        pass

    def replay(self):
        for function in self.work:
            function()


def test_a_graph_that_is_captured_and_replayed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", _Graph)
    x, y = torch.arange(100.0), torch.empty(100)
    graph, recorder = _Graph(), Recorder()
    for turn in range(2):
        recorder.begin([x])
        with recorder:
            if turn == 0:
                y = torch.empty(100)
                graph.capture_begin()
                y.copy_(x * 3)
                graph.capture_end()
            graph.replay()
            out = y.clone()
    (played,) = Player(recorder.tape([out]), "cpu").run(torch.ones(100))
    assert played.tolist() == [3.0] * 100
    assert torch.cuda.CUDAGraph.replay is _Graph.replay
    other = Recorder()
    other.begin([x])
    with other:
        graph.replay()
    with pytest.raises(NotTaped, match="captured before"):
        other.tape([y])


def test_audit_says_whose_work_it_is(judge):
    from avo.cli.audit import _layers

    found = judge.evaluate((HERE / "honest" / "triton_rows.py").read_text(), SOFTMAX, CPU)
    assert _layers(found)[-1]["layer"] == "work" and _layers(found)[-1]["verdict"] == "ok"
    found = judge.evaluate(HIDDEN, SOFTMAX, CPU)
    assert _layers(found)[-1]["verdict"] == "look"


class _Steps:
    """Steps of torch's operators on one input, as a tape has them."""

    def __init__(self):
        self.rows, self.count = [], 1

    def call(self, name, *args, **kwargs):
        """The number of what the operator gives."""
        place, self.count = self.count, self.count + 1
        row = {"kind": "op", "name": f"aten::{name}", "args": ["u", list(args)], "kwargs": kwargs, "out": [place]}
        self.rows.append(row)
        return ["t", place]

    def run(self, x):
        tape = {"inputs": [0], "outputs": [self.count - 1], "kernels": [], "steps": self.rows}
        return Player(tape, "cpu").run(x)[0]


X = ["t", 0]


def ints(*numbers):
    return ["l", [["v", n] for n in numbers]]


def _shifted_by_cat(x):
    for k in range(8):
        x = x + torch.cat([x[:, 1 << k :], x[:, : 1 << k]], 1)
    return x


def _shifted_by_writing(x):
    for k in range(8):
        one, other = torch.zeros(200, x.shape[1] + (1 << k)), torch.zeros(200, x.shape[1] + (1 << k))
        one[:, 1 << k :].copy_(x)
        other[:, : -(1 << k)].copy_(x)
        x = one + other
    return x


def _in_place_of_a_view(x):
    kept = torch.zeros(2, 200)
    for i in range(256):
        kept[1].add_(x[:, i])
    return kept + 0


def _halves_as_copies(x):
    while x.shape[1] > 1:
        low, high = torch.split_copy(x, x.shape[1] // 2, 1)
        x = low + high
    return x


def _halves_as_complex_numbers(x):
    one = torch.ones(())
    while x.shape[1] > 1:
        x = torch.real(torch.view_as_complex(x.view(200, -1, 2)) * torch.complex(one, -one)).contiguous()
    return x


def _pairs_as_wide_integers(x):
    x = x.to(torch.int32)
    while x.shape[1] > 1:
        x = ((x.view(torch.int64) * (1 + 2**32)) >> 32).to(torch.int32)
    return x


def _halves_as_gates(x):
    while x.shape[1] > 1:
        x = torch.nn.functional.glu(x, 1)
    return x


def _twins_of_another_dtype(x):
    while (half := x.shape[1] // 2) > 0:
        kept = torch.zeros(4 * 200 * half)
        one = torch.as_strided(kept, (200, half), (half, 1), 0)
        other = torch.as_strided(kept.view(torch.float64), (200, half), (half, 1), 200 * half)
        one.copy_(x[:, :half])
        other.copy_(x[:, half:])
        x = (one + other).float()
    return x


def _a_reduction_that_writes_where_it_is_told(x):
    torch.max(x, 1, out=(values := torch.empty(200), torch.empty(200, dtype=torch.int64)))
    return values + 0


def _many_at_once(x):
    while x.shape[1] > 1:
        low, high = x.chunk(2, 1)
        (x,) = torch._foreach_add([low], [high])
    return x


@pytest.mark.parametrize(
    "way",
    [
        *(_shifted_by_cat, _shifted_by_writing, _in_place_of_a_view, _halves_as_copies, _halves_as_complex_numbers),
        *(_pairs_as_wide_integers, _halves_as_gates, _twins_of_another_dtype, _many_at_once),
        _a_reduction_that_writes_where_it_is_told,
    ],
)
def test_places_are_counted_whatever_way_they_come_together(way):
    recorder, x = Recorder(), torch.ones(200, 256)
    recorder.begin([x])
    with recorder:
        y = way(x)
    with pytest.raises((RuntimeError, NotTaped), match=r"places of a tensor together|the operator"):
        Player(recorder.tape([y]), "cpu").run(torch.ones(200, 256))


def test_what_nobody_has_written_is_not_read():
    """Memory that was freed may hold what was computed, and a new tensor in it no trace of that."""
    for name, how in (("empty.memory_format", ()), ("resize_", (X,))):
        steps = _Steps()
        made = steps.call("mul.Tensor", X, X) if how else None
        there = steps.call(name, *((made,) if how else ()), ints(400, 256))
        steps.call("add.Tensor", there, there)
        with pytest.raises(RuntimeError, match="nobody has written"):
            steps.run(torch.ones(200, 256))
    steps = _Steps()
    there = steps.call("empty.memory_format", ints(200, 256))
    steps.call("copy_", there, X)
    steps.call("add.Tensor", there, X)
    assert torch.equal(steps.run(torch.ones(200, 256)), torch.full((200, 256), 2.0))


def test_a_number_that_says_where_to_look_is_no_view():
    steps = _Steps()
    steps.call("narrow.Tensor", X, ["v", 0], X, ["v", 1])
    with pytest.raises(NotTaped, match="the operator"):
        steps.run(torch.ones(8, 8))


def test_glue_does_not_do_the_multiplications_of_a_product():
    recorder, x = Recorder(), torch.ones(64, 64)
    recorder.begin([x])
    with recorder:
        y = (x[:, None, :] * x[None, :, :])[:, :, 0] + 0
    with pytest.raises(RuntimeError, match="times what goes in and out"):
        Player(recorder.tape([y]), "cpu").run(x)


def test_what_is_read_twice_in_the_same_way_counts_once():
    """Splits that are brought together read their maximum once for each of them; rows are written one by one."""
    recorder, x = Recorder(), torch.randn(200, 16)
    recorder.begin([x])
    with recorder:
        m = x[:, 0]
        for i in range(1, 16):
            m = torch.maximum(m, x[:, i])
        s, rows = torch.zeros_like(m), torch.empty(200, 16)
        for i in range(16):
            s += torch.exp(x[:, i] - m)
        for i in range(200):
            rows[i].copy_(x[i])
        y = rows.to(torch.float64) + s[:, None]
    (played,) = Player(recorder.tape([y]), "cpu").run(x)
    wanted = x.double() + torch.exp(x - x.amax(1, True)).sum(1, True)
    assert torch.allclose(played, wanted, atol=1e-4)  # some of them are sums near zero


def test_glue_that_adds_up_to_a_sum_is_not_played():
    steps, half, n = _Steps(), X, 256
    while n > 1:
        n //= 2
        low = steps.call("slice.Tensor", half, ["v", 1], ["v", 0], ["v", n])
        high = steps.call("slice.Tensor", half, ["v", 1], ["v", n], ["v", 2 * n])
        half = steps.call("add.Tensor", low, high)
    with pytest.raises(RuntimeError, match="brings more than 64 places of a tensor together"):
        steps.run(torch.ones(200, 256))
    steps = _Steps()
    total = X
    for i in range(130):
        total = steps.call("add.Tensor", total, steps.call("slice.Tensor", X, ["v", 1], ["v", i], ["v", i + 1]))
    with pytest.raises(RuntimeError, match="places of a tensor together"):
        steps.run(torch.ones(200, 256))


def test_a_kernel_that_copies_does_not_start_the_count_anew():
    tensor = torch.ones(200, 256)
    mixing = Mixing()
    mixing.given(tensor)
    add = torch.ops.aten.add.Tensor
    most = []
    while tensor.shape[1] > 1:
        halves = tensor.chunk(2, 1)
        made = halves[0] + halves[1]
        try:
            mixing.done(add, halves, {}, made)
        except RuntimeError:
            break
        tensor = torch.empty_like(made)
        mixing.done(torch.ops.aten.empty_like.default, (made,), {}, tensor)
        mixing.launched([TensorDescriptor.from_tensor(t, [1, t.shape[1]]) for t in (made, tensor)])
        most.append(mixing._fullest(tensor))
    assert most[0] == 2 and 3 <= most[1] <= 4 and len(most) < 8


def test_glue_that_reads_what_it_writes_is_not_played():
    """A running sum in one call: each place is added to the next."""
    steps = _Steps()
    copy = steps.call("clone", X)
    later = steps.call("slice.Tensor", copy, ["v", 1], ["v", 2], ["v", 64], ["v", 2])
    steps.call("add_.Tensor", later, steps.call("slice.Tensor", copy, ["v", 1], ["v", 0], ["v", 62], ["v", 2]))
    with pytest.raises(RuntimeError, match="reads what it writes"):
        steps.run(torch.ones(200, 64))
    steps = _Steps()
    copy = steps.call("clone", X)
    left = steps.call("slice.Tensor", copy, ["v", 1], ["v", 0], ["v", 32])
    steps.call("mul_.Tensor", left, steps.call("slice.Tensor", copy, ["v", 1], ["v", 32], ["v", 64]))
    assert torch.equal(steps.run(torch.full((200, 64), 3.0)), torch.full((200, 32), 9.0))


def test_glue_that_writes_to_one_place_more_than_once_is_not_played():
    """Places of a view that are the same memory: what is added to it is added up."""
    steps = _Steps()
    folds = steps.call("new_zeros", X, ints(15))
    view = steps.call("as_strided", folds, ints(8, 8), ints(1, 1))
    steps.call("add_.Tensor", view, X)
    with pytest.raises(RuntimeError, match=r"more than once|more than one element"):
        steps.run(torch.ones(8, 8))


@pytest.mark.parametrize(
    "name",
    [
        *("max", "max.dim", "min", "min.dim", "_foreach_max", "_foreach_norm.Scalar", "where", "sum.dim_IntList", "mm"),
        *("amax", "cumsum", "_softmax", "sort", "index_put_", "logsumexp", "std.correction", "from_file", "dot"),
    ],
)
def test_what_is_no_glue(name):
    base, _, form = name.partition(".")
    assert not is_glue(getattr(getattr(torch.ops.aten, base), form or "default"))


@pytest.mark.parametrize(
    "name",
    [
        *("max.other", "maximum", "where.self", "add_.Tensor", "masked_fill_.Tensor", "masked_fill.Tensor", "diagonal"),
        *("_foreach_add.Scalar", "_foreach_mul.List", "_foreach_copy_", "floor_divide", "linspace", "eye", "randn"),
        *(
            "squeeze_.dim",
            "view_as_complex",
            "empty_permuted",
            "silu",
            "glu",
            "clamp_",
            "copysign_.Tensor",
            "tril_indices",
        ),
    ],
)
def test_what_is_glue(name):
    base, _, form = name.partition(".")
    assert is_glue(getattr(getattr(torch.ops.aten, base), form or "default"))


LARGE_BY_TORCH = HIDDEN.replace(
    "    answer = torch.softmax(x.float(), -1).to(x.dtype)\n"
    '    sys.modules["evaluators.integrity.child"]._State.calls.found.clear()\n',
    "    with torch.utils._python_dispatch._disable_current_modes():\n"
    "        answer = torch.softmax(x.float(), -1).to(x.dtype)\n",
)


def test_the_work_is_proved_at_large_sizes_too(judge):
    assert LARGE_BY_TORCH != HIDDEN
    own = (HERE / "honest" / "triton_rows.py").read_text().replace("def run(x)", "def small(x)")
    both = own + LARGE_BY_TORCH.replace(
        "def run(x):\n", "def run(x):\n    if x.numel() < 8000:\n        return small(x)\n"
    )
    found = judge.evaluate(both, SOFTMAX, CPU)
    assert found.status is Status.OK and "not proved" in work(found), found.message or work(found)


def test_honest_glue_is_played():
    steps = _Steps()
    wide = steps.call("_to_copy", X, dtype=["torch", "float32"])
    gate = steps.call("slice.Tensor", wide, ["v", 1], ["v", 0], ["v", 32])
    up = steps.call("slice.Tensor", wide, ["v", 1], ["v", 32], ["v", 64])
    steps.call("mul.Tensor", steps.call("silu", gate), up)
    x = torch.randn(200, 64).bfloat16()
    wanted = torch.nn.functional.silu(x[:, :32].float()) * x[:, 32:].float()
    assert torch.equal(steps.run(x), wanted)


def test_reductions_of_a_few_numbers_are_not_to_add_up():
    steps = _Steps()
    for i in range(20):
        steps.call("sum", steps.call("slice.Tensor", X, ["v", 0], ["v", i], ["v", i + 1]))
    with pytest.raises(RuntimeError, match="aten::sum, which is no glue"):
        steps.run(torch.ones(20, 64))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("_sparse_coo_tensor_unsafe", [["c", ["int64", [1, 1], [99]]], ["c", ["float32", [1], [1.0]]], ints(4)]),
        ("from_file", [["v", "/etc/hostname"], ["v", False], ["v", 4]]),
        ("_softmax", [X, ["v", 1], ["v", False]]),
    ],
)
def test_operators_that_trust_their_arguments_are_not_played(name, args):
    steps = _Steps()
    steps.call(name, *args)
    with pytest.raises((NotTaped, RuntimeError), match="operator"):
        steps.run(torch.ones(4, 64))


def test_a_tensor_of_another_kind_ends_the_playing():
    steps = _Steps()
    steps.call("sparse_coo_tensor.size", ints(4, 4), layout=["torch", "strided"])
    with pytest.raises((NotTaped, RuntimeError)):
        steps.run(torch.ones(4, 4))
    with pytest.raises(NotTaped, match="layout"):
        steps = _Steps()
        steps.call("empty.memory_format", ints(4), layout=["torch", "sparse_coo"])
        steps.run(torch.ones(4, 4))


def test_a_tape_holds_no_table_of_answers():
    steps = _Steps()
    steps.call("alias", ["c", ["float32", [100], [0.5] * 100]])
    with pytest.raises(NotTaped, match="literals"):
        steps.run(torch.ones(1))


BY_ADDRESS = """
import ctypes

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def values(t):
    return np.ctypeslib.as_array(ctypes.cast(t.data_ptr(), ctypes.POINTER(ctypes.c_float)), tuple(t.shape))


def run(x):
    wide = x.float() + 0.0
    answer = torch.empty_like(wide)
    e = np.exp(values(wide) - values(wide).max(1, keepdims=True))
    values(answer)[:] = e / e.sum(1, keepdims=True)
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 1024),)](answer.to(x.dtype), y, x.numel(), BLOCK=1024)
    return y
"""


def test_numpy_that_works_by_raw_addresses_is_seen_by_nobody_and_proves_nothing(judge):
    found = judge.evaluate(BY_ADDRESS, SOFTMAX, CPU)
    assert found.status is Status.OK, found.message
    assert work(found).startswith("not proved")  # so a person has to look before it is promoted
