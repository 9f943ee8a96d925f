"""Attention by blocks of queries that skips what the mask hides, with the grouped heads read in place."""

import torch


def run(q, k, v, causal=False):
    group = q.shape[1] // k.shape[1]
    out = torch.empty(*q.shape[:3], v.shape[-1], dtype=q.dtype)
    for m in range(0, q.shape[2], 64):
        rows = q[:, :, m : m + 64].float()
        seen = min(m + 64, k.shape[2]) if causal else k.shape[2]
        keys = k[:, :, :seen].float().repeat_interleave(group, 1)
        values = v[:, :, :seen].float().repeat_interleave(group, 1)
        scores = rows @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5
        if causal:
            late = torch.arange(seen)[None] > m + torch.arange(rows.shape[2])[:, None]
            scores = scores.masked_fill(late, float("-inf"))
        out[:, :, m : m + 64] = (torch.softmax(scores, -1) @ values).to(q.dtype)
    return out
