"""`avo evolve`: evolves a kernel; says what it will do, how it goes, and what came of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import ArchiveOption, WorkloadOption
from dsl.wording import counted

if TYPE_CHECKING:
    from avo.config import RunConfig
    from avo.events import Event
    from avo.launch import Parts
    from avo.run import Run

# One candidate of attention for b200 through every gate on one core, in seconds: 276 s of CPU time for 43 candidates.
SECONDS_A_CANDIDATE = 6.5
_LIMITS = ("steps", "minutes", "max_usd", "max_tokens", "max_device_seconds", "epsilon", "window")
_BROKEN_OFF = ("interrupted", "unavailable", "failed")  # ends that are no limit's
# Tokens of a step by the form of the agent, for the estimate before the start: in, out, cached of those in. Reckoned,
# not measured: a brief is 5,000 tokens, and a conversation of six requests sends it again, mostly from the cache.
_TOKENS_A_STEP = {"avo": (40_000, 4_000, 30_000), "mantis": (16_000, 3_000, 4_000), "whole answers": (7_000, 2_000, 0)}


def evolve(
    target: Annotated[
        str | None, typer.Option(help="The job: a name, module:NAME or a file. [default: attention]", metavar="TARGET")
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(
            help="Several jobs on one budget, which goes where most is left to gain; each ends as --epsilon and "
            "--window say. With --resume all of them go on.",
            metavar="A,B,C",
        ),
    ] = None,
    hw: Annotated[
        str | None, typer.Option(help="The chip; auto: the one that is here. [default: b200]", metavar="CHIP")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Proposals to make. [default: 48]", metavar="N")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time to use; without --steps the only limit.", metavar="MINUTES")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random choice. [default: 0]", metavar="N")] = None,
    agent: Annotated[
        str | None,
        typer.Option(help="Who proposes: a name, module:Class or file.py. [default: heuristic]", metavar="AGENT"),
    ] = None,
    evaluator: Annotated[
        str | None,
        typer.Option(
            help="Who judges: a name, module:Class, file.py, or recorded:PATH, which replays tables. [default: local]",
            metavar="EVALUATOR",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Whom the agent avo asks: anthropic:NAME, openai:NAME, http://host/v1#NAME; several with commas.",
            metavar="MODEL",
        ),
    ] = None,
    max_usd: Annotated[
        float | None, typer.Option(help="Money that models may cost; asked for where it costs.", metavar="USD", min=0)
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Tokens that models may use, in and out.", metavar="N", min=1)
    ] = None,
    max_device_seconds: Annotated[
        float | None, typer.Option(help="Device time that judging may use.", metavar="S", min=0)
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Stop within (1 + N) of the practical ceiling's time. [default: 0.25 with --targets or --model]",
            metavar="N",
            min=0,
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            help="Stop after N proposals without a gain, 0 never. [default: 16 with --targets or --model]",
            metavar="N",
            min=0,
        ),
    ] = None,
    archive: ArchiveOption = None,
    resume: Annotated[
        str | None, typer.Option(help="Go on with a run: its number, or the newest if left out.", metavar="[RUN]")
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            help="Work at a run beside the processes that write it, on this host or others: its number, or the newest.",
            metavar="[RUN]",
        ),
    ] = None,
    workload: WorkloadOption = None,
    program: Annotated[
        str | None,
        typer.Option(
            "--program",
            "--seed-program",
            help="Start from this program instead of the target's seed.",
            metavar="FILE",
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", "-c", help="Settings in TOML; flags win over it.", metavar="FILE")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="One setting of the TOML file; repeatable.", metavar="key=value")
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            help="What candidates are written in: avo, or python: raw Triton in a sandbox. [default: avo]",
            metavar="LANGUAGE",
        ),
    ] = None,
    accept_sandbox: Annotated[
        str | None,
        typer.Option(help="Of python: the weakest sandbox whose verdicts promote. [default: full]", metavar="LEVEL"),
    ] = None,
    jobs: Annotated[
        str | None,
        typer.Option(
            help="Candidates judged at once; part of the result. `ray` or ray://HOST:PORT has a Ray cluster judge. "
            "[default: 2; on a device 1.5 a core]",
            metavar="N|ray",
        ),
    ] = None,
) -> None:
    """Evolve a kernel for a target on a chip: correct, compiled for it, explained against the speed of light.

    Ctrl-C finishes what is under way, says how far it came and leaves with 0; a second one stops at once, with 130.
    --resume goes on after either, and after a kill; --join helps a run that is under way.

    Example: avo evolve --target attention --hw b200 --steps 48
    """
    from avo.cli.console import say
    from avo.cli.progress import REASONS, watch
    from avo.config import DEFAULT_ARCHIVE, read_config
    from avo.errors import UserMistake
    from avo.launch import start

    flags: dict[str, Any] = {"target": target, "hw": hw, "steps": steps, "minutes": minutes, "seed": seed}
    flags |= {"agent": agent, "evaluator": evaluator, "archive": archive, "program": program, **_jobs(jobs)}
    flags |= {"language": language, "accept_sandbox": accept_sandbox}
    flags |= {"model": model, "max_usd": max_usd, "max_tokens": max_tokens, "max_device_seconds": max_device_seconds}
    flags |= {"epsilon": epsilon, "window": window}
    if join is not None and resume is not None:
        raise UserMistake("--join works beside whoever writes the run, --resume takes it up alone: give one of them")
    if model is not None and agent is None and resume is None and join is None:
        flags["agent"] = "avo"
    flags["workloads"] = {str(n): w for n, w in enumerate(workload, 1)} if workload else None
    if targets is not None:
        from avo.cli.several import Again, evolve_several

        one = {"target": target, "workload": workload, "program": program, "join": join}
        if resume is None:
            evolve_several(targets, _limited(read_config(config, sets or [], flags)), one, announce)
            return
        _unchanged(flags, config, sets)
        again = Again(_number(resume, "resume"), flags["archive"] or DEFAULT_ARCHIVE, _limits_of(flags))
        evolve_several(targets, None, one, announce, again)
        return
    view = watch()
    if resume is not None or join is not None:
        run = _resumed(resume or join or "", flags, config, sets, view, join is not None)
    else:
        settings = _limited(read_config(config, sets or [], flags))
        with view:
            run = start(settings, observer=view, begun=announce)
    with run:
        record = run.record
        say(f"\nrun {run.id} {record.state}: {REASONS.get(record.ended or '', record.ended or 'by a kill')}")
        _conclude(run)


def _limited(config: RunConfig) -> RunConfig:
    """With a limit on money where a model costs some and none is given: asked for on a terminal, refused elsewhere."""
    from avo.asking import costly
    from avo.config import DEFAULT_MAX_USD
    from avo.errors import UserMistake

    if not costly(config) or not _on_a_terminal():
        return config  # what is missing is told when the parts are made
    question = f"{config.model} costs money. At most how many USD may this run cost? 0 stops"
    usd = typer.prompt(question, default=DEFAULT_MAX_USD, type=float)
    if usd <= 0:
        raise UserMistake("nothing was started")
    return config.model_copy(update={"max_usd": usd})


def _on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _jobs(given: str | None) -> dict[str, Any]:
    """The settings of `--jobs`: a number, or a Ray cluster, which has as many slots as it has."""
    from avo.errors import UserMistake

    if given is None or given.isdecimal():
        return {"jobs": None if given is None else int(given)}
    if given == "ray" or given.startswith("ray://"):
        return {"cluster": given}
    raise UserMistake(f"--jobs takes a number, ray, or ray://HOST:PORT, not '{given}'")


def _resumed(
    name: str, flags: dict[str, Any], config: str | None, sets: list[str] | None, view: Any, join: bool
) -> Run:
    from archive.archive import open_archive
    from avo.cli.console import say
    from avo.cli.progress import REASONS
    from avo.config import DEFAULT_ARCHIVE
    from avo.errors import UserMistake
    from avo.events import Started
    from avo.launch import carry_on, prepare, stored
    from avo.run import Run

    _unchanged(flags, config, sets)
    verb = "join" if join else "resume"
    run = _number(name, verb)
    where = flags["archive"] or DEFAULT_ARCHIVE
    if "://" not in where and not Path(where).exists():
        raise UserMistake(f"no archive at {where}, so there is no run to {verb}; --archive names another")
    store = open_archive(where, create=False)
    try:
        record = store.run(run)
        number = record.id
        if join and record.state == "ended" and record.ended not in _BROKEN_OFF and not _limits_of(flags):
            why = REASONS.get(record.ended or "", record.ended)
            more = f"avo evolve --resume {number} --steps N{'' if where == DEFAULT_ARCHIVE else f' --archive {where}'}"
            say(f"run {number} has ended ({why}), so nothing is left to join; {more} goes on with it")
            raise typer.Exit
        settings = stored(store, number, **_limits_of(flags))
        parts = prepare(settings)
        view.state.recall(Run(store, number).history())

        def begun(event: Event) -> None:
            if isinstance(event, Started):  # the run is ours
                say(f"run {number} goes on" + (", beside those that write it already" if join else ""))
                announce(parts)
            view(event)

        with view:
            return carry_on(store, parts, number, begun, join=join)
    except BaseException:
        store.close()
        raise


def _unchanged(flags: dict[str, Any], config: str | None, sets: list[str] | None) -> None:
    """Raises UserMistake where something is given that a run which goes on cannot take."""
    from avo.errors import UserMistake

    changed = [
        f"--{'jobs' if key == 'cluster' else key}"
        for key in flags
        if flags[key] is not None and key not in (*_LIMITS, "archive")
    ]
    changed += ["-c"] if config else []
    changed += ["--set"] if sets else []
    if changed:
        raise UserMistake(
            f"a run goes on with what it was begun with: {' '.join(changed)} cannot change it, "
            f"only {', '.join('--' + limit.replace('_', '-') for limit in _LIMITS)} can"
        )


def _number(name: str, verb: str) -> int | None:
    """Of the run that `--resume` or `--join` names; None for the newest."""
    from avo.errors import UserMistake

    if name != "last" and not name.isdecimal():
        raise UserMistake(f"--{verb} wants the number of a run, got '{name}'; avo log lists them")
    return None if name == "last" else int(name)


def _limits_of(flags: dict[str, Any]) -> dict[str, Any]:
    """Those that were given."""
    return {key: flags[key] for key in _LIMITS if flags[key] is not None}


def announce(parts: Parts) -> None:
    """The start screen."""
    from avo.cli.console import entry, say, tame

    config, target, chip = parts.config, parts.target, parts.hardware
    mode, why = _mode(parts)
    summary = f": {tame(target.summary)}" if target.summary else ""
    for label, text in {
        "target": target.name + summary,
        "chip": f"{chip.name}: {chip.title}",
        "mode": f"{mode}: {why}",
        "budget": f"{_budget(config)}, {config.jobs} at a time, seed {config.seed}",
        "expected": _expected(config) + _costs(config),
        "agent": f"{config.agent}{f', asking {config.model}' if config.model else ''}; judged by {config.evaluator}",
        "archive": config.archive,
    }.items():
        say(entry(label, text))
    for warning in getattr(parts.evaluator, "warnings", ()):
        say(f"warning   {tame(warning)}")
    for place, w in enumerate(target.workloads):
        say(f"{'sizes' if place == 0 else '':<10}{w.name}")
    say()


def _mode(parts: Parts) -> tuple[str, str]:
    """Where times come from and why."""
    from evaluators.judge import LocalEvaluator
    from evaluators.measured import MeasuredEvaluator
    from evaluators.recorded import RecordedEvaluator

    chip = parts.hardware
    if isinstance(parts.evaluator, MeasuredEvaluator):
        return "measured", f"on {parts.evaluator.described()}"
    if isinstance(parts.evaluator, RecordedEvaluator):
        return "measured", f"nothing is timed now; {parts.evaluator.described()} are replayed"
    if not chip.claims_speed:
        return "none", "the host judges correctness alone, no time is claimed"
    if isinstance(parts.evaluator, LocalEvaluator):
        return "predicted", f"nothing is timed on a device; times follow from the code compiled for {chip.name}"
    return "as judged", "the evaluator decides; each verdict says predicted or measured"


def _budget(config: RunConfig) -> str:
    limits = [counted(config.steps, "step")] if config.steps is not None else []
    limits += [counted(config.minutes, "minute")] if config.minutes is not None else []
    limits += [f"{config.max_usd:g} USD"] if config.max_usd is not None else []
    limits += [counted(config.max_tokens, "token")] if config.max_tokens is not None else []
    limits += [f"{config.max_device_seconds:g} s of the device"] if config.max_device_seconds is not None else []
    limits += [counted(config.window, "proposal without a gain")] if config.window else []
    limits += [f"within {config.epsilon:.0%} of the practical ceiling"] if config.epsilon is not None else []
    return " or ".join(limits) or "none: it ends when the agent does"


def _costs(config: RunConfig) -> str:
    """What the model may be expected to cost; "" without one."""
    if config.model is None:
        return ""
    from avo.asking import prices
    from avo.models import Usage

    known = list(prices(config).values())
    if None in known:
        return "; what the model costs is not known, its tokens are counted"
    form = "whole answers" if config.agent_options.get("tools") is False else config.agent
    into, out, cached = _TOKENS_A_STEP.get(form, _TOKENS_A_STEP["whole answers"])
    step = [price.usd(Usage(into, out, cached)) for price in known if price is not None]
    usd = (config.steps or 0) * max(step)  # of the dearest
    if not usd:
        return ""
    more = f", of which {config.max_usd:g} may be spent" if config.max_usd is not None and config.max_usd < usd else ""
    return f"; about {usd:.2g} USD for all steps of the model{more}"


def _expected(config: RunConfig) -> str:
    from avo.cli.console import duration

    if config.steps is None:
        return counted(config.minutes, "minute") if config.minutes is not None else "unknown"
    seconds = (config.steps + 1) * SECONDS_A_CANDIDATE / min(config.jobs or 1, os.cpu_count() or 1)
    if config.minutes is not None:
        seconds = min(seconds, config.minutes * 60)
    return f"about {duration(max(30, round(seconds, -1)))} for the built-in judge on this machine"


def _unranked(run: Run) -> str:
    """Why a run has no best program."""
    from evaluators.evaluation import Status

    right = sum(c.status is Status.OK for c in run.archive.candidates(run.id, text=False))
    if not right:
        return "no candidate was accepted yet"
    judged = len(run.archive.candidates(run.id, text=False))
    return f"{right} of {counted(judged, 'candidate')} passed every gate; without times none of them is the best"


def _conclude(run: Run) -> None:
    """The end: the best program, its times, what changed from the seed, the report, what to do next."""
    from avo.cli.console import entry, paint, say, tame
    from avo.cli.progress import spent
    from avo.cli.report import page_name
    from avo.cli.show import promotion, verdict
    from avo.errors import UserMistake
    from avo.report import write_report
    from avo.report.differences import change, line_diff

    best, evaluation = run.best, run.evaluation
    seed = run.archive.candidates(run.id, ks=[0])
    if best is None or evaluation is None:
        say(_unranked(run))
    else:
        say(f"\nbest program: proposal {best.k}, {best.digest}\n\n{tame(best.text.rstrip())}\n")
        for line in verdict(evaluation, gates=False):
            say(line)
        again = run.archive.promotions(run.id)
        for line in ["", *promotion(again[best.digest])] if best.digest in again else []:
            say(line)
        if seed and seed[0].digest != best.digest:
            say("\n" + entry("what changed from the seed:", tame(change(seed[0].text, best.text)), 28) + "\n")
            rows = line_diff(seed[0].text, best.text, "seed", best.digest[:8]).splitlines()
            for row in rows:
                colour = {"+": "green", "-": "red"}.get(row[:1])
                say(paint(tame(row), colour) if colour else tame(row))
            if seed[0].value and seed[0].mode == best.mode:
                say(f"\n{best.value / seed[0].value:.2f}x the seed's {best.mode} score")
        elif seed:
            say("\nthe seed program is still the best")
    if cost := spent(run.archive.spend(run.id)):
        say(f"\nmodels: {cost}")
    try:
        page = str(write_report(run.archive, run.id, page_name(run.id, run.archive.where)))
    except UserMistake as error:  # the run is whole in the archive, which may lie elsewhere
        page = f"none, {error}; avo report {run.id} --html PATH writes it elsewhere"
    where = "" if run.archive.where == "avo.db" else f" --archive {run.archive.where}"
    say(f"\nreport: {page}")
    if best is not None:
        say(f"next:   avo show {run.id}/{best.k} --program{where} > best.avo")
        say(f"        avo lower best.avo --hw {run.record.hardware} -o kernel.py   # runs without avo")
    judged = len(run.archive.candidates(run.id, text=False)) - 1
    asked = run.record.given.get("steps")
    unfinished = isinstance(asked, int) and judged < asked
    more = "" if unfinished else f" --steps {2 * max(1, judged)}"
    say(f"        avo evolve --resume {run.id}{more}{where}   # goes on")
