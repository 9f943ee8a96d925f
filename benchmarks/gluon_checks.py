"""Correctness of warps with roles on a GPU, in a process of its own: what `gluon_device.py` starts.

Every result lies in a buffer with a border on either side that must stay as it was, and starts as garbage; every input
is run twice and must repeat bit by bit. References are computed in float64.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from gluon_cases import FP8, FP8_QK, GEMM, INT8_BLOCKS, INT8_QK, PRODUCTS, WINDOW, build, case, dim

GARBAGE = 0x5A
BORDER = 4096  # bytes
SEEN = 150  # keys of a window
KINDS = ("plain", "rising", "falling", "negative", "last", "large", "nan", "inf", "-inf")
SIZES = [(1, 1, 1, 1, 1), (2, 4, 2, 128, 128), (1, 3, 3, 65, 200), (3, 2, 1, 255, 129), (1, 2, 2, 700, 700)]
SIZES += [(2, 16, 16, 1024, 1024), (1, 4, 4, 300, 900)]
TWELVE = [(1, 1, 1, 1, 1), (1, 2, 1, 7, 9), (2, 2, 2, 63, 64), (1, 2, 2, 64, 65), (1, 1, 1, 127, 128)]
TWELVE += [(3, 2, 1, 128, 129), (1, 3, 3, 129, 200), (1, 2, 2, 255, 257), (1, 4, 2, 300, 300)]
TWELVE += [(1, 2, 1, 511, 700), (1, 1, 1, 700, 511), (2, 4, 4, 640, 384)]
TWELVE_PRODUCTS = [(1, 8, 8), (7, 16, 24), (63, 64, 64), (64, 72, 72), (127, 264, 72), (128, 256, 64), (129, 248, 200)]
TWELVE_PRODUCTS += [(255, 512, 128), (257, 520, 136), (300, 520, 1000), (511, 768, 320), (640, 1032, 200)]


class Bordered:
    """Stands for torch in an emitted module: what it allocates starts as garbage and has borders."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch, name)

    def empty(self, shape: Any, *, device: Any, dtype: Any) -> Any:
        import torch

        size = math.prod(shape) * dtype.itemsize
        whole = torch.full((size + 2 * BORDER,), GARBAGE, dtype=torch.uint8, device=device)
        self.kept.append((whole, size))
        return whole[BORDER : BORDER + size].view(dtype).view(shape)

    def broken(self) -> bool:
        """Whether any border was written to since the last call."""
        kept, self.kept = self.kept, []
        return any(bool((w[:BORDER] != GARBAGE).any() or (w[BORDER + n :] != GARBAGE).any()) for w, n in kept)


def attended(q: Any, k: Any, v: Any, keep: Any) -> tuple[Any, Any]:
    """(output, log-sum-exp) in float64; a row that sees nothing is 0."""
    import torch

    r = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(r, 1) for x in (k, v))
    s = q.double() @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if keep is not None:
        s = s.masked_fill(~keep, -float("inf"))
    o = torch.softmax(s, -1) @ v
    if keep is not None:
        o = o.masked_fill(~keep.any(-1)[:, None], 0.0)
    return o, torch.logsumexp(s, -1)


