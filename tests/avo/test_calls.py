"""Repeated calls of a package: they hand the launcher exactly what the emitted function hands it, at their addresses.

Triton compiles, loads and launches in full here, through a CUDA driver that notes what it is given and runs nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
import shutil
import struct
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from export_parts import H200, ROWS, target_of_rows, variant

from avo.export import build, write
from avo.export.calls import Calls, quick
from dsl.lowering import lower
from dsl.parser import parse
from evaluators.compiler import load_source
from evaluators.targets import target

ROOT = Path(__file__).parents[2]
CANDIDATES = ROOT / "configs" / "candidates" / "h200.toml"
pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="a stub would stand in front of the GPU that is here"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="Triton's launcher is built by gcc"),
]


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    pytest.importorskip("triton")
    import triton
    from triton.runtime import driver

    spec = importlib.util.spec_from_file_location("stub_cuda", ROOT / "benchmarks" / "stub_cuda.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.delenv("TRITON_INTERPRET", raising=False)
        patch.setattr(triton.knobs.runtime, "interpret", False)
        patch.setattr(driver, "_active", None)
        patch.setenv("TRITON_LIBCUDA_PATH", "")
        module.driver = module.activate(tmp_path_factory.mktemp("stub"))  # type: ignore[attr-defined]
        yield module


class Package:
    """One that thinks it is on its chip: `run` is its operator's own function, below torch's dispatch."""

    def __init__(self, folder: Path, name: str, job: Any, text: str, stub: ModuleType) -> None:
        package = build(job, H200, [variant(job, text, 1e-5)], name=name)
        write(package, folder)
        sys.path.insert(0, str(folder))
        try:
            self.module = importlib.import_module(name)
            self.ops = importlib.import_module(f"{name}.ops")
            self.dispatch = importlib.import_module(f"{name}.dispatch")
        finally:
            sys.path.remove(str(folder))
        self.dispatch.here = lambda x: True
        self.dispatch.set_unseen("kernel")
        self.call: Callable[..., Any] = getattr(self.module, package.function)
        self.stub = stub

    def notes(self, call: Callable[[], Any]) -> tuple[Any, list[Any]]:
        since = self.stub.count()
        found = call()
        return found, self.stub.notes(since)

    def kinds(self) -> list[Any]:
        return list(self.ops.CALLS.plans.values())


@pytest.fixture(scope="module")
def scaled(stub: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return Package(tmp_path_factory.mktemp("scaled"), "calls_scaled", target_of_rows(), ROWS, stub)


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> Iterator[None]:
    if "scaled" in request.fixturenames:
        request.getfixturevalue("scaled").ops.CALLS.plans.clear()
        request.getfixturevalue("stub").look(6)  # x, w, y, shift, R, C of the rows
    yield


def rows(seed: int = 0, offset: int = 0, r: int = 40, c: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """x [r c] and w [c], x so many elements behind an aligned address."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(r * c + offset, generator=rng).half()[offset:].view(r, c)
    return x, torch.randn(c, generator=rng)


def number(parameter: int) -> float:
    return float(struct.unpack("<f", struct.pack("<Q", parameter)[:4])[0])


def int32(parameter: int) -> int:
    return parameter & 0xFFFFFFFF


def test_the_second_call_launches_what_the_first_did_at_its_own_addresses(scaled: Package) -> None:
    x, w = rows()
    first, (before,) = scaled.notes(lambda: scaled.call(x, w, 3.5))
    assert [p is not None for p in scaled.kinds()] == [True]
    x2, w2 = rows(seed=1)
    for x_now, w_now in ((x, w), (x2, w2), (x, w2), (x2, w2)):
        again, (after,) = scaled.notes(lambda a=x_now, b=w_now: scaled.call(a, b, 3.5))
        assert again.data_ptr() != first.data_ptr() and again.shape == first.shape and again.dtype == first.dtype
        assert after.parameters[:3] == (x_now.data_ptr(), w_now.data_ptr(), again.data_ptr())
        assert number(after.parameters[3]) == 3.5 and int32(after.parameters[4]) == 40
        assert (after.grid, after.stream, after.function) == (before.grid, before.stream, before.function)
        assert after.grid == (10, 1, 1)
    assert before.parameters[:3] == (x.data_ptr(), w.data_ptr(), first.data_ptr())
    assert len(scaled.kinds()) == 1


