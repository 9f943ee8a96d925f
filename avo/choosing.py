"""Measure or predict: what the chip that a person named and the devices of this machine make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from avo.errors import HarnessUnavailable, UserMistake

if TYPE_CHECKING:
    from dsl.hardware import Hardware

AUTO = "auto"
MOST_A_DEVICE = 32  # candidates under way


def chip(name: str) -> Hardware:
    """The chip of that name; `auto` is the one that is here. Raises UserMistake."""
    from avo import plugins

    if name != AUTO:
        found: Hardware = plugins.load("hardware", name)
        return found
    from evaluators.device import NoDevice, automatic, local_devices

    try:
        return automatic(local_devices())
    except NoDevice as error:
        raise UserMistake(str(error)) from None


def judge(name: str, hardware: Hardware) -> str:
    """The evaluator to build: `local` measures where the chip is here, and predicts where no known device is.

    Raises UserMistake where another chip is here than was named: whoever has one wants it measured.
    """
    if name != "local" or not hardware.claims_speed:
        return name
    from evaluators.device import NoDevice, chip_of, local_devices, matching

    known = [device for device in local_devices() if chip_of(device) is not None]
    if not known:
        return name
    try:
        matching(known, hardware)
    except NoDevice as error:
        raise UserMistake(str(error)) from None
    return "measured"


_INSTEAD = (
    "A new run predicts with --evaluator predicted; one that was measured goes on where its chip is, and "
    "`avo replay RUN` does it again from the record anywhere"
)


def insist_here(name: str, hardware: Hardware, instead: str = _INSTEAD) -> None:
    """Raises HarnessUnavailable where that evaluator measures and the chip is not here: somebody named it, or a run
    that was measured is taken up. instead: what can be done."""
    if name != "measured":
        return
    from evaluators.device import NoDevice, local_devices, matching

    try:
        matching(local_devices(), hardware)
    except NoDevice as error:
        raise HarnessUnavailable(f"{error.measuring}. {instead}") from None


def jobs(evaluator: str) -> int:
    """How many candidates to judge at once where nobody says: enough that a device never waits for compilers.

    Stored with the run, which goes on with it on any machine: proposal k depends on it.
    """
    from avo.config import DEFAULT_JOBS
    from evaluators.device import local_devices
    from evaluators.process import cores

    if evaluator != "measured":
        return DEFAULT_JOBS
    devices = max(1, len(local_devices()))
    return max(DEFAULT_JOBS, min(MOST_A_DEVICE * devices, round(1.5 * cores())))
