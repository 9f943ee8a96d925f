"""Where targets, chips, evaluators, agents and models come from: built-ins, entry points, `module:Class`, a file.

Built-ins are literal dicts of references, so nothing is imported to list them. A name that two packages claim is an
error that names both, raised when that name is used; a plugin that does not import fails by name when used.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from avo.errors import UserMistake, unknown

if TYPE_CHECKING:
    from dsl.hardware import Hardware

KINDS = ("target", "hardware", "evaluator", "agent", "model")
GROUPS = {
    "target": "avo.targets",
    "hardware": "avo.hardware",
    "evaluator": "avo.evaluators",
    "agent": "avo.agents",
    "model": "avo.models",
}
_METHODS = {"evaluator": ("evaluate", "close"), "agent": ("propose",), "model": ()}

BUILTIN_EVALUATORS = {
    "local": "evaluators.judge:LocalEvaluator",  # on a machine with the chip `avo.choosing` makes "measured" of it
    "predicted": "evaluators.judge:LocalEvaluator",
    "measured": "evaluators.measured:MeasuredEvaluator",
    "recorded": "evaluators.recorded:RecordedEvaluator",  # recorded:PATH, a table or a folder of tables
}
# A built-in that is nothing without a path takes it after a colon: name -> the parameter that it is.
_WITH_PATH = {"recorded": "tables"}
BUILTIN_MODELS: dict[str, str] = {}


@dataclass(frozen=True)
class Plugin:
    """One claim to a name. `owner` is a distribution and its version, or "avo" for a built-in."""

    kind: str
    name: str
    reference: str  # module:attribute
    owner: str


@dataclass(frozen=True)
class Broken:
    """A plugin that cannot be used and why; `avo doctor` shows these."""

    plugin: Plugin
    reason: str


def builtins(kind: str) -> dict[str, str]:
    """name -> reference of avo's own."""
    match kind:
        case "target":
            from evaluators.targets import BUILTIN

            return dict(BUILTIN)
        case "hardware":
            from dsl.hardware import HARDWARE

            return {name: f"dsl.hardware:HARDWARE[{name}]" for name in HARDWARE}
        case "evaluator":
            return BUILTIN_EVALUATORS
        case "agent":
            from avo.agents.registry import BUILTIN as AGENTS

            return dict(AGENTS)
        case _:
            return BUILTIN_MODELS


def installed(kind: str) -> list[Plugin]:
    """Every claim of that kind, built-ins first; imports no plugin."""
    claims = [Plugin(kind, name, ref, "avo") for name, ref in builtins(kind).items()]
    for point in metadata.entry_points(group=GROUPS[kind]):
        dist = point.dist
        owner = f"{dist.name} {dist.version}" if dist is not None else "an unknown distribution"
        claim = Plugin(kind, point.name, point.value, owner)
        if claim not in claims:  # the same distribution may be seen twice on sys.path
            claims.append(claim)
    return claims


def names(kind: str) -> list[str]:
    return list(dict.fromkeys(p.name for p in installed(kind)))


def clashes(kind: str) -> dict[str, list[Plugin]]:
    """name -> its claims, where there are several."""
    by_name: dict[str, list[Plugin]] = {}
    for plugin in installed(kind):
        by_name.setdefault(plugin.name, []).append(plugin)
    return {name: claims for name, claims in by_name.items() if len(claims) > 1}


def load(kind: str, name: str) -> Any:
    """The object behind a name, a `package.module:Class`, or a file `path.py` or `path.py:Name`.

    Raises UserMistake for an unknown name (nearest first), a clash (both owners), and a plugin that fails to import or
    is not what its kind needs.
    """
    if is_file(name) or ":" in name:
        return _typed(kind, name, _from_reference(name, kind))
    claims = [p for p in installed(kind) if p.name == name]
    if kind == "hardware" and not claims:
        claims = _alias(name)
    if not claims:
        raise UserMistake(unknown(kind, name, names(kind)))
    if len(claims) > 1:
        owners = " and ".join(f"{p.owner} ({p.reference})" for p in claims)
        raise UserMistake(
            f"two owners claim the {kind} '{name}': {owners}. Uninstall one, or name the class as module:Class"
        )
    plugin = claims[0]
    try:
        found = _from_reference(plugin.reference, kind)
    except UserMistake as error:
        if plugin.owner == "avo":
            raise
        raise UserMistake(f"the {kind} plugin '{name}' of {plugin.owner} is broken: {error}") from error
    return _typed(kind, f"{name} ({plugin.owner})", found)