def test_one_tensor_in_two_places_says_nothing_of_the_next_call(stub: ModuleType, tmp_path: Path) -> None:
    text = "kernel both\nin x[r c] f32, y[r c] f32\nout z[r c] f32\nz = x + y\n\nschedule\ntile r=4 c=all\ngrid r\n"
    entry = load_source(lower(parse(text), H200).source).both
    call, x, y = quick(entry, 2), torch.randn(8, 32), torch.randn(8, 32)
    stub.look(3)
    for a, b in ((x, x), (x, y), (y, x), (y, y)):
        since = stub.count()
        z = call(a, b)
        assert stub.notes(since)[0].parameters == (a.data_ptr(), b.data_ptr(), z.data_ptr())


def test_an_address_that_is_not_aligned_has_its_own_kernel(scaled: Package) -> None:
    """Triton compiles wide loads where an address is a multiple of 16 bytes: that kernel may never get another."""
    aligned, w = rows()
    shifted, _ = rows(offset=1)
    _, (one,) = scaled.notes(lambda: scaled.call(aligned, w))
    _, (two,) = scaled.notes(lambda: scaled.call(shifted, w))
    assert one.function != two.function and shifted.data_ptr() % 16 == 2
    for x, note in ((aligned, one), (shifted, two), (aligned, one)):
        _, (again,) = scaled.notes(lambda given=x: scaled.call(given, w))
        assert again.function == note.function and again.parameters[0] == x.data_ptr()


def test_what_is_not_contiguous_is_copied_each_time(scaled: Package) -> None:
    x, w = rows()
    turned = x.t().contiguous().t()
    assert not turned.is_contiguous()
    for _ in range(3):
        y, (note,) = scaled.notes(lambda: scaled.call(turned, w))
        assert note.parameters[0] != turned.data_ptr() and note.parameters[2] == y.data_ptr()
        assert y.is_contiguous()
    assert [p.copied for p in scaled.kinds()] == [[0]]
    _, (note,) = scaled.notes(lambda: scaled.call(x, w))
    assert note.parameters[0] == x.data_ptr()


def test_guards_hold_after_a_kind_is_known(scaled: Package) -> None:
    x, w = rows()
    scaled.call(x, w)
    scaled.call(x, w)
    with pytest.raises(TypeError, match=r"x is torch.float32, it has to be torch.float16"):
        scaled.call(x.float(), w)
    with pytest.raises(ValueError, match="another input has c=32"):
        scaled.call(x, w[:16].contiguous())
    with pytest.raises(ValueError, match="it has to be"):
        scaled.call(x[None], w)
    try:
        scaled.dispatch.set_unseen("error")
        with pytest.raises(ValueError, match="no kernel was judged"):
            scaled.call(x, w)
        scaled.dispatch.set_unseen("reference")
        _, notes = scaled.notes(lambda: scaled.call(x, w))
        assert notes == []
    finally:
        scaled.dispatch.set_unseen("kernel")
    _, notes = scaled.notes(lambda: scaled.call(x, w))
    assert len(notes) == 1


@pytest.mark.parametrize("values", [(0.0, -0.0), (1.0, 2.0), (float("nan"), 0.0)])
def test_params_are_those_of_the_call(values: tuple[float, float], scaled: Package) -> None:
    x, w = rows()
    for value in (*values, *values):
        _, (note,) = scaled.notes(lambda v=value: scaled.call(x, w, v))
        assert struct.pack("<f", number(note.parameters[3])) == struct.pack("<f", value)


