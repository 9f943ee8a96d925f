"""The programs that the spec teaches by; the tests parse, check and evaluate each."""

from __future__ import annotations

ATTENTION = """\
kernel attention
in  q[b h m d] bf16, k[b g n d] bf16, v[b g n e] bf16
out o[b h m e] bf16, lse[b h m] f32
axis g = h // (H // G)                  # H heads of q share G of k and v
param causal bool
s[b h m n] = sum[d](q * k) * rsqrt(D)   # f32, never stored
c[b h m n] = where(not causal or m >= n, s, -inf)
top[b h m] = max[n](c)
lse = top + log(sum[n](exp(c - top)))
o = sum[n](softmax[n](c) * v)
schedule
tile m=128 n=64
grid b h m
stream n stages=2
"""

PIPELINE = """\
kernel gated_mlp
in  x[r c] bf16, w[c] f32, up[c f] bf16, gate[c f] bf16, down[f o] bf16
out y[r o] bf16
xn[r c] bf16 = x * rsqrt(mean[c](x * x) + 1e-6) * w
a[r f] bf16 = silu(sum[c](xn * gate)) * sum[c](xn * up)
y = sum[f](a * down)
schedule
kernels xn | a | y                      # three kernels; without this line it is one
tile r=64 o=64 f=32
stream f stages=3
schedule xn
tile r=1 c=all
schedule a
tile r=64 f=64 c=32
stream c stages=3
"""

QUANTISED = """\
kernel int8_gemm
in  a[m k] bf16, b[k n] bf16
out c[m n] bf16
axis kb = k // 128
qa[m k], sa[m kb] = quantize(a, int8)
qb[k n], sb[kb n] = quantize(b, int8)
p[m n kb] = sum[k in kb](qa * qb)
c = sum[kb](p * sa * sb)
schedule
kernels qa sa | qb sb | c
"""
