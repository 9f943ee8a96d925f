"""Baselines of attention: torch's own (cuDNN and FlashAttention-2; on AMD flash, by AOTriton or CK), FlexAttention,
SageAttention, a plain kernel."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from evaluators.baselines import Baseline, Call, CannotRun, Setting, plainly

if TYPE_CHECKING:
    from torch import Tensor


def _grouped(setting: Setting) -> bool:
    return setting.inputs[0].shape[1] != setting.inputs[1].shape[1]


def _sdpa(backend: Any) -> Any:
    def make(setting: Setting) -> Call:
        causal, grouped = bool(setting.params.get("causal", False)), _grouped(setting)
        if causal and setting.inputs[0].shape[2] != setting.inputs[1].shape[2]:
            raise CannotRun("its causal mask is counted from the bottom right where lengths differ")

        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

        return plainly(run)

    return make


def _flex(setting: Setting) -> Call:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, _ = setting.inputs
    if not q.is_cuda:
        raise CannotRun("FlexAttention is measured on a GPU only")
    mask = None
    if setting.params.get("causal"):
        mask = create_block_mask(
            lambda b, h, m, n: m >= n, B=None, H=None, Q_LEN=q.shape[2], KV_LEN=k.shape[2], device=q.device
        )
    grouped = _grouped(setting)
    torch._dynamo.reset()
    fast = torch.compile(flex_attention, dynamic=False)
    return plainly(lambda q, k, v: fast(q, k, v, block_mask=mask, enable_gqa=grouped))


def _plain(lazy: bool) -> Any:
    def make(setting: Setting) -> Call:
        from evaluators.baselines.plain_attention import attend, settings

        q, _, v = setting.inputs
        causal = bool(setting.params.get("causal", False))
        if q.shape[-1] != v.shape[-1]:
            raise CannotRun("it takes one head dim for all")
        chosen = settings(q.shape[-1])
        return plainly(lambda q, k, v: attend(q, k, v, causal, *chosen, lazy))

    return make


def _sage(setting: Setting) -> Call:
    try:
        sageattn = importlib.import_module("sageattention").sageattn
    except ImportError:
        raise CannotRun("sageattention is not installed") from None
    causal = bool(setting.params.get("causal", False))
    own: dict[int, Tensor] = {}  # version 1 takes the mean off the keys that it is given, in place

    def run(q: Tensor, k: Tensor, v: Tensor) -> Any:
        if k.data_ptr() not in own:
            own[k.data_ptr()] = k.clone()
        return sageattn(q, own[k.data_ptr()], v, tensor_layout="HND", is_causal=causal)

    return plainly(run)


_FLASH = _sdpa(SDPBackend.FLASH_ATTENTION)
_OF_TORCH = [
    Baseline("cuDNN", "torch SDPA, cuDNN", _sdpa(SDPBackend.CUDNN_ATTENTION)),
    Baseline("FA2", "torch SDPA, FlashAttention-2", _FLASH),
]
if torch.version.hip:
    _OF_TORCH = [
        Baseline("flash", "torch SDPA, flash attention by AOTriton or CK", _FLASH),
        Baseline("efficient", "torch SDPA, memory-efficient, by AOTriton", _sdpa(SDPBackend.EFFICIENT_ATTENTION)),
    ]

BASELINES = {
    "attention": [
        *_OF_TORCH,
        Baseline("FlexAttention", "torch FlexAttention, compiled", _flex, tunes=True),
        Baseline("plain Triton", "a plain kernel at its best single setting, rescaling always", _plain(False)),
        Baseline("plain lazy", "the same, rescaling only where a maximum rises by much", _plain(True)),
        Baseline("SageAttention", "8-bit products (sageattention)", _sage, "approximate"),
    ]
}