def test_the_current_stream_and_the_device_of_the_tensors(scaled: Package) -> None:
    x, w = rows()
    driver = scaled.stub.driver
    scaled.call(x, w)
    try:
        for stream in (7, 8, 9, 7):
            driver.stream = stream
            assert scaled.notes(lambda: scaled.call(x, w))[1][0].stream == stream
        seen = []
        driver.device, driver.get_current_stream = 1, lambda device: seen.append((device, driver.device)) or 7
        scaled.call(x, w)
        assert seen == [(0, 0)] and driver.device == 1  # those of the kernel while it is launched, then as they were
    finally:
        driver.stream, driver.device = 7, 0
        driver.__dict__.pop("get_current_stream", None)


def test_threads_do_not_get_each_others_tensors(scaled: Package) -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for turn in range(30):
            x, w = rows(seed=seed * 100 + turn % 3)
            y = scaled.call(x, w, float(seed))
            if y.shape != x.shape:
                wrong.append(y.shape)
            kept.append((x, w, y, seed))

    kept: list[Any] = []
    since = scaled.stub.count()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    notes = {n.parameters[2]: n for n in scaled.stub.notes(since)}
    assert not wrong and len(kept) == 120
    for x, w, y, seed in kept:
        note = notes[y.data_ptr()]
        assert note.parameters[:2] == (x.data_ptr(), w.data_ptr()) and number(note.parameters[3]) == seed


def test_hooks_hear_of_every_launch(scaled: Package) -> None:
    """As a profiler asks Triton to: then a call goes Triton's own way."""
    from triton import knobs

    x, w = rows()
    heard: list[Any] = []
    scaled.call(x, w)
    knobs.runtime.launch_enter_hook.add(heard.append)
    try:
        scaled.call(x, w)
        scaled.call(x, w)
    finally:
        knobs.runtime.launch_enter_hook.remove(heard.append)
    scaled.call(x, w)
    assert len(heard) == 2


def test_gradients_are_refused_as_ever_and_torch_compile_takes_it_whole(scaled: Package) -> None:
    x, w = rows()
    scaled.call(x, w)
    found = scaled.call(x.clone().requires_grad_(), w)
    with pytest.raises(NotImplementedError, match="forward-only"):
        found.float().sum().backward()
    with torch.no_grad():
        assert not scaled.call(x.clone().requires_grad_(), w).requires_grad
    fast = torch.compile(lambda a, b: scaled.call(a, b, 2.0), fullgraph=True, backend="aot_eager")
    for _ in range(2):
        y, notes = scaled.notes(lambda: fast(x, w))
        assert [n.parameters[:3] for n in notes] == [(x.data_ptr(), w.data_ptr(), y.data_ptr())]


def test_a_package_can_be_imported_anew(tmp_path: Path) -> None:
    """As a notebook does it, and as who takes it out of sys.modules."""
    job = target_of_rows()
    write(build(job, H200, [variant(job, ROWS, 1e-5)], name="calls_anew"), tmp_path)
    found, (x, w) = [], rows()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        for _ in range(3):
            found.append(importlib.import_module("calls_anew").scaled(x, w, 1.0))
            importlib.reload(importlib.import_module("calls_anew.ops"))
            for name in [n for n in sys.modules if n.startswith("calls_anew")]:
                del sys.modules[name]
    assert all(torch.equal(y, found[0]) for y in found)


CASES = {  # target and schedule: how many descriptors a launch has
    ("matmul", "persistent"): 3,
    ("attention", "roles_lazy"): 4,  # and a table of tiles
    ("rmsnorm", "w8"): 0,
}


def candidate(name: str, schedule: str) -> str:
    """A target's seed with a schedule that people wrote."""
    found = tomllib.loads(CANDIDATES.read_text(encoding="utf-8"))
    return target(name).seed.partition("schedule")[0] + "schedule\n" + str(found[name]["public"][schedule])


