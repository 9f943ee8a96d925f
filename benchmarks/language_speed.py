"""How long checking and lowering a program take, in a warm process: `python benchmarks/language_speed.py [--hw b200]`.

Every program of docs/examples, each several times and each time as if never seen before; the least of them, in
milliseconds of own CPU time. Fails where a check takes more than 10 ms or a lowering more than 30 ms.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dsl import anatomy
from dsl.check import check
from dsl.diagnostics import ProgramError
from dsl.hardware import hardware
from dsl.lowering import lower
from dsl.parser import parse

ROOT = Path(__file__).resolve().parents[1]
CHECK_MS, LOWER_MS, TIMES = 10.0, 30.0, 9


def least(work: Callable[[Any], Any], given: Callable[[], Any]) -> float:
    """Milliseconds of this process for what is done with a new object, the least of several."""
    found = []
    for _ in range(TIMES):
        anatomy._anatomies.cache_clear()  # by value: it would know the program again
        new = given()
        began = time.process_time()
        work(new)
        found.append(time.process_time() - began)
    return 1e3 * min(found)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--hw", default="b200")
    chip = hardware(options.parse_args().hw)
    slow = []
    print(f"{'program':24} parse  check  lower   ms, {chip.name}")
    for path in sorted((ROOT / "docs" / "examples").glob("*.avo")):
        text = path.read_text(encoding="utf-8")
        parsing = least(parse, lambda text=text: text)
        checking = least(lambda p: check(p, chip), lambda text=text: parse(text))
        try:
            lowering: float | None = least(lambda p: lower(p, chip), lambda text=text: parse(text))
        except ProgramError:
            lowering = None
        told = f"{lowering:6.1f}" if lowering is not None else "     -"
        print(f"{path.stem:24} {parsing:5.1f} {checking:6.1f} {told}", flush=True)
        if checking > CHECK_MS or (lowering or 0) > LOWER_MS:
            slow.append(path.stem)
    print(f"over {CHECK_MS:g} ms to check or {LOWER_MS:g} ms to lower: {', '.join(slow) or 'none'}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
