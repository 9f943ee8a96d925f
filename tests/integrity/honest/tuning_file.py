"""Keeps what it tuned in a file of its own folder, as Triton does."""

import json
import os
import tempfile

import torch

PLACE = os.path.join(tempfile.gettempdir(), "tuned.json")


def run(x):
    try:
        with open(PLACE) as file:
            table = json.load(file)
    except FileNotFoundError:
        table = {}
    key = "x".join(map(str, x.shape))
    if key not in table:
        table[key] = 4
        with open(PLACE, "w") as file:
            json.dump(table, file)
    return torch.cat([torch.softmax(p.float(), -1) for p in x.split(table[key])]).to(x.dtype)
