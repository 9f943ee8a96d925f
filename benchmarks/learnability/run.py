"""Judge a folder of answers and print the table: `python benchmarks/learnability/run.py ANSWERS [--errors]`.

ANSWERS holds one file a task, named TASK.avo. `--prompt` prints the tasks in words, as README.md hands them out;
`--errors` prints what each failed answer is told, which is what its writer may see once. Exit code 1 where one fails.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from editing import EDITING
from task import Task, Verdict, judge
from writing import WRITING

TASKS: tuple[Task, ...] = (*WRITING, *EDITING)


def prompt(tasks: tuple[Task, ...] = TASKS) -> str:
    """The tasks in words."""
    parts = []
    for n, task in enumerate(tasks, start=1):
        text = f"## {n}. {task.name}\n\n{task.words}\n\n```\n{task.signature}\n```\n"
        if task.given:
            text += f"\nThe program to start from:\n\n```\n{task.given.rstrip()}\n```\n"
        parts.append(text)
    return "\n".join(parts)


def verdicts(folder: Path) -> list[Verdict]:
    """One for each task, in order."""
    found = []
    for task in TASKS:
        path = folder / f"{task.name}.avo"
        found.append(judge(task, path.read_text(encoding="utf-8") if path.is_file() else None))
    return found


def table(found: list[Verdict]) -> str:
    wide = max(len(v.task) for v in found)
    rows = [f"{v.task.ljust(wide)}  {'passed' if v.passed else f'failed: {v.stage}'}" for v in found]
    passed = sum(v.passed for v in found)
    return "\n".join([*rows, "", f"{passed} of {len(found)} passed ({100 * passed / len(found):.0f}%)"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", nargs="?", type=Path)
    parser.add_argument("--prompt", action="store_true")
    parser.add_argument("--errors", action="store_true")
    options = parser.parse_args()
    if options.prompt or options.answers is None:
        print(prompt())
        return 0
    found = verdicts(options.answers)
    print(table(found))
    if options.errors:
        for v in found:
            if not v.passed:
                print(f"\n# {v.task}: {v.stage}\n{v.message}")
    return 0 if all(v.passed for v in found) else 1


if __name__ == "__main__":
    sys.exit(main())
