"""Plain PyTorch functions as people write them, with what each is imported from: `avo import` reads this file."""

import math

import torch
import torch.nn.functional as F

B = torch.bfloat16
REFUSED = ("rope_filled", "rope_complex")  # of those with inputs of their own


def zeros(*shapes, dtype=B):
    return tuple(torch.zeros(s, dtype=dtype) for s in shapes)


def sdpa(q, k, v):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mask = torch.tril(torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool))
    s = s.masked_fill(~mask, float("-inf"))
    return torch.softmax(s, dim=-1) @ v


def sdpa_inputs():
    return zeros((2, 4, 96, 32), (2, 4, 80, 32), (2, 4, 80, 32))


def fused_sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def fused_sdpa_inputs():
    return zeros((2, 8, 96, 32), (2, 2, 80, 32), (2, 2, 80, 32))


def grouped(q, k, v):
    b, g, n, d = k.shape
    h = q.shape[1]
    k = k[:, :, None].expand(b, g, h // g, n, d).reshape(b, h, n, d)
    v = v.repeat_interleave(h // g, dim=1)
    p = torch.softmax((q @ k.mT).float() * d**-0.5, -1).to(q.dtype)
    return p @ v


grouped_inputs = fused_sdpa_inputs


def window(q, k, v, w: int = 16):
    i, j = torch.arange(q.shape[2]), torch.arange(k.shape[2])
    keep = (i[:, None] >= j[None, :]) & (i[:, None] - j[None, :] < w)
    s = torch.einsum("bhmd,bhnd->bhmn", q, k) * q.shape[-1] ** -0.5
    s = s.masked_fill(~keep, float("-inf"))
    return torch.einsum("bhmn,bhnd->bhmd", s.softmax(-1), v)


window_inputs = sdpa_inputs


def alibi(q, k, v, slopes):
    dist = torch.arange(k.shape[2])[None, :] - torch.arange(q.shape[2])[:, None]
    s = q @ k.mT / math.sqrt(q.shape[-1]) + slopes[:, None, None] * dist
    s = s.masked_fill(dist > 0, -math.inf)
    return s.softmax(-1).to(v.dtype) @ v


def alibi_inputs():
    return (*sdpa_inputs(), torch.zeros(4))


def softcap(q, k, v):
    s = (q @ k.transpose(-1, -2)) * 0.125
    s = 30.0 * torch.tanh(s / 30.0)
    return s.softmax(-1) @ v


softcap_inputs = sdpa_inputs


def attention_layer(x, wq, wk, wv, wo):
    b, s, c = x.shape
    q = (x @ wq).view(b, s, -1, 16).transpose(1, 2)
    k = (x @ wk).view(b, s, -1, 16).transpose(1, 2)
    v = (x @ wv).view(b, s, -1, 16).transpose(1, 2)
    o = F.scaled_dot_product_attention(q, k, v)
    return o.transpose(1, 2).reshape(b, s, c) @ wo


def attention_layer_inputs():
    return (*zeros((2, 24, 64)), *[torch.zeros(64, 64, dtype=B)] * 4)  # one tensor four times, as people do


def rmsnorm(x, w):
    v = x.float()
    v = v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6)
    return w * v.to(x.dtype)


def rmsnorm_inputs():
    return zeros((64, 256), (256,))


def fused_rmsnorm(x, w):
    return F.rms_norm(x, (x.shape[-1],), w, 1e-6)


def fused_rmsnorm_inputs():
    return zeros((3, 64, 256), (256,))


def rmsnorm_as_torch_has_it(x, w):
    return F.rms_norm(x, (x.shape[-1],), w)


def rmsnorm_as_torch_has_it_inputs():
    return zeros((64, 256), (256,))


def layernorm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


def layernorm_inputs():
    return (torch.zeros(64, 256, dtype=B), torch.zeros(256), torch.zeros(256))


def layernorm_by_hand(x, w, b):
    mean = x.mean(-1, keepdim=True)
    var = x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(var + 1e-5) * w + b


layernorm_by_hand_inputs = layernorm_inputs


def swiglu(x, wg, wu):
    return F.silu(x @ wg) * (x @ wu)


def swiglu_inputs():
    return zeros((64, 96), (96, 80), (96, 80))


def block(x, w, wg, wu, wd):
    h = F.rms_norm(x, (x.shape[-1],), w, 1e-6)
    return x + (F.silu(h @ wg) * (h @ wu)) @ wd


def block_inputs():
    return zeros((64, 320), (320,), (320, 288), (320, 288), (288, 320))


def cross_entropy(x, t):
    return F.cross_entropy(x.float(), t)


def cross_entropy_inputs():
    return (torch.zeros(64, 500, dtype=B), torch.zeros(64, dtype=torch.long))


def cross_entropy_rows(x, t):
    logp = torch.log_softmax(x.float(), dim=-1)
    return -logp.gather(1, t.unsqueeze(1)).squeeze(1)


cross_entropy_rows_inputs = cross_entropy_inputs


def linear_cross_entropy(x, w, t):
    return F.cross_entropy((x @ w.T).float(), t, reduction="none")


def linear_cross_entropy_inputs():
    return (*zeros((64, 96), (300, 96)), torch.zeros(64, dtype=torch.long))


def linear_gelu(x, w, b):
    return F.gelu(F.linear(x, w, b))


def linear_gelu_inputs():
    return zeros((64, 96), (128, 96), (128,))


def rope(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-b, a), dim=-1) * sin).to(x.dtype)


