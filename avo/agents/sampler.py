"""The numeric knobs by Optuna's TPE sampler, seeded for each proposal and fed with the run's verdicts anew.

No study outlives a call: what the sampler knows is what the brief shows.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

Value = int | str
STARTUP = 5  # trials that are drawn at random before the sampler's model is asked


def suggestions(
    scales: Mapping[str, tuple[Value, ...]],
    tried: Sequence[tuple[Mapping[str, Value], float]],
    seed: int,
    count: int,
) -> list[dict[str, Value]]:
    """`count` settings of the knobs in `scales` (name -> its values in order), the sampler's first choice first.

    tried: settings with their log scores; those that lack a knob of `scales`, or have another value, are left out.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {n: optuna.distributions.IntDistribution(0, len(v) - 1) for n, v in scales.items() if len(v) > 1}
    if not space:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed % 2**32, n_startup_trials=STARTUP, multivariate=True, constant_liar=True, n_ei_candidates=32
        )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for setting, score in tried:
        if all(n in setting and setting[n] in scales[n] for n in space):
            params = {n: scales[n].index(setting[n]) for n in space}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=dict(space), value=score))
    found = []
    for _ in range(count):
        trial = study.ask(dict(space))
        found.append({n: scales[n][trial.params[n]] for n in space})
    return found