def _alias(name: str) -> list[Plugin]:
    """A built-in chip by an alias or another spelling ("B200", "sm_100", "NVIDIA H200")."""
    from dsl.hardware import UnknownHardware, hardware

    try:
        chip = hardware(name)
    except UnknownHardware:
        return []
    return [Plugin("hardware", chip.name, f"dsl.hardware:HARDWARE[{chip.name}]", "avo")]


def create(kind: str, name: str, available: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> Any:
    """Build an evaluator or agent: a class is called with those of `available` that it names, and with `options`.

    `options` come from the person (`--set agent_options.x=1`); one that the class does not take is their mistake.
    """
    options = dict(options or {})
    if kind == "evaluator" and (split := with_path(name)):
        name, options = split[0], options | {_WITH_PATH[split[0]]: split[1]}
    found = load(kind, name)
    if not callable(found) or (not inspect.isclass(found) and all(hasattr(found, m) for m in _METHODS[kind])):
        if options:
            raise UserMistake(f"the {kind} '{name}' is a ready object and takes no options; got {', '.join(options)}")
        return found
    parameters = inspect.signature(found).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key in options:
        if key not in parameters and not anything:
            raise UserMistake(unknown(f"option of the {kind} {name}:", key, parameters))
    given = {k: v for k, v in available.items() if k in parameters} | options
    made = _guarded(f"the {kind} '{name}'", lambda: found(**given))
    missing = [m for m in _METHODS[kind] if not callable(getattr(made, m, None))]
    if missing:
        raise UserMistake(f"the {kind} '{name}' lacks {' and '.join(f'{m}()' for m in missing)}: see docs/plugins.md")
    return made


def with_path(name: str) -> tuple[str, str] | None:
    """(evaluator, path) of a name like `recorded:FOLDER`; None for any other name."""
    head, colon, path = name.partition(":")
    return (head, path) if colon and path and head in _WITH_PATH else None


def usable(kind: str, tell: Callable[[str], None]) -> list[Any]:
    """Every object of that kind; one that clashes or does not load is told and left out: it stops nobody else."""
    found = []
    for name in names(kind):
        try:
            found.append(load(kind, name))
        except UserMistake as error:
            tell(str(error))
    return found


def broken() -> list[Broken]:
    """Every third-party plugin that clashes or does not load; imports them all, so only `avo doctor` calls it."""
    found = []
    for kind in KINDS:
        for plugin in installed(kind):
            if plugin.owner == "avo":
                continue
            try:
                load(kind, plugin.name)
            except UserMistake as error:
                found.append(Broken(plugin, str(error)))
    return found


# References --------------------------------------------------------------------------------------


def is_file(name: str) -> bool:
    return _FILE.match(name) is not None


_FILE = re.compile(r"^(?P<path>.+\.py)(?::(?P<attribute>\w+))?$")
_ITEM = re.compile(r"^(?P<name>\w+)\[(?P<key>[^]]+)\]$")
_BY_KIND = {"target": "Target", "hardware": "Hardware"}


# Top names of the modules that people's code came from: what is raised in there is not a bug of avo.
FOREIGN: set[str] = set()


def ours(module: str) -> bool:
    """Whether a module, by its full name, is one of avo's own packages."""
    return module.partition(".")[0] in ("avo", "archive", "evaluators", "dsl")


def _from_reference(reference: str, kind: str) -> Any:
    if match := _FILE.match(reference):
        module = load_file(Path(match["path"]))
        return _pick(module, match["attribute"], kind, reference)
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise UserMistake(f"'{reference}' is neither a name, a package.module:Class nor a file.py")
    if not ours(module_name):
        FOREIGN.add(module_name.partition(".")[0])
    return _pick(_import(module_name, reference), attribute, kind, reference)


def _import(name: str, reference: str) -> ModuleType:
    here = str(Path.cwd())
    # A console script does not see the working directory; appended last, so that nothing there can shadow a package.
    added = here not in sys.path and "" not in sys.path
    if added:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            where = f"no module '{error.name}' is installed or lies in {here}"
            raise UserMistake(f"cannot import '{reference}': {where}") from error
        raise UserMistake(told(f"importing '{reference}'", error)) from error
    except (Exception, SystemExit) as error:
        raise UserMistake(told(f"importing '{reference}'", error)) from error
    finally:
        if added:
            sys.path.remove(here)


_FILES: dict[Path, ModuleType] = {}


def load_file(path: Path) -> ModuleType:
    """Run a person's Python file, once a process. It is trusted code: it runs with all your rights."""
    path = path.expanduser().resolve()
    if path in _FILES:
        return _FILES[path]
    if not path.is_file():
        raise UserMistake(f"{path} is a folder; name a file" if path.is_dir() else f"no such file: {path}")
    spec = importlib.util.spec_from_file_location(f"avo_file_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    FOREIGN.add(module.__name__)
    sys.modules[module.__name__] = module  # dataclasses and typing look their module up
    loader = spec.loader
    try:
        _guarded(str(path), lambda: loader.exec_module(module))
    except BaseException:
        sys.modules.pop(module.__name__, None)
        raise
    _FILES[path] = module
    return module


def _pick(module: ModuleType, attribute: str | None, kind: str, reference: str) -> Any:
    if attribute is None:
        return _only(module, kind, reference)
    if match := _ITEM.match(attribute):
        return getattr(module, match["name"])[match["key"]]
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            public = [n for n in dir(value) if not n.startswith("_")]
            raise UserMistake(unknown(f"name in {reference.rpartition(':')[0]}:", part, public[:40]))
        value = getattr(value, part)
    return value


def _only(module: ModuleType, kind: str, reference: str) -> Any:
    """The one object of that kind which the file defines."""
    own = {n: v for n, v in vars(module).items() if not n.startswith("_")}
    if kind in _BY_KIND:
        fits = {n: v for n, v in own.items() if type(v).__name__ == _BY_KIND[kind]}
    else:
        fits = {
            n: v
            for n, v in own.items()
            if inspect.isclass(v) and v.__module__ == module.__name__ and all(hasattr(v, m) for m in _METHODS[kind])
        }
    if len(fits) == 1:
        return next(iter(fits.values()))
    wanted = f"a {_BY_KIND[kind]}" if kind in _BY_KIND else f"a class with {' and '.join(_METHODS[kind])}"
    if not fits:
        raise UserMistake(f"{reference} defines no {kind}: it needs {wanted} at module level")
    raise UserMistake(f"{reference} defines several: name one of {', '.join(f'{reference}:{n}' for n in fits)}")


def _typed(kind: str, name: str, found: Any) -> Any:
    """Check the object against its kind; a target or chip may be given as a function without arguments."""
    if kind == "target":
        from evaluators.target import Target

        value = _guarded(f"the target {name}", found) if callable(found) and not isinstance(found, Target) else found
        if not isinstance(value, Target):
            raise UserMistake(f"the target {name} is {type(value).__name__}, not an avo Target: see docs/targets.md")
        return value
    if kind == "hardware":
        from dsl.hardware import Hardware

        value = (
            _guarded(f"the hardware {name}", found) if callable(found) and not isinstance(found, Hardware) else found
        )
        if not isinstance(value, Hardware):
            raise UserMistake(
                f"the hardware {name} is {type(value).__name__}, not an avo Hardware: see docs/plugins.md"
            )
        return possible(value, name)
    missing = [m for m in _METHODS[kind] if not callable(getattr(found, m, None))]
    if inspect.isclass(found) and missing:
        raise UserMistake(f"the {kind} {name} lacks {' and '.join(f'{m}()' for m in missing)}: see docs/plugins.md")
    if missing and not callable(found):
        raise UserMistake(f"the {kind} {name} is {type(found).__name__}, not a class or function: see docs/plugins.md")
    return found


def possible(chip: Hardware, name: str) -> Hardware:
    """The chip. Raises UserMistake where a field of it cannot be so: every time and limit would follow from that."""
    from dsl.hardware_check import faults

    if wrong := faults(chip):
        raise UserMistake(f"the hardware {name}: {'; '.join(wrong)}: see docs/plugins.md")
    return chip


def _guarded(what: str, call: Callable[[], Any]) -> Any:
    """Run a person's code; what it raises becomes their mistake, with the line of their file."""
    try:
        return call()
    except UserMistake:
        raise
    except (Exception, SystemExit) as error:
        raise UserMistake(str(error) if getattr(error, "for_people", False) else told(what, error)) from error


def told(what: str, error: BaseException) -> str:
    """What a person's code raised, and where: the last line of it that is no import."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{what}: SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename and f.filename != __file__
    ]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    text = str(error) or "no message"
    return f"{what} raised {type(error).__name__}: {text}{place}"
