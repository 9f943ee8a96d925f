"""Where `avo` and `python -m avo` begin: Ctrl-C is answered while the command line itself is still being loaded.

What this module imports Python has loaded already, and `avo` itself imports nothing: before `main` is here nobody can
answer but Python, with a traceback.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


def main() -> NoReturn:
    """The command line of this process; `avo.cli.main` once that is loaded."""
    mine = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored, as in a background job
    if mine:
        signal.signal(signal.SIGINT, _stop)
    from avo.cli import main as run

    try:
        if mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:  # in the moments before and after its own answer to it
        _stop()
    raise SystemExit(0)


def _stop(number: int = 0, frame: FrameType | None = None) -> NoReturn:
    """Nothing is begun yet, so there is nothing to end in good order."""
    os.write(2, b"stopped\n")
    os._exit(130)


if __name__ == "__main__":
    main()