def stressed(kind: str, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    import torch

    n = k.shape[2]
    ramp = torch.linspace(0.1, 12, n, device=q.device)[None, None, :, None]
    if kind == "rising":
        return q.abs(), (k.abs() * ramp).to(k.dtype), v
    if kind == "falling":
        return q.abs(), (k.abs() * ramp.flip(2)).to(k.dtype), v
    if kind == "negative":
        return (q.abs() * 6).to(q.dtype), -(k.abs() * 2).to(k.dtype), v
    if kind == "last":
        k = k.clone()
        k[:, :, -1] = q[:, : k.shape[1], -1] * 20
        return q, k, v
    if kind == "large":
        return (q * 6).to(q.dtype), k, v
    if kind in ("nan", "inf", "-inf"):
        v, k = v.clone(), k.clone()
        # every row sees the first key: what a weight of 0 makes of an infinity is free
        (k if kind == "nan" else v)[:, :, n // 2 if kind == "nan" else 0, 3] = float(kind)
        return q, k, v
    return q, k, v


def same(a: Any, b: Any) -> float:
    """The relative L2 error; infinite where NaN or infinities stand in other places."""
    import torch

    a, b = a.double(), b.double()
    odd = ~torch.isfinite(b)
    if bool((odd != ~torch.isfinite(a)).any()) or bool((torch.isnan(a) != torch.isnan(b)).any()):
        return float("inf")
    a, b = a.masked_fill(odd, 0), b.masked_fill(odd, 0)
    return float((a - b).norm() / b.norm().clamp(min=1e-30))


def _masks(name: str, m: int, n: int) -> Iterator[tuple[str, Any, Any]]:
    """(label, argument of the entry, which keys a row sees)."""
    import torch

    rows, columns = torch.arange(m, device="cuda")[:, None], torch.arange(n, device="cuda")
    if case(name)[0] is WINDOW:
        yield "window", SEEN, (rows >= columns) & (rows - columns < SEEN)
        return
    yield "full", False, None
    yield "causal", True, rows >= columns


def given(name: str, q: Any, k: Any) -> tuple[Any, Any, list[Any], Any, Any]:
    """(q, k and what else the kernel takes behind v, then q and k as it means them) of a case's dtype."""
    import torch

    if case(name)[0] in (INT8_QK, INT8_BLOCKS):  # a scale for each token, or for 128 of them
        each = 1 if case(name)[0] is INT8_QK else 128
        most = [torch.nn.functional.pad(x.float().abs().amax(-1), (0, -x.shape[2] % each)) for x in (q, k)]
        kept = [(x.unflatten(-1, (-1, each)).amax(-1) / 127).clamp(min=1e-6) for x in most]
        scales = [s.repeat_interleave(each, -1)[..., : x.shape[2]] for x, s in zip((q, k), kept, strict=True)]
        a, b = ((x.float() / s[..., None]).round().to(torch.int8) for x, s in zip((q, k), scales, strict=True))
        root = math.sqrt(q.shape[-1])
        meant = [x.double() * s.double()[..., None] for x, s in zip((a, b), scales, strict=True)]
        return a, b, [kept[0] / root, kept[1]], *meant
    if case(name)[0] is FP8_QK:
        q, k = (x.float().clamp(-448, 448).to(torch.float8_e4m3fn) for x in (q, k))
    return q, k, [], q, k


def check_attention(name: str, run: Callable[..., Any], torch_: Bordered, sizes: list[Any], kinds: Any) -> list[str]:
    import torch

    dtype = torch.float16 if case(name)[1] == "f16" else torch.bfloat16
    worst: dict[str, float] = {}
    said, checked = [], 0
    if case(name)[0] is WINDOW:
        kinds = [x for x in kinds if "inf" not in x]  # not every row sees the first key
    if case(name)[0] in (FP8_QK, INT8_QK, INT8_BLOCKS):
        kinds = [x for x in kinds if x not in ("nan", "inf", "-inf", "last")]
    for b, h, g, m, n in sizes:
        for label, argument, keep in _masks(name, m, n):
            for kind in kinds:
                q, k, v = (
                    torch.randn(b, x, y, dim(name), device="cuda").to(dtype) for x, y in ((h, m), (g, n), (g, n))
                )
                q, k, v = stressed(kind, q, k, v)
                q, k, more, meant_q, meant_k = given(name, q, k)
                got, again = (run(q, k, v, *more, argument) for _ in range(2))
                broken = torch_.broken()
                both, second = ((x,) if torch.is_tensor(x) else x for x in (got, again))
                right = attended(meant_q, meant_k, v, keep)
                checked += 1
                for i, (x, y) in enumerate(zip(both, second, strict=True)):
                    error = same(x, right[i])
                    key = f"{kind}{' lse' if i else ''}"
                    worst[key] = max(worst.get(key, 0.0), error)
                    repeats = torch.equal(x.view(torch.uint8), y.view(torch.uint8))
                    if error > (1e-5 if i else 6e-3) or not repeats or broken:
                        at = f"{kind} {label} {(b, h, g, m, n)} output {i}"
                        said.append(f"{at}: {error:.1e} repeats={repeats} border={'broken' if broken else 'whole'}")
    errors = " ".join(f"{k} {e:.1e}" for k, e in worst.items())
    return [*said[:6], f"checked {checked}, wrong {len(said)}; worst {errors}"]


def check_product(name: str, run: Callable[..., Any], torch_: Bordered, sizes: list[Any]) -> list[str]:
    import torch

    worst, said = 0.0, []
    narrow = case(name)[0] is FP8
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}[case(name)[1]]
    for m, n, k in sizes:
        if narrow:
            n, k = 16 * -(-n // 16), 16 * -(-k // 16)
        a = torch.randn(m, k, device="cuda").to(dtype)
        b = torch.randn(*((n, k) if narrow else (k, n)), device="cuda").to(dtype)
        bias = [torch.randn(n, device="cuda")] if case(name)[0] is GEMM else []
        got, again = run(a, b, *bias), run(a, b, *bias)
        broken = torch_.broken()
        right = a.double() @ (b.double().T if narrow else b.double())
        right = torch.relu(right + bias[0].double()) if bias else right
        error = same(got, right)
        worst = max(worst, error)
        if error > 4e-3 or not torch.equal(got, again) or broken:
            said.append(f"{(m, n, k)}: {error:.1e} repeats={torch.equal(got, again)} broken={broken}")
    return [*said[:6], f"checked {len(sizes)}, wrong {len(said)}; worst {worst:.1e}"]


def child_check(name: str, part: str, quick: bool) -> list[str]:
    """`part`: check (stress inputs), sizes (1 to 700), twelve and three (under a sanitizer)."""
    import torch

    torch.manual_seed(7)
    run, language, module = build(name)
    if language != "gluon":
        return ["not specialised: wrong 1" if not name.startswith("drawn") else "plain Triton: checked 0, wrong 0"]
    module.torch = torch_ = Bordered()
    if case(name)[0] in PRODUCTS:
        sizes = [(1, 8, 8), (128, 256, 64), (127, 264, 72), (129, 248, 200), (300, 520, 1000), (1000, 2048, 512)]
        sizes = {
            "sizes": [(m, 8 * -(-m // 8), 8 * (1 + m % 40)) for m in range(1, 701)],
            "twelve": TWELVE_PRODUCTS,
            "three": TWELVE_PRODUCTS[6:9],
        }.get(part, sizes)
        return check_product(name, run, torch_, sizes)
    if part == "sizes":
        every = [(1, 2, 1, m, m) for m in range(1, 701)] + [(3, 6, 2, m, 701 - m) for m in range(1, 700, 13)]
        every += [(b, 3, 1, 40 * b + 1, 70 * b - 3) for b in (5, 7, 9)]
        return check_attention(name, run, torch_, every, ["plain"])
    if part in ("twelve", "three"):
        sizes = TWELVE if part == "twelve" else [(1, 2, 1, 129, 200), (2, 2, 2, 256, 256), (1, 2, 2, 700, 511)]
        return check_attention(name, run, torch_, sizes, ["plain" if part == "twelve" else "rising"])
    if name.startswith("drawn"):
        try:
            return check_attention(name, run, torch_, TWELVE[3:], ["plain", "rising"])
        except Exception as error:
            if "OutOfResources" not in type(error).__name__:
                raise
            return [f"{error}: checked 0, wrong 0"]  # the check of a program knows the least that it needs
    if quick:
        return check_attention(
            name, run, torch_, [*SIZES[1:5], (1, 4, 4, 1024, 1024)], ["plain", "rising", "falling", "last", "nan"]
        )
    return check_attention(name, run, torch_, SIZES, KINDS)


if __name__ == "__main__":
    print("\n".join(child_check(sys.argv[1], sys.argv[2], "quick" in sys.argv[3:])))