def handed_over(signature: dict[str, str]) -> int:
    """How many parameters a launch has: a descriptor is one, then its shape and strides."""
    found = 0
    for kind in signature.values():
        box = re.match(r"tensordesc<[^[]*\[([^]]*)\]", kind)
        found += 1 + 2 * len(box[1].split(",")) if box else kind != "constexpr"
    return found


@pytest.mark.parametrize("case", CASES, ids="_".join)
def test_descriptors_and_tables_are_those_of_the_emitted_function(
    case: tuple[str, str], stub: ModuleType, tmp_path: Path
) -> None:
    """Every parameter of the launch, beside what the emitted function hands over for the same tensors."""
    (name, schedule), descriptors = case, CASES[case]
    package = Package(tmp_path, f"calls_{name}_{schedule}", target(name), candidate(name, schedule), stub)
    sizes = {a: 128 for _, axes, _ in package.ops.facts.INPUTS for a in axes} | {"b": 1, "h": 2, "g": 1}

    def made() -> list[torch.Tensor]:
        tensors = package.ops.facts.INPUTS
        return [torch.zeros([sizes[a] for a in axes], dtype=getattr(torch, dtype)) for _, axes, dtype in tensors]

    params = {kind: True for kind, _, _ in package.ops.facts.PARAMS}
    stub.look(0)
    package.call(*made(), **params)
    (plan,) = package.kinds()
    (launch,) = plan.launches
    assert sum(value is not None for place, value in launch.arguments if place is not None) == descriptors
    assert len(plan.kept) == (name == "attention")
    signature = dict(launch.compiled.src.signature)
    stub.look(handed_over(signature))
    for _ in range(2):  # at addresses that are new, and at those again
        inputs, since = made(), stub.count()
        theirs = package.ops.KERNELS[0](*inputs, **params)
        ours = package.call(*inputs, **params)
        one, two = stub.notes(since)
        assert (one.grid, one.stream, one.function) == (two.grid, two.stream, two.function)
        assert {x.data_ptr() for x in (*inputs, ours)} <= set(two.parameters)
        for a, b in zip(one.parameters, two.parameters, strict=True):
            assert (a, b) == (theirs.data_ptr(), ours.data_ptr()) or int32(a) == int32(b)


def in_a_thread(call: Callable[[], Any]) -> Any:
    """What it returns in a thread that has asked nothing of CUDA; what it raises is raised here."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


@pytest.fixture(scope="module")
def described(stub: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Package:
    """A product by descriptors, whose kernel was compiled and loaded by another thread than those of its tests."""
    text = candidate("matmul", "persistent")
    package = Package(tmp_path_factory.mktemp("described"), "calls_described", target("matmul"), text, stub)
    package.call(*squares())
    return package


def squares() -> list[torch.Tensor]:
    return [torch.zeros(128, 128).bfloat16() for _ in range(2)]


@pytest.mark.parametrize("how", ["remembered", "first", "switched off", "loaded"])
def test_a_thread_that_is_new_to_cuda_fills_descriptors(
    how: str, described: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As emitted it cannot: nothing but a descriptor needs a context that is current before the launch."""
    stub, entry, inputs = described.stub, described.ops.KERNELS[0], squares()
    for module in (sys.modules["calls_described.calls"], sys.modules["avo.export.calls"]):
        monkeypatch.setattr(module, "_on_cuda", lambda inputs: True)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda x: 0)
    for plan in described.kinds():
        plan.known.clear()  # descriptors of addresses that were there before
    with pytest.raises(RuntimeError, match="Failed to create tensor map descriptor"):
        in_a_thread(lambda: entry(*inputs))
    if how == "first":
        described.ops.CALLS.plans.clear()
    monkeypatch.setattr(described.ops.CALLS, "remember", how != "switched off")
    call = quick(entry, 2) if how == "loaded" else described.call
    stub.look(1)
    since = stub.count()
    found = in_a_thread(lambda: [call(*x).data_ptr() for x in (inputs, squares(), inputs)])
    assert len(found) == 3 and stub.notes(since)[0].parameters == (inputs[0].data_ptr(),)


