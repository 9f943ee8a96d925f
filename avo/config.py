"""What a run is told: TOML file < `--set` < flags, resolved once, frozen, and stored with the run.

An unknown key is an error with the nearest known one: a setting that is silently ignored costs a night.
"""

from __future__ import annotations

import platform
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from avo.errors import UserMistake, unfit, unknown
from evaluators.installed import version

DEFAULT_STEPS = 48
DEFAULT_MAX_USD = 5.0  # where a model costs money and nobody says how much it may
DEFAULT_ARCHIVE = "avo.db"
DEFAULT_JOBS = 2  # a constant, not the machine's core count: proposal k depends on it (see avo.choosing.jobs)

Scalar = bool | int | float | str


class RunConfig(BaseModel):
    """Everything that decides a run. Times in minutes; `archive` is a path or an SQLAlchemy URL.

    `target`, `hw`, `agent` and `evaluator` are names, `module:Class` references or files. `workloads` name sizes; where
    there are any they replace the target's public ones. `jobs` candidates are judged at once, and proposal k sees the
    verdicts up to k - jobs; where it is not given, the run settles it when it begins. `cluster` is the Ray cluster that
    judges: "ray" for the one that this machine belongs to, or "ray://HOST:PORT". `model` is whom an agent asks,
    `max_usd` and `max_tokens` what that may cost over all sessions: see avo.models. `max_device_seconds`: of the
    devices, over all sessions. `epsilon` and `window` stop a run that has little to gain (avo.stopping); None: the
    defaults where a model is asked, never else; window 0: never. The `*_options` go to the constructor of the agent,
    the model and the evaluator.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str = "attention"
    hw: str = "b200"
    steps: int | None = Field(default=DEFAULT_STEPS, ge=1, le=1_000_000)
    minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    seed: int = Field(default=0, ge=0, lt=2**63)
    agent: str = "heuristic"
    evaluator: str = "local"
    archive: str = DEFAULT_ARCHIVE
    jobs: int | None = Field(default=None, ge=1, le=1024)
    cluster: str | None = Field(default=None, pattern="^ray(://.+)?$")
    program: str | None = None
    model: str | None = None
    max_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, ge=1)
    max_device_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    epsilon: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    window: int | None = Field(default=None, ge=0)
    language: Literal["avo", "python"] = "avo"
    accept_sandbox: Literal["full", "namespaces", "process"] = "full"
    workloads: dict[str, str | dict[str, Scalar]] = Field(default_factory=dict)
    agent_options: dict[str, Any] = Field(default_factory=dict)
    model_options: dict[str, Any] = Field(default_factory=dict)
    evaluator_options: dict[str, Any] = Field(default_factory=dict)


def read_config(path: str | None, sets: Sequence[str] = (), flags: Mapping[str, Any] | None = None) -> RunConfig:
    """Merge a TOML file, `key=value` settings and flags (None: not given), later ones winning.

    Raises UserMistake for a file that is missing or no TOML, an unknown key, and a value of the wrong type or range.
    """
    values: dict[str, Any] = _toml(Path(path)) if path else {}
    for text in sets:
        _assign(values, text)
    flags = {k: v for k, v in (flags or {}).items() if v is not None}
    if "minutes" in flags and "steps" not in flags and "steps" not in values:
        flags["steps"] = None  # a time budget alone means: as many steps as fit
    elif "minutes" in values and "steps" not in values and "steps" not in flags:
        flags["steps"] = None
    values.update(flags)
    known = RunConfig.model_fields
    for key in values:
        if key not in known:
            raise UserMistake(unknown("setting", key, known) + (f" (in {path})" if path else ""))
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise UserMistake("\n".join(_complaint(e) for e in error.errors())) from None


def _complaint(error: Any) -> str:
    return "setting " + unfit("'" + ".".join(str(p) for p in error["loc"][:2]) + "'", error)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UserMistake(f"no such file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserMistake(f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserMistake(f"{path} is not TOML: {error}") from None


def _assign(values: dict[str, Any], text: str) -> None:
    """Apply `a.b=value`; the value is TOML where it parses as TOML, else a plain string."""
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise UserMistake(f"--set wants key=value, got '{text}'")
    *tables, last = key.strip().split(".")
    place = values
    for name in tables:
        inner = place.setdefault(name, {})
        if not isinstance(inner, dict):
            raise UserMistake(f"--set {text}: '{name}' is a value, not a table")
        place = inner
    try:
        place[last] = tomllib.loads(f"x = {raw}")["x"]
    except tomllib.TOMLDecodeError:
        place[last] = raw


def versions() -> dict[str, str]:
    """Everything whose version may change a result; stored with the run."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    ours = ("avo-kernels", "lark", "numpy", "optuna", "pydantic", "sqlalchemy", "torch", "triton")
    for name in (*ours, "anthropic", "openai"):
        found[name] = version(name) or "absent"
    # Local build labels matter: torch 2.13.0+cpu and 2.13.0+cu130 are different libraries.
    found["executable"] = Path(sys.executable).name
    return found


_PAIR = re.compile(r"^\s*(\w+)\s*=\s*([^,]+?)\s*$")


def pairs(text: str) -> dict[str, Scalar]:
    """Read `b=4,h=32,causal=1`; values are ints, floats or true/false."""
    found: dict[str, Scalar] = {}
    for part in text.split(","):
        match = _PAIR.match(part)
        if match is None:
            raise UserMistake(f"a workload is written b=4,h=32,causal=1; '{part.strip()}' in '{text}' is not key=value")
        key, raw = match[1], match[2]
        if key in found:
            raise UserMistake(f"'{key}' stands twice in the workload '{text}'")
        found[key] = _number(key, raw)
    return found


def _number(key: str, raw: str) -> Scalar:
    if raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    try:
        return int(raw.replace("_", ""))
    except ValueError:
        pass
    try:
        return float(raw)
    except ValueError:
        raise UserMistake(f"'{key}={raw}' in a workload: the value is a number, true or false") from None
