"""From what a person asked for to a run: resolves names, makes the parts, starts or takes up, cleans up.

run = avo.evolve(target="attention", hw="b200", steps=48)
run.best.text, run.to_dicts()
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from avo import asking, choosing, plugins, workloads
from avo.compiling import require_torch, require_triton
from avo.config import RunConfig, Scalar, read_config, versions
from avo.errors import UserMistake, unknown
from avo.python_arm import begun, insist_agent
from avo.python_arm import judge as python_judge

if TYPE_CHECKING:
    from archive.archive import Archive
    from avo.agents import Agent
    from avo.budget import Budget
    from avo.events import Observer
    from avo.models import Model
    from avo.run import Run
    from dsl.hardware import Hardware
    from evaluators.cluster import ClusterEvaluator
    from evaluators.integrity.sandbox import Level
    from evaluators.protocol import Evaluator
    from evaluators.target import Target, Workload


LOOP_OPTIONS = ("sweep", "knobs")  # those of `agent_options` that the loop and the brief read, whoever proposes


@dataclass(frozen=True)
class Parts:
    """What a run is made of. Whoever holds them closes the evaluator."""

    config: RunConfig
    target: Target
    hardware: Hardware
    agent: Agent
    evaluator: Evaluator


def evolve(
    target: str | Target = "attention",
    hw: str | Hardware = "b200",
    *,
    steps: int | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    agent: str | Agent | None = None,
    evaluator: str | Evaluator | None = None,
    archive: str | Path | None = None,
    jobs: int | None = None,
    workloads: Sequence[str | Workload | Mapping[str, Scalar]] = (),
    program: str | Path | None = None,
    config: str | Path | None = None,
    model: str | None = None,
    max_usd: float | None = None,
    max_tokens: int | None = None,
    max_device_seconds: float | None = None,
    epsilon: float | None = None,
    window: int | None = None,
    language: str | None = None,
    accept_sandbox: str | None = None,
    observer: Observer | None = None,
) -> Run:
    """Evolves a kernel and returns the run: `.best`, `.candidates`, `.to_frame()`, shown as a table in a notebook.

    Names are resolved as on the command line; a Target, Hardware, Agent or Evaluator of your own may stand instead.
    config: a TOML file with settings; arguments win over it. Without `steps` and `minutes` it makes 48 proposals.
    workloads: sizes instead of the target's own, or names of its sets ("decode"). program: a file to start from.
    model: whom the agent `avo` asks, which then is the agent unless another is named; max_usd, max_tokens: what that
    may cost; one that costs money needs either. max_device_seconds: of the devices. epsilon, window: stop where little
    is left to gain (avo.stopping; by themselves where a model is asked; window=0: never). language: "python" for raw
    Triton, judged in a sandbox; accept_sandbox: its weakest level that promotes. observer: called with each event of
    `avo.events`, in this thread.

    Raises UserMistake, TargetError (of a target of your own), HarnessUnavailable, ArchiveError. Ctrl-C finishes what is
    under way and returns; a second one raises KeyboardInterrupt. What was recorded stays, for `avo.resume`.
    """
    flags: dict[str, Any] = {"steps": steps, "minutes": minutes, "seed": seed, "jobs": jobs}
    flags |= {"model": model, "max_usd": max_usd, "max_tokens": max_tokens, "max_device_seconds": max_device_seconds}
    flags |= {"epsilon": epsilon, "window": window, "language": language, "accept_sandbox": accept_sandbox}
    if model is not None and agent is None:
        agent = "avo"
    flags |= {"target": _name(target, "target"), "hw": _name(hw, "hardware")}
    flags |= {"agent": _name(agent, "agent"), "evaluator": _name(evaluator, "evaluator")}
    flags |= {
        "archive": None if archive is None else str(archive),
        "program": None if program is None else str(program),
    }
    named = {str(n): _sizes(w) for n, w in enumerate(workloads, 1)}
    flags["workloads"] = named or None
    settings = read_config(None if config is None else str(config), (), flags)
    return start(settings, observer=observer, target=target, hardware=hw, agent=agent, evaluator=evaluator)


def resume(
    run: int | None = None,
    *,
    archive: str | Path = "avo.db",
    steps: int | None = None,
    minutes: float | None = None,
    observer: Observer | None = None,
    target: Target | None = None,
    hardware: Hardware | None = None,
    agent: Agent | None = None,
    evaluator: Evaluator | None = None,
    join: bool = False,
) -> Run:
    """Takes a run up again (the newest where none is named) with what it was begun with, and returns it.

    steps, minutes: a new budget, over all sessions of the run. join: work at it beside the processes that write it now,
    as `avo evolve --join` does. Objects that the run was begun with in Python have to be
    given again, for an archive keeps names only. Raises as `evolve` does, and archive.errors.Held where another process
    writes the run.
    """
    from archive.archive import open_archive

    store = open_archive(archive, create=False)
    try:
        config = stored(store, run, steps=steps, minutes=minutes)
        parts = prepare(config, target=target, hardware=hardware, agent=agent, evaluator=evaluator)
        return carry_on(store, parts, _record(store, run), observer, join=join)
    except BaseException:
        store.close()
        raise


def start(
    config: RunConfig,
    *,
    observer: Observer | None = None,
    begun: Callable[[Parts], None] | None = None,
    target: str | Target | None = None,
    hardware: str | Hardware | None = None,
    agent: str | Agent | None = None,
    evaluator: str | Evaluator | None = None,
    budget: Budget | None = None,
    together: Mapping[str, Any] | None = None,
) -> Run:
    """A new run of a resolved configuration. `begun` is called once all parts are there and the archive is open, before
    the run is recorded. budget: for this call alone, instead of the configuration's. together: what is stored of runs
    that share a budget (avo.several)."""
    from archive.archive import open_archive
    from avo.run import begin

    parts = prepare(config, target=target, hardware=hardware, agent=agent, evaluator=evaluator)
    try:
        store = open_archive(config.archive)
    except BaseException:
        parts.evaluator.close()
        raise
    try:
        if begun is not None:
            begun(parts)
        run = begin(
            store,
            target=parts.target,
            hardware=parts.hardware,
            agent=parts.agent,
            evaluator=parts.evaluator,
            seed=config.seed,
            jobs=parts.config.jobs or 1,
            config=parts.config.model_dump(mode="json"),
            versions=versions(),
            together=together,
        )
    except BaseException:
        parts.evaluator.close()
        store.close()
        raise
    return carry_on(store, parts, run.id, observer, budget)


def carry_on(
    store: Archive,
    parts: Parts,
    run: int,
    observer: Observer | None,
    budget: Budget | None = None,
    join: bool = False,
) -> Run:
    """Runs until the budget is spent, then closes the evaluator, error or not. The run keeps the archive open."""
    from avo.run import Run, proceed

    config = parts.config
    try:
        return proceed(
            Run(store, run),
            target=parts.target,
            hardware=parts.hardware,
            agent=parts.agent,
            evaluator=parts.evaluator,
            budget=budget or budget_of(config, parts.hardware),
            options=config.agent_options,
            versions=versions(),
            observer=observer,
            join=join,
        )
    finally:
        parts.evaluator.close()


def budget_of(config: RunConfig, hardware: Hardware) -> Budget:
    """The limits of a resolved configuration."""
    from avo.budget import Budget

    return Budget(
        steps=config.steps,
        minutes=config.minutes,
        usd=config.max_usd,
        tokens=config.max_tokens,
        device_s=config.max_device_seconds,
        epsilon=config.epsilon,
        window=config.window or None,
        hardware=hardware.name,
    )


def stored(
    store: Archive,
    run: int | None,
    *,
    steps: int | None = None,
    minutes: float | None = None,
    max_usd: float | None = None,
    max_tokens: int | None = None,
    max_device_seconds: float | None = None,
    epsilon: float | None = None,
    window: int | None = None,
) -> RunConfig:
    """The configuration that a run was begun with, with another budget where one is given.

    Raises UserMistake where the stored one is not of this version's form.
    """
    record = store.run(run)
    given = dict(record.given)
    if steps is not None or minutes is not None:
        given |= {"steps": steps, "minutes": minutes}
    limits = {"max_usd": max_usd, "max_tokens": max_tokens, "max_device_seconds": max_device_seconds}
    given |= {k: v for k, v in (limits | {"epsilon": epsilon, "window": window}).items() if v is not None}
    known = {key: value for key, value in given.items() if key in RunConfig.model_fields}
    if not given or len(known) < len(given):
        strange = ", ".join(sorted(set(given) - set(known))) or "there is none"
        raise UserMistake(f"the configuration of run {record.id} is not one that this version reads ({strange})")
    return RunConfig.model_validate(known | {"archive": store.where})


def prepare(
    config: RunConfig,
    *,
    target: str | Target | None = None,
    hardware: str | Hardware | None = None,
    agent: str | Agent | None = None,
    evaluator: str | Evaluator | None = None,
) -> Parts:
    """Resolves every name and looks each part through, so that a mistake is told before anything is written.

    Runs the target's reference on tiny sizes, which takes torch. Files are stored by their full path: a run may be
    taken up from another folder.
    """
    for kind, name, part in (
        ("target", config.target, target),
        ("hardware", config.hw, hardware),
        ("agent", config.agent, agent),
        ("evaluator", config.evaluator, evaluator),
    ):
        if name.startswith("<") and _named(part):
            raise UserMistake(f"the run was begun in Python with {name[1:-1]}: give it again, avo.resume({kind}=...)")
    if _named(evaluator) and config.evaluator in ("local", "predicted", "measured"):
        require_torch("judging")
        require_triton("judging")
    if hardware is None or isinstance(hardware, str):
        chip = choosing.chip(config.hw)
    else:
        chip = plugins.possible(hardware, hardware.name)
    if config.hw == choosing.AUTO:
        config = config.model_copy(update={"hw": chip.name})
    if _named(evaluator) and config.language != "python":
        config = config.model_copy(update={"evaluator": choosing.judge(config.evaluator, chip)})
    cluster = _cluster(config, chip) if config.cluster is not None and _named(evaluator) else None
    if _named(evaluator) and cluster is None:
        choosing.insist_here(config.evaluator, chip)
    if config.jobs is None:
        found = choosing.jobs(config.evaluator) if cluster is None else cluster.slots
        config = config.model_copy(update={"jobs": found})
    if config.language == "python" and _named(agent):
        insist_agent(config.agent)
    job = begun(config, _target(config, target), chip)
    if _named(evaluator) and config.language != "python" and config.evaluator in ("local", "predicted", "measured"):
        _insist_fit(job, chip)
    available: dict[str, Any] = {"jobs": config.jobs, "seed": config.seed, "hardware": chip}
    maker: Any = agent
    if _named(agent):
        config, models = asking.checked(config)

        def make(model: Model | None) -> Agent:
            more = {} if model is None else {"model": model}
            made: Agent = plugins.create("agent", config.agent, available | more, _taken(config))
            return made

        maker = asking.agent(models, asking.prices(config), make, config.jobs or 1)
    judge: Any = evaluator
    if cluster is not None:
        judge = cluster
    elif _named(evaluator) and config.language == "python" and config.evaluator == "local":
        judge = python_judge(chip, config.accept_sandbox, config.jobs or 1, **config.evaluator_options)
    elif _named(evaluator):
        judge = plugins.create("evaluator", config.evaluator, available, config.evaluator_options)
    whole = {key: full_name(getattr(config, key)) for key in ("target", "hw", "agent", "evaluator")}
    if config.program is not None:
        whole["program"] = _whole(config.program)
    return Parts(config.model_copy(update=whole), job, chip, maker, judge)


def insist_names(config: RunConfig) -> None:
    """Before anything is made: the names of target, sizes, chip and evaluator. Runs nothing. Raises UserMistake."""
    workloads.retarget(plugins.load("target", config.target), config.workloads.values())
    choosing.chip(config.hw)
    if not plugins.with_path(config.evaluator):
        plugins.load("evaluator", config.evaluator)


def _insist_fit(job: Target, chip: Hardware) -> None:
    """Nothing can come of a run whose seed the check refuses on its chip, at a public size, or that has no form which
    could be compiled: better said before there is a run. Raises UserMistake."""
    from dsl.check import errors
    from dsl.diagnostics import ProgramError
    from dsl.lowering import lower
    from dsl.parser import parse
    from evaluators.inputs import extents

    try:
        program = parse(job.seed)
        wrong = list(
            dict.fromkeys(d for w in job.workloads for d in errors(program, chip, extents(program.algorithm, w)))
        )
        if wrong:
            raise UserMistake(
                f"the seed program of {job.name} is refused on {chip.name}\n"
                + "\n".join(d.render(job.seed, f"<seed of {job.name}>") for d in wrong)
                + f"\nschedule lines after `for {chip.arch}:` hold on such chips alone"
            )
        lower(program, chip)
    except ProgramError as error:
        for d in error.diagnostics:
            if d.rule == "not-lowered":
                raise UserMistake(
                    f"the seed program of {job.name} has no lowering for {chip.name}: line {d.span.line}: {d.message}"
                ) from None


def _cluster(config: RunConfig, chip: Hardware) -> ClusterEvaluator:
    """The evaluator whose work the nodes of a Ray cluster do. Raises Unavailable, UserMistake."""
    from evaluators.cluster import ClusterEvaluator

    assert config.cluster is not None
    devices = choosing.judge(config.evaluator, chip) == "measured"  # said here, so that all nodes judge alike
    make: Callable[[int], Any]
    if config.language == "python" and config.evaluator == "local":
        make = functools.partial(_python, chip, config.accept_sandbox, devices, config.evaluator_options)
    else:
        make = functools.partial(_evaluator, config.evaluator, config.seed, chip, config.evaluator_options)
    return ClusterEvaluator(config.cluster, make, devices=devices)


def _evaluator(name: str, seed: int, chip: Hardware, options: dict[str, Any], jobs: int) -> Evaluator:
    """An evaluator by its name, on whichever node this is called."""
    made: Evaluator = plugins.create("evaluator", name, {"jobs": jobs, "seed": seed, "hardware": chip}, options)
    return made


def _python(chip: Hardware, accept: Level, device: bool, options: dict[str, Any], jobs: int) -> Evaluator:
    """The judge of raw Python, on whichever node this is called."""
    return python_judge(chip, accept, jobs, device=device, **options)


def _taken(config: RunConfig) -> dict[str, Any]:
    """Those of the agent's options that its constructor takes; the brief shows it all of them.

    Raises UserMistake for one that the agent knows not: a built-in one, or one that declares what it reads (`OPTIONS`).
    """
    found = plugins.load("agent", config.agent)
    known = inspect.signature(found).parameters if callable(found) else {}
    declared = getattr(found, "OPTIONS", () if getattr(found, "__module__", "").partition(".")[0] == "avo" else None)
    if declared is not None:
        of_person = {*known, *declared, *LOOP_OPTIONS} - {"self", "model", "jobs", "hardware"}
        for key in config.agent_options:
            if key not in of_person:
                raise UserMistake(unknown(f"option of the agent {config.agent}:", key, of_person))
    return {key: value for key, value in config.agent_options.items() if key in known}


def _target(config: RunConfig, given: str | Target | None) -> Target:
    from evaluators.loading import ready
    from evaluators.target import TargetError

    job = plugins.load("target", config.target) if given is None or isinstance(given, str) else given
    if config.program is None or config.language != "avo":
        return ready(workloads.retarget(job, config.workloads.values()))
    job = dataclasses.replace(job, seed=_seed(config.program, job))
    try:
        return ready(workloads.retarget(job, config.workloads.values()))
    except TargetError as error:
        raise TargetError(f"{error}\nthe seed program is that of {config.program}") from None


def _seed(path: str, job: Target) -> str:
    """The text of a program to start from. Raises UserMistake where it is wrong, or one of another job."""
    from avo.files import read_program
    from dsl.check import errors
    from evaluators.contract import breaches
    from evaluators.loading import seed_program

    if re.fullmatch(r"\d+/(\d+|best)", path) and not Path(path).exists():
        raise UserMistake(
            f"{path} is a candidate, and a file is wanted: `avo show {path} --program > seed.avo` writes one"
        )
    text, program = read_program(path)
    if wrong := errors(program):
        raise UserMistake("the program to start from is wrong\n" + "\n".join(d.render(text, path) for d in wrong))
    if other := breaches(seed_program(job).algorithm, program.algorithm, "all"):
        raise UserMistake(
            f"{path} is no program for {job.name}, whose inputs, outputs and params it has to have\n"
            + "\n".join(d.render(text, path) for d in other)
        )
    return text


def _record(store: Archive, run: int | None) -> int:
    return store.run(run).id


def _named(part: Any) -> bool:
    return part is None or isinstance(part, str)


def _name(part: Any, kind: str) -> str | None:
    """How the configuration names a part; an object by its class, which says what to pass again to `resume`."""
    if part is None or isinstance(part, str):
        return part
    name = getattr(part, "name", "")
    return f"<{kind} object {name or type(part).__qualname__}>"


def full_name(name: str) -> str:
    """A file by its whole path, so that it is found from another folder; anything else as it stands, and so a path that
    is no UTF-8, which no archive keeps."""
    if split := plugins.with_path(name):
        return f"{split[0]}:{_whole(split[1])}"
    if not plugins.is_file(name):
        return name
    path, colon, attribute = name.partition(".py:")
    return _whole(path + ".py" if colon else path) + (f":{attribute}" if colon else "")


def _whole(path: str) -> str:
    whole = str(Path(path).expanduser().resolve())
    return whole if whole == whole.encode("utf-8", "replace").decode() else path


def _sizes(given: str | Workload | Mapping[str, Scalar]) -> str | dict[str, Scalar]:
    if isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        return dict(given)
    return {**given.sizes, **given.params}