def test_a_context_that_is_current_stays(described: Package) -> None:
    """Somebody's own, or that of the tensors' device: a thread without one gets the latter, and asks once."""
    calls, cuda = sys.modules["calls_described.calls"], described.stub._library

    def current() -> int | None:
        now = ctypes.c_void_p()
        assert cuda.cuCtxGetCurrent(ctypes.byref(now)) == 0
        return now.value

    def after(before: int, *devices: int) -> list[int | None]:
        cuda.cuCtxSetCurrent(ctypes.c_void_p(before))
        found = []
        for device in devices:
            calls._THREAD.enter(device)
            found.append(current())
        return found

    assert in_a_thread(lambda: after(0, 1)) == [2]  # the stub's context of device 1
    assert in_a_thread(lambda: after(0, 0, 0)) == [1, 1]
    assert in_a_thread(lambda: after(77, 1)) == [77]


def test_two_kernels_share_what_lies_between_them(stub: ModuleType) -> None:
    """The partial sums are allocated for each call: the first kernel writes them, the second reads them."""
    text = (ROOT / "docs" / "examples" / "split_k_gemm.avo").read_text()
    lowered = lower(parse(text), H200)
    entry = getattr(load_source(lowered.source), lowered.entry)
    call, between = quick(entry, 2), set()
    stub.look(3)
    for seed in range(3):
        a, b = torch.full((128, 2048), float(seed)).bfloat16(), torch.zeros(2048, 128).bfloat16()
        since = stub.count()
        theirs, ours = entry(a, b), call(a, b)
        notes = stub.notes(since)
        for one, two, c in ((*notes[:2], theirs), (*notes[2:], ours)):
            assert one.parameters[:2] == (a.data_ptr(), b.data_ptr()) and two.parameters[1] == c.data_ptr()
            assert one.parameters[2] == two.parameters[0] and one.function != two.function
            between.add(one.parameters[2])
        assert [(n.function, n.grid) for n in notes[:2]] == [(n.function, n.grid) for n in notes[2:]]
    assert between


def test_what_is_not_understood_runs_as_it_stands(scaled: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Triton without the parts that this leans on: the kind is kept as such and Triton launches."""
    from triton.backends.nvidia import driver

    x, w = rows()
    scaled.call(x, w)  # Triton itself needs the part where it makes a launcher
    scaled.ops.CALLS.plans.clear()
    monkeypatch.delattr(driver, "wrap_handle_tensordesc")
    for _ in range(3):
        y, (note,) = scaled.notes(lambda: scaled.call(x, w))
        assert note.parameters[:3] == (x.data_ptr(), w.data_ptr(), y.data_ptr())
    assert scaled.kinds() == [None]


def test_kinds_and_addresses_are_not_kept_without_end(scaled: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = sys.modules["calls_scaled.calls"]
    monkeypatch.setattr(calls, "KINDS", 3)
    monkeypatch.setattr(calls, "ADDRESSES", 4)
    w = rows()[1]
    for r in range(4, 24):
        scaled.call(rows(r=r)[0], w)
    assert 1 <= len(scaled.kinds()) <= 3
    kept = []
    for seed in range(20):
        kept.append((rows(seed)[0], scaled.call(rows(seed)[0], w)))
    assert all(len(p.known) <= 4 for p in scaled.kinds())


def test_nothing_is_kept_where_that_is_switched_off(scaled: Package) -> None:
    x, w = rows()
    scaled.ops.CALLS.remember = False
    try:
        for _ in range(2):
            _, notes = scaled.notes(lambda: scaled.call(x, w))
            assert len(notes) == 1
        assert scaled.kinds() == []
    finally:
        scaled.ops.CALLS.remember = True


def test_an_unknown_call_is_none() -> None:
    assert Calls(1).again((torch.zeros(2),)) is None
