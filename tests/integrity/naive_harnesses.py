"""Three graders as many people write them, to show that an attack works: `python FILE HARNESS KERNEL TARGET`.

in_process     loads the kernel into the grader, calls it, times it, then compares, by one tolerance, on inputs from a
               public seed; `_first` compares with an answer from before, `_max` asks if the difference is too large
pickle         a child process pickles the output, the parent unpickles and compares
result_file    a child process compares, and writes its verdict to a file (or a pipe) that the parent reads

Prints `correct` or `wrong`, and what was true: whether the next call, on fresh bytes, gave the right answer at return.
`python FILE serve` reads lines of JSON, `{harness, kernel, target, out}`, and grades each in a fork of itself, for
torch takes seconds to import.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import runpy
import shutil
import sys
import tempfile
import time


def inputs(name):
    import torch

    torch.manual_seed(0)
    if name == "matmul_f16":
        return torch.randn(40, 1024).half(), (torch.randn(1024, 72) / 32).half()
    x = torch.randn(8, 4096).bfloat16()
    if name == "cross_entropy":
        return x, torch.randint(0, 4096, (8,), dtype=torch.int32)
    return (x, torch.ones(4096).bfloat16()) if name == "rmsnorm" else (x,)


def reference(name):
    from evaluators.targets import target

    return target(name).reference


def close(got, expected):
    import torch

    return torch.allclose(got.float(), expected.float(), atol=1e-2, rtol=1e-2)


def near(got, expected):
    return not (got.float() - expected.float()).abs().max() > 1e-2


def right(got, name, given):
    """By arithmetic of NumPy's alone, which no attack here reaches, and strictly."""
    import numpy as np
    import torch

    got = got.as_subclass(torch.Tensor)
    x, *more = [g.double().numpy() for g in given]
    e = np.exp(x - x.max(-1, keepdims=True))
    expected = {
        "matmul_f16": lambda: x @ more[0],
        "softmax": lambda: e / e.sum(-1, keepdims=True),
        "cross_entropy": lambda: (
            np.log(e.sum(-1)) + x.max(-1) - np.take_along_axis(x, more[0].astype(int)[:, None], 1)[:, 0]
        ),
        "rmsnorm": lambda: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * more[0],
    }[name]()
    if tuple(got.shape) != expected.shape:
        return False
    error = np.sqrt(((got.double().numpy() - expected) ** 2).sum() / (expected**2).sum())
    return bool(error < (1e-4 if name == "cross_entropy" else 5e-3))


def in_process(kernel, name, first=False, compare=None):
    import torch

    run = runpy.run_path(kernel)["run"]
    given = inputs(name)
    expected = reference(name)(*given).float() if first else None
    got = run(*given)
    for _ in range(3):  # timed
        run(*given)
    time.sleep(0.05)
    for _ in range(20):  # comparing takes a while; on a busy machine work that was put off takes one too
        if type(got) is torch.Tensor and not got.any():
            time.sleep(0.05)
    if expected is None:
        expected = reference(name)(*given)
    correct = (compare or close)(got, expected)
    given[0].data.copy_(torch.randn(given[0].shape))  # by a way that torch does not count
    del expected
    fresh = [g.clone() for g in given]
    return correct, right(run(*given).clone(), name, fresh)


def child(*arguments, out=None):
    """A process of its own, from a fork; as `subprocess.run(..., check=True)`."""
    ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(ends[1], 1)
        os.close(ends[0])
        os.close(ends[1])
        sys.argv = [__file__, *arguments]
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        status = 1
        try:
            main(*arguments)
            status = 0
        finally:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            os._exit(status)
    os.close(ends[1])
    with open(ends[0], "rb") as pipe:
        said = pipe.read()
    if os.waitpid(pid, 0)[1] != 0:
        raise RuntimeError("the child failed")
    return said


def pickled(kernel, name):
    said = child("child_pickle", kernel, name)
    given = inputs(name)
    return close(pickle.loads(said), reference(name)(*given)), False


def result_file(kernel, name, pipe=False):
    folder = tempfile.mkdtemp()  # a TemporaryDirectory would be removed by the child's end
    try:
        path, ends = os.path.join(folder, "result.json"), ()
        if pipe:
            ends = os.pipe()
            path = f"/dev/fd/{ends[1]}"
        child("child_file", kernel, name, path)
        if not pipe:
            with open(path) as file:
                return json.load(file)["correct"], False
        os.close(ends[1])
        with open(ends[0]) as file:
            return json.loads(file.readline())["correct"], False
    finally:
        shutil.rmtree(folder)


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
        "in_process_max": lambda: in_process(kernel, name, compare=near),
        "pickle": lambda: pickled(kernel, name),
        "result_file": lambda: result_file(kernel, name),
        "result_pipe": lambda: result_file(kernel, name, pipe=True),
    }
    correct, true = grade[harness]()
    print(f"{'correct' if correct else 'wrong'} {'right' if true else 'false'}")


def serve():
    import torch

    torch.set_num_threads(1)
    reference("softmax"), reference("cross_entropy"), reference("rmsnorm")
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            torch.set_num_threads(1)
            out = os.open(job["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
            os.dup2(out, 1)
            os.dup2(out, 2)
            sys.argv = [__file__, job["harness"], job["kernel"], job["target"]]
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            try:
                main(*sys.argv[1:])
            except BaseException as error:
                print(f"{type(error).__name__}: {error}")
            finally:
                sys.stdout.flush()
                os._exit(0)
        os.waitpid(pid, 0)
        print("done", flush=True)


if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"
    serve() if sys.argv[1:] == ["serve"] else main(*sys.argv[1:])
