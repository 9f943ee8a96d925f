"""`avo init [FOLDER]`: the files to start a target of one's own from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TARGET = '''\
"""A target of your own: each row of x divided by its Euclidean length.

    avo evolve --target my_target.py --hw b200

Change the reference, the program and the sizes. docs/targets.md explains every field.
"""

import torch

from avo import Target, Workload


def reference(x: torch.Tensor) -> torch.Tensor:
    """The job in PyTorch. Called in float64 for the exact values and in bf16 for the honest rounding error."""
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)


SEED = """\\
kernel row_l2
in  x[r c] bf16
out y[r c] bf16
y = x * rsqrt(sum[c](x * x) + 1e-6)

schedule
tile r=1 c=all
grid r
warps 4
"""

TARGET = Target(
    name="my_target",
    summary="rows divided by their Euclidean length, bf16",
    reference=reference,
    seed=SEED,
    workloads=(Workload({"r": 16384, "c": 4096}), Workload({"r": 4096, "c": 8192})),
    unit="GB/s",
)
'''

RECIPE = """\
# avo evolve -c run.toml      flags and --set override what stands here
target = "my_target.py"
hw = "b200"
steps = 48
seed = 0
archive = "avo.db"

# Sizes to score on, instead of the target's own.
# [workloads]
# long = "r=65536,c=4096"      # or the name of a set that the target has: few = "decode"
"""


def init(
    folder: Annotated[
        Path, typer.Argument(help="Where to write; made if it is not there.", metavar="[FOLDER]")
    ] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
) -> None:
    """Write my_target.py and run.toml, a working target of your own to start from.

    Example: avo init my_kernels
    """
    from avo.cli.console import say
    from avo.errors import UserMistake
    from avo.files import write_text

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserMistake(f"cannot make the folder {folder}: {error.strerror or error}") from None
    files = {folder / "my_target.py": TARGET, folder / "run.toml": RECIPE}
    there = [str(f) for f in files if f.exists()]
    if there and not force:
        are, them = ("are", "them") if len(there) > 1 else ("is", "it")
        raise UserMistake(f"{' and '.join(there)} {are} there already; --force overwrites {them}")
    for path, text in files.items():
        write_text(path, text, force)
        say(f"wrote {path}")
    where = "" if folder == Path() else f"cd {folder} && "
    say(f"next: {where}avo evolve -c run.toml")