def rope_inputs():
    return (torch.zeros(2, 4, 32, 64, dtype=B), torch.zeros(32, 64), torch.zeros(32, 64))


def rope_pairs(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2).to(x.dtype)


def rope_pairs_inputs():
    return (torch.zeros(2, 4, 32, 64, dtype=B), torch.zeros(32, 32), torch.zeros(32, 32))


def rope_filled(x, cos, sin):
    y = torch.empty_like(x)
    y[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    y[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return y


rope_filled_inputs = rope_pairs_inputs


def rope_complex(x, turn):
    return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * turn).flatten(-2)


def rope_complex_inputs():
    return (torch.zeros(2, 4, 32, 64), torch.zeros(32, 32, dtype=torch.complex64))


def conv(x, w, b):
    return F.conv2d(x, w, b, stride=2, padding=1)


def conv_inputs():
    return zeros((2, 8, 20, 24), (16, 8, 3, 3), (16,), dtype=torch.float16)


def gram(x):
    return x @ x.T


def gram_inputs():
    return zeros((64, 48))


def embedding(w, i):
    return w[i]


def embedding_inputs():
    return (torch.zeros(100, 64, dtype=B), torch.zeros(2, 32, dtype=torch.long))


def two_results(x, w):
    y = x @ w
    return y, y.float().pow(2).mean(-1)


def two_results_inputs():
    return zeros((64, 96), (96, 48))


def head_norm(x):
    b, s, c = x.shape
    y = x.view(b, s, 8, c // 8)
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
    return y.reshape(b, s, c)


def head_norm_inputs():
    return zeros((2, 32, 128))


def packed_attention(qkv):
    q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def packed_attention_inputs():
    return zeros((2, 48, 3, 4, 32))


def decode(q, k, v, n: int = 40):
    s = torch.einsum("bhd,bnhd->bhn", q, k[:, :n]) * q.shape[-1] ** -0.5
    return torch.einsum("bhn,bnhd->bhd", s.softmax(-1), v[:, :n])


def decode_inputs():
    return zeros((2, 4, 32), (2, 64, 4, 32), (2, 64, 4, 32))


def int4_like(x, q, s):
    w = (q.float() * s.repeat_interleave(32, dim=1)).to(x.dtype)
    return x @ w.T


def int4_like_inputs():
    return (*zeros((64, 128)), torch.zeros(80, 128, dtype=torch.int8), torch.zeros(80, 4))


def fp8_rows(x):
    s = x.abs().amax(-1, keepdim=True).float() / 448
    return (x / s).to(torch.float8_e4m3fn), s.squeeze(-1)


def fp8_rows_inputs():
    return zeros((64, 96))


def capped_loss(x, w, t):
    z = 30 * torch.tanh((x @ w.T).float() / 30)
    return F.cross_entropy(z, t, reduction="sum")


def capped_loss_inputs():
    return (*zeros((64, 96), (200, 96)), torch.zeros(64, dtype=torch.long))


def group_norm(x, w, b):
    return F.group_norm(x, 8, w, b)


def group_norm_inputs():
    return zeros((2, 32, 8, 12), (32,), (32,))


def batch_norm(x, mean, var, w, b):
    return F.relu(F.batch_norm(x, mean, var, w, b, training=False))


def batch_norm_inputs():
    return zeros((2, 32, 8, 12), (32,), (32,), (32,), (32,), dtype=torch.float32)


def pooled(x):
    return F.max_pool2d(x, 2) - F.avg_pool2d(x, 2)


def pooled_inputs():
    return zeros((2, 8, 16, 16))


def depthwise(x, w):
    return F.silu(F.conv1d(x, w, groups=x.shape[1], padding=3)[..., : x.shape[-1]])


def depthwise_inputs():
    return zeros((2, 16, 40), (16, 1, 4))


def similarity(x, y):
    return F.cosine_similarity(x, F.elu(y) + 1, dim=-1)


def similarity_inputs():
    return zeros((64, 96), (64, 96), dtype=torch.float32)


# What cannot be said --------------------------------------------------------------------------------------------------


def several_troubles(x):
    y = torch.fft.fft(x)
    z = torch.sort(x, dim=-1).values
    return y.abs() + z


def in_place(x):
    x += 1
    return x * 2


def in_place_within(x, w):
    y = x * w
    y += 1
    y.clamp_(min=0)
    return y


def in_place_within_inputs():
    return zeros((64, 96), (96,))


def branch(x):
    if x.sum() > 0:
        return x
    return -x


def mask_index(x):
    return x[x > 0]


WEIGHT = torch.ones(64)


def closed_over(x):
    return x * WEIGHT


def random(x):
    return F.dropout(x, 0.5)


def wide(x):
    return x.double() * 2


def one_row(x):
    return x.mean(-1, keepdim=True)


def no_inputs(x):
    return x


example_inputs = (torch.zeros(16, 64),)
