"""Makes its function from a template, as code generators do."""

import torch

TEMPLATE = "def work(x):\n    return torch.softmax(x.{wide}(), {dim})\n"
space = {"torch": torch}
exec(TEMPLATE.format(wide="float", dim=-1), space)


def run(x):
    return space["work"](x).to(x.dtype)
