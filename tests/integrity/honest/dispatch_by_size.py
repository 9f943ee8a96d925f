"""Small rows in one piece, wide ones in chunks: two ways, one answer."""

import torch


def run(x):
    if x.shape[1] < 600:
        return torch.softmax(x.float(), -1).to(x.dtype)
    high = torch.stack([c.float().amax(-1) for c in x.split(512, -1)]).amax(0)[:, None]
    total = sum((c.float() - high).exp().sum(-1, keepdim=True) for c in x.split(512, -1))
    return ((x.float() - high).exp() / total).to(x.dtype)
