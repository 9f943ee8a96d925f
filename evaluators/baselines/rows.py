"""Baselines of targets that work on rows: torch eagerly, torch.compile, and a copy of the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from evaluators.baselines import COPY, Baseline, compiled, plainly

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def rmsnorm(x: Tensor, w: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), w, 1e-6)


def layernorm(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, bias, 1e-5)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def cross_entropy(x: Tensor, t: Tensor) -> Tensor:
    """f32 losses of bf16 logits: torch widens them, eagerly by a pass of its own."""
    return F.cross_entropy(x.float(), t.long(), reduction="none")


def _baselines(function: Callable[..., Tensor], eager: str) -> list[Baseline]:
    return [
        Baseline("eager", eager, lambda setting: plainly(function)),
        Baseline("torch.compile", f"{eager}, compiled", lambda setting: compiled(function), tunes=True),
        COPY,
    ]


BASELINES = {
    "cross_entropy": _baselines(cross_entropy, "F.cross_entropy of f32 logits"),
    "layernorm": _baselines(layernorm, "F.layer_norm"),
    "rmsnorm": _baselines(rmsnorm, "F.rms_norm"),
    "softmax": _baselines(softmax, "torch.softmax"),
}
