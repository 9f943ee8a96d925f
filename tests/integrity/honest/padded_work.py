"""Pads to a multiple of 64 with minus infinity, works there, and cuts the padding off."""

import torch


def run(x):
    pad = -x.shape[1] % 64
    wide = torch.nn.functional.pad(x.float(), (0, pad), value=float("-inf"))
    return torch.softmax(wide, -1)[:, : x.shape[1]].contiguous().to(x.dtype)
