"""Triton's autotuning where kernels run in the interpreter: there is no device to take times on, and none are worth
taking. A configuration is drawn anew for each key, so that over many calls all of them are checked."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

_draw = random.SystemRandom().random


def install() -> None:
    """For the life of the process. `triton.testing`'s clocks are the host's from then on."""
    import triton.testing
    from triton.runtime import autotuner

    autotuner.Autotuner._bench = _bench
    if hasattr(autotuner.Autotuner, "check_disk_cache"):
        autotuner.Autotuner.check_disk_cache = _uncached
    for name in ("do_bench", "do_bench_cudagraph", "do_bench_proton", "do_bench_cudagraph_proton"):
        if hasattr(triton.testing, name):
            setattr(triton.testing, name, _by_the_host)


def _bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
    """What stands for the times of a configuration."""
    if twice := meta.keys() & config.kwargs.keys():
        raise ValueError(f"{', '.join(sorted(twice))}: given by the call and by the configuration")
    return [_draw()] * 3


def _uncached(tuner: Any, key: Any, configs: Any, bench: Callable[[], None]) -> bool:
    bench()
    return False


def _by_the_host(
    fn: Callable[[], Any],
    *more: Any,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    **named: Any,
) -> Any:
    """Milliseconds of one call, in the form that `do_bench` gives them in."""
    began = time.perf_counter()
    fn()
    took = 1e3 * (time.perf_counter() - began)
    if quantiles:
        return [took] * len(quantiles) if len(quantiles) > 1 else took
    return [took] if return_mode == "all" else took
