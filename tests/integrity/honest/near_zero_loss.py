"""A loss whose values may lie near zero beside large logits: a relative tolerance by element would reject it."""


def run(x, t):
    values = x.float()
    high = values.amax(-1, keepdim=True)
    total = (values - high).exp().sum(-1).log() + high[:, 0]
    return total - values.gather(1, t.long()[:, None])[:, 0]
