"""Inputs and right answers of the jobs that a worker was asked for, kept on the device for the next candidate."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from evaluators.device_inputs import answers, inputs_of, shifted
from evaluators.sustained import rotation

_KEPT_BYTES = 0.4  # share of the device's memory that inputs and answers kept for the next candidate may hold
_KEPT_MOST = 64  # jobs
_RESERVED = 0.7  # share of the device's memory from which on what torch keeps for itself is given back


@dataclass
class Prepared:
    job: Mapping[str, Any]
    inputs: list[torch.Tensor]
    prints: list[int]
    right: list[list[tuple[torch.Tensor, ...]]]  # (oracle, honest) by slice, by output
    more: list[list[torch.Tensor]] = field(default_factory=list)  # other inputs, to rotate

    def mutated(self) -> list[str]:
        """The inputs whose bytes are not what they were."""
        named = zip(self.job["inputs"], self.inputs, self.prints, strict=True)
        return [t["name"] for t, x, known in named if fingerprint(x) != known]

    def bytes(self) -> int:
        tensors = [*self.inputs, *(x for row in self.more for x in row), *(x for s in self.right for p in s for x in p)]
        return sum(x.numel() * x.element_size() for x in tensors)


_jobs: OrderedDict[str, Prepared] = OrderedDict()


def ready(job: Mapping[str, Any]) -> Prepared:
    """What a job needs: kept, or made now. What fails here is ours or the target's."""
    key = json.dumps(job, sort_keys=True)
    if key in _jobs:
        _jobs.move_to_end(key)
        return _jobs[key]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    room = torch.cuda.get_device_properties(0).total_memory * _KEPT_BYTES if device == "cuda" else 2e9
    while len(_jobs) >= _KEPT_MOST or (_jobs and sum(p.bytes() for p in _jobs.values()) > room):
        _jobs.popitem(last=False)
    inputs = inputs_of(job, device, function)
    reference = function(job["reference"])
    right = []
    for cut in job["slices"]:
        # kept as float32: 24 bits are enough to judge narrow outputs by, and float32 ones are small
        keep = torch.float64 if any(t["dtype"] in ("f32", "f64") for t in job["outputs"]) else torch.float32
        found = answers(job, inputs, cut, reference)
        right.append([tuple(x.to(keep) if x.is_floating_point() else x for x in pair) for pair in found])
        del found
    more: list[list[torch.Tensor]] = []
    wanted = _sets(inputs, job)
    for turn in range(1, wanted):
        if job["make_inputs"] is None:
            more.append(inputs_of({**job, "seed": job["seed"] + turn}, device, function))
        else:
            more.append(shifted(inputs, turn))
    if device == "cuda" and torch.cuda.memory_reserved() > _RESERVED * torch.cuda.mem_get_info()[1]:
        torch.cuda.empty_cache()  # what the right answers took in between is big
    made = Prepared(job, inputs, [fingerprint(x) for x in inputs], right, more)
    _jobs[key] = made
    return made


def _sets(inputs: list[torch.Tensor], job: Mapping[str, Any]) -> int:
    """How many sets of inputs take turns: enough that none is still in the L2 when its turn comes again."""
    if not job.get("rotate"):
        return 1
    size = sum(x.numel() * x.element_size() for x in inputs)
    return rotation(size)


def fingerprint(tensor: torch.Tensor) -> int:
    """A fingerprint of the bytes: their sum as integers, which any stray write would change."""
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    whole = flat[: flat.numel() // 4 * 4].view(torch.int32)
    return int(whole.sum(dtype=torch.int64)) + int(flat[flat.numel() // 4 * 4 :].sum(dtype=torch.int64))


def forget() -> None:
    """Everything goes: an input was written to, or memory ran out."""
    _jobs.clear()


def kept() -> int:
    return len(_jobs)


_functions: dict[str, Callable[..., Any]] = {}


def function(where: Mapping[str, str]) -> Callable[..., Any]:
    """A target's own function: from its module where that imports, else from its file."""
    key = json.dumps(where, sort_keys=True)
    if key not in _functions:
        module: Any = None
        with contextlib.suppress(ImportError):
            module = importlib.import_module(where["module"])
        if module is None or not hasattr(module, where["name"].partition(".")[0]):
            spec = importlib.util.spec_from_file_location(f"target_{abs(hash(where['file']))}", where["file"])
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        found: Any = module
        for part in where["name"].split("."):
            found = getattr(found, part)
        _functions[key] = found
    return _functions[key]
