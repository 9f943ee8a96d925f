"""Three graders as many people write them, to show that an attack works: `python FILE HARNESS KERNEL TARGET`.

in_process     loads the kernel into the grader, calls it, times it, then compares (or with `first` compares with an
               answer from before), by one tolerance, on inputs from a public seed
pickle         a child process pickles the output, the parent unpickles and compares
result_file    a child process compares, and writes its verdict to a file (or a pipe) that the parent reads

Prints `correct` or `wrong`, and what was true: whether the next call, on fresh bytes, gave the right answer at return.
"""

from __future__ import annotations

import json
import os
import pickle
import runpy
import subprocess
import sys
import tempfile
import time


def inputs(name):
    import torch

    torch.manual_seed(0)
    x = torch.randn(8, 4096).bfloat16()
    return (x, torch.randint(0, 4096, (8,), dtype=torch.int32)) if name == "cross_entropy" else (x,)


def reference(name):
    from evaluators.targets import target

    return target(name).reference


def close(got, expected):
    import torch

    return torch.allclose(got.float(), expected.float(), atol=1e-2, rtol=1e-2)


def right(got, name, given):
    """By arithmetic alone, and strictly."""
    import torch

    expected = reference(name)(*(g.double() if g.is_floating_point() else g for g in given))
    got = got.as_subclass(torch.Tensor)
    if got.shape != expected.shape:
        return False
    error = float((got.double() - expected).square().sum() / expected.square().sum()) ** 0.5
    return error < (1e-4 if name == "cross_entropy" else 1e-2)


def in_process(kernel, name, first=False):
    run = runpy.run_path(kernel)["run"]
    given = inputs(name)
    expected = reference(name)(*given) if first else None
    got = run(*given)
    for _ in range(3):  # timed
        run(*given)
    time.sleep(0.03)
    if expected is None:
        expected = reference(name)(*given)
    correct = close(got, expected)
    import torch

    given[0].copy_(torch.randn(8, 4096))
    del expected
    fresh = [g.clone() for g in given]
    return correct, right(run(*given).clone(), name, fresh)


def pickled(kernel, name):
    done = subprocess.run([sys.executable, __file__, "child_pickle", kernel, name], stdout=subprocess.PIPE, check=True)
    given = inputs(name)
    return close(pickle.loads(done.stdout), reference(name)(*given)), False


def result_file(kernel, name, pipe=False):
    with tempfile.TemporaryDirectory() as folder:
        path, ends = os.path.join(folder, "result.json"), ()
        if pipe:
            ends = os.pipe()
            path = f"/dev/fd/{ends[1]}"
        subprocess.run([sys.executable, __file__, "child_file", kernel, name, path], pass_fds=ends[1:], check=True)
        if not pipe:
            with open(path) as file:
                return json.load(file)["correct"], False
        os.close(ends[1])
        with open(ends[0]) as file:
            return json.loads(file.readline())["correct"], False


def main(harness, kernel, name, *more):
    if harness == "child_pickle":
        run = runpy.run_path(kernel)["run"]
        sys.stdout.buffer.write(pickle.dumps(run(*inputs(name))))
        return
    if harness == "child_file":
        run = runpy.run_path(kernel)["run"]
        correct = close(run(*inputs(name)), reference(name)(*inputs(name)))
        with open(more[0], "w") as file:
            file.write(json.dumps({"correct": bool(correct), "seconds": 1e-3}) + "\n")
        return
    grade = {
        "in_process": lambda: in_process(kernel, name),
        "in_process_first": lambda: in_process(kernel, name, first=True),
        "pickle": lambda: pickled(kernel, name),
        "result_file": lambda: result_file(kernel, name),
        "result_pipe": lambda: result_file(kernel, name, pipe=True),
    }
    correct, true = grade[harness]()
    print(f"{'correct' if correct else 'wrong'} {'right' if true else 'false'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
