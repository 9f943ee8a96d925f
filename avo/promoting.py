"""The end of a run: its best is judged again before it is called one, and the next where it fails."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from archive.records import Spend
from avo.events import Event, Promoted, Promoting
from avo.plugin_answers import evaluation_of
from evaluators.evaluation import Evaluation, Status

if TYPE_CHECKING:
    from archive.archive import Archive
    from archive.writer import RunWriter
    from avo.agents.protocol import Judged
    from avo.history import History
    from dsl.hardware import Hardware
    from evaluators.protocol import Evaluator
    from evaluators.target import Target

MOST = 3  # candidates that are tried, until one passes
_BEAT_S = 5.0


def crown(
    archive: Archive,
    writer: RunWriter,
    history: History,
    evaluator: Evaluator,
    target: Target,
    hardware: Hardware,
    tell: Callable[[Event], None],
) -> Judged | None:
    """Has the evaluator promote the best candidates in turn until one passes, and returns that; None where none does.
    Each is asked about once in a run.

    Asks for nothing where the evaluator promotes nobody or the target hides no sizes. What it raises passes.
    """
    promote = getattr(evaluator, "promote", None)
    if promote is None or not target.hidden or not len(history):
        return None
    known = archive.promotions(writer.run.id)
    seed = history.upto(0)[0]
    for judged in history.ranked()[:MOST]:
        if judged.evaluation.mode == "none":
            return None
        found = known.get(judged.digest)
        if found is None:
            tell(Promoting(judged))
            start = time.monotonic()
            answer = _beating(writer, lambda text=judged.text: promote(text, target, hardware, seed.text))  # type: ignore[misc]
            found = evaluation_of(evaluator, answer)
            spent = Spend(wall_s=time.monotonic() - start, device_s=device_seconds(found))
            if found.status is Status.UNAVAILABLE:
                writer.book(judged.k, "unavailable", spend=spent, note=found.message)
                tell(Promoted(judged, found))
                return None
            writer.record_promotion(judged.k, found, spent)
        tell(Promoted(judged, found))
        if found.status is Status.OK:
            return judged
    return None


def device_seconds(evaluation: Evaluation) -> float:
    """Device seconds, where the evaluator says so in its environment."""
    found = evaluation.environment.get("device_s", 0.0)
    return float(found) if isinstance(found, int | float) and math.isfinite(found) else 0.0


def _beating(writer: RunWriter, task: Callable[[], Any]) -> Any:
    """Runs it in a thread, for others have to see that this process lives, and Ctrl-C has to get through."""
    kept: list[Any] = []

    def work() -> None:
        try:
            kept.append(task())
        except BaseException as error:
            kept.append(error)

    thread = threading.Thread(target=work, name="promotion", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_BEAT_S)
        writer.beat()
    if isinstance(kept[0], BaseException):
        raise kept[0]
    return kept[0]
