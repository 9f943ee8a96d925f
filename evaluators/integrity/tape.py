"""What a call of a raw candidate asked for, written down and played again where no candidate has ever been.

The facts that a candidate's process reports can be forged by the candidate. This can not: it hands over a list of steps
(glue operators, launches of Triton kernels with their sources) *before* new inputs are drawn. A clean process, which
never loads the candidate, plays the steps on them, and the parent judges the numbers. Where they are right, kernels and
glue do the work, whatever the candidate's own process says; and on a device the clean process can take the time.

A tape that cannot be made or played (work in NumPy, kernels of another language) proves nothing against anybody.
`Recorder` runs in the candidate's process, `Player` in the clean one. There the kernels' sources are read as a list of
allowed things: names of `triton.language`, arithmetic, loops, a few methods of tensors. No other Python gets through.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import inspect
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
import triton
import triton.language as tl
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends import backends
from triton.tools.tensor_descriptor import TensorDescriptor

from evaluators.compiler import load_source
from evaluators.cpu import TORCH_DTYPES
from evaluators.integrity.mixing import Mixing
from evaluators.integrity.watching import SMALL, Calls, is_composite, is_glue, through, touches

MOST_STEPS = 2000
_TORCH = ("dtype", "layout", "memory_format")
_DESCRIPTOR = ("base", "shape", "strides", "block_shape")
_CAPTURE = ("capture_begin", "capture_end", "replay")
_DTYPES = {value.name: name for name, value in vars(tl).items() if isinstance(value, tl.dtype)}  # bf16: bfloat16


class NotTaped(Exception):
    """Why there is no tape, or why it is not played."""


# Values -------------------------------------------------------------------------------------------


def _encoded(value: Any, tensor: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, tl.constexpr):
        value = value.value
    if value is None or isinstance(value, bool | str):
        return ["v", value]
    if isinstance(value, int):
        return ["v", int(value)]
    if isinstance(value, float):
        return ["f", repr(float(value))]
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if isinstance(value, list | tuple):
        return ["l" if isinstance(value, list) else "u", [_encoded(v, tensor) for v in value]]
    if isinstance(value, tl.dtype):
        if value.name not in _DTYPES:
            raise NotTaped(f"the type {value.name}")
        return ["tl", _DTYPES[value.name]]
    if isinstance(value, torch.device):
        return ["device", value.type]
    for kind in _TORCH:
        if isinstance(value, getattr(torch, kind)):
            return ["torch", str(value).removeprefix("torch.")]
    if isinstance(value, TensorDescriptor):
        return ["descriptor", [_encoded(getattr(value, name), tensor) for name in _DESCRIPTOR]]
    raise NotTaped(f"an argument of type {type(value).__name__}")


def _decoded(value: Any, tensors: Mapping[int, torch.Tensor], device: str) -> Any:
    kind, content = value
    if kind == "v" and (content is None or isinstance(content, bool | str | int)):
        return content
    if kind == "f":
        return float(content)
    if kind == "t":
        return tensors[int(content)]
    if kind == "c":
        dtype, shape, values = content
        if len(values) > SMALL:
            raise NotTaped("a tensor of many literals")
        return torch.tensor(values, dtype=_decoded(["torch", dtype], {}, device)).reshape(shape)
    if kind in ("l", "u"):
        row = [_decoded(v, tensors, device) for v in content]
        return row if kind == "l" else tuple(row)
    if kind == "device":
        return torch.device("cpu" if content == "cpu" else device)
    if kind == "descriptor":
        return TensorDescriptor(*(_decoded(v, tensors, device) for v in content))
    found = getattr(torch if kind == "torch" else tl, str(content), None)
    if kind == "torch" and isinstance(found, tuple(getattr(torch, k) for k in _TORCH)):
        if isinstance(found, torch.layout) and found != torch.strided:
            raise NotTaped(f"a tensor of layout {content}")
        return found
    if kind == "tl" and isinstance(found, tl.dtype):
        return found
    raise NotTaped(f"a value of no known kind: {str(kind)[:20]} {str(content)[:40]}")


def _references(value: Any) -> Iterator[int]:
    kind, content = value
    if kind == "t":
        yield content
    elif kind in ("l", "u", "descriptor"):
        for part in content:
            yield from _references(part)


# Recording ----------------------------------------------------------------------------------------


class Recorder(TorchDispatchMode):
    """Enter it around a call. The first call that it sees is taken for a warm-up: of that only what made tensors which
    a later call uses is kept."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[dict[str, Any]] = []
        self._places: dict[int, int] = {}
        self._kept: list[Any] = []  # what lives keeps its id
        self._kernels: dict[int, tuple[int, dict[str, Any]]] = {}
        self._paused = False
        self._before: list[dict[str, Any]] = []
        self._inputs: list[int] = []
        self._streams: set[int] = set()
        self._graphs: dict[int, list[dict[str, Any]]] = {}  # steps that a graph makes again
        self._captured: list[dict[str, Any]] | None = None
        self.missing = ""

    def begin(self, inputs: Sequence[torch.Tensor]) -> None:
        self._before, self._steps, self.missing = [*self._before, *self._steps], [], ""
        self._streams = set()
        self._inputs = [self._place(x) for x in inputs]

    def _known(self, tensor: torch.Tensor) -> Any:
        """A few numbers from the host are written down; what is larger has to come from a step."""
        if id(tensor) not in self._places and tensor.device.type == "cpu" and tensor.numel() <= SMALL:
            return ["c", [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), tensor.reshape(-1).tolist()]]
        return ["t", self._place(tensor)]

    def _place(self, tensor: torch.Tensor) -> int:
        if id(tensor) not in self._places:
            self._places[id(tensor)] = len(self._places)
            self._kept.append(tensor)
        return self._places[id(tensor)]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, opened = through(self, func, args, kwargs or {})
        if not opened and not self._paused and touches(func) and func.name() not in _SILENT:
            self._add("op", func.name(), {}, args, kwargs or {}, result)
        return result

    def __enter__(self) -> Recorder:
        graphs = torch.cuda.CUDAGraph
        self._replaced = {name: getattr(graphs, name) for name in _CAPTURE if hasattr(graphs, name)}
        for name, method in self._replaced.items():
            setattr(graphs, name, self._of_a_graph(name, method))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for name, method in self._replaced.items():
            setattr(torch.cuda.CUDAGraph, name, method)

    def _of_a_graph(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """What happens in a capture does not happen then: it does with each replay."""

        def run(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if name == "capture_begin":
                self._captured = []
            result = method(graph, *args, **kwargs)
            if name == "capture_end" and self._captured is not None:
                self._graphs[id(graph)], self._captured = self._captured, None
                self._kept.append(graph)
            elif name == "replay":
                if id(graph) not in self._graphs:
                    self.missing = self.missing or "a graph that was captured before"
                self._steps += self._graphs.get(id(graph), [])
            return result

        return run

    def launch(self, kernel: Any, args: Any, kwargs: Mapping[str, Any], grid: Any) -> None:
        """A kernel's launch, before it happens."""
        try:
            names = list(kernel.arg_names)
            bound = {**dict(zip(names, args, strict=False)), **{k: v for k, v in kwargs.items() if k in names}}
            options = {k: v for k, v in kwargs.items() if k not in names and k in _OPTIONS and v is not None}
            grid = grid({**_defaults(kernel), **bound}) if callable(grid) else grid
            if id(kernel) not in self._kernels:
                self._kernels[id(kernel)] = len(self._kernels), _kernel(kernel)
                self._kept.append(kernel)
            where = {"kernel": self._kernels[id(kernel)][0], "grid": [int(n) for n in grid], "options": options}
        except NotTaped as no:
            self.missing = self.missing or str(no)
            return
        if torch.cuda.is_available():
            self._streams.add(torch.cuda.current_stream().stream_id)
        self._add("launch", "", where, (), bound, None)

    def _add(self, kind: str, name: str, more: dict[str, Any], args: Any, kwargs: Any, result: Any) -> None:
        results = result if isinstance(result, list | tuple) else [result]
        try:
            step = {
                "kind": kind,
                "name": name,
                **more,
                "args": _encoded(tuple(args), self._known),
                "kwargs": {key: _encoded(value, self._known) for key, value in kwargs.items()},
                "out": [self._place(r) if isinstance(r, torch.Tensor) else None for r in results],
            }
        except NotTaped as no:
            self.missing = self.missing or f"{name or 'a launch'}: {no}"
            return
        if self._captured is not None:
            self._captured.append(step)
        elif len(self._steps) < MOST_STEPS:
            self._steps.append(step)
        else:
            self.missing = f"more than {MOST_STEPS} steps"

    class _Pause:
        def __init__(self, recorder: Recorder) -> None:
            self._recorder = recorder

        def __enter__(self) -> None:
            self._recorder._paused = True

        def __exit__(self, *_: object) -> None:
            self._recorder._paused = False

    def paused(self) -> _Pause:
        """While a kernel runs: in the interpreter that is torch's work too."""
        return self._Pause(self)

    def tape(self, outputs: Sequence[torch.Tensor]) -> dict[str, Any]:
        """Of the last call. Raises NotTaped."""
        if self.missing:
            raise NotTaped(self.missing)
        for output in outputs:
            if id(output) not in self._places:
                raise NotTaped("an output that no step made")
        steps = [*self._needed(outputs), *self._steps]
        if len(steps) > MOST_STEPS:
            raise NotTaped(f"more than {MOST_STEPS} steps")
        kernels = [kernel for _, kernel in sorted(self._kernels.values(), key=lambda row: row[0])]
        ends = [self._places[id(o)] for o in outputs]
        streams = len(self._streams)
        return {"inputs": self._inputs, "steps": steps, "kernels": kernels, "outputs": ends, "streams": streams}

    def _needed(self, outputs: Sequence[torch.Tensor]) -> list[dict[str, Any]]:
        """Steps of calls before that made tensors which this call uses."""
        known = set(self._inputs)
        wanted: set[int] = set()
        for step in self._steps:
            wanted |= _used(step) - known
            known |= {o for o in step["out"] if o is not None}
        wanted |= {self._places[id(o)] for o in outputs} - known
        known = set(self._inputs)
        found = []
        for step in reversed(self._before):
            made = {o for o in step["out"] if o is not None} - _used(step)
            if step["kind"] == "op" and made & wanted:
                found.append(step)
                wanted = (wanted - made) | (_used(step) - known)
        return [*map(self._scratch, sorted(wanted)), *found[::-1]]

    def _scratch(self, place: int) -> dict[str, Any]:
        """A tensor that no step made: the memory alone, without what lay in it."""
        tensor = next(t for t in self._kept if self._places.get(id(t)) == place)
        storage = tensor.untyped_storage()
        return {
            "kind": "scratch",
            "name": "",
            "args": ["u", []],
            "kwargs": {},
            "out": [place],
            "storage": storage.data_ptr(),
            "bytes": storage.nbytes(),
            "of": _encoded((tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()), _nowhere),
        }


_SILENT = ("aten::record_stream",)  # a word to the allocator
_OPTIONS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "enable_fp_fusion",
    "waves_per_eu",
    "matrix_instr_nonkdim",
)
_MOST_SETTING = 512  # registers of a thread, the largest of them


def _used(step: Mapping[str, Any]) -> set[int]:
    return set(_references(step["args"])) | {r for value in step["kwargs"].values() for r in _references(value)}


def _defaults(kernel: Any) -> dict[str, Any]:
    signature = inspect.signature(kernel.fn)
    return {n: p.default for n, p in signature.parameters.items() if p.default is not inspect.Parameter.empty}


def _kernel(kernel: Any) -> dict[str, Any]:
    """Its source, with those of the functions that it calls and the constants and modules that it names."""
    functions: dict[str, str] = {}
    constants: dict[str, Any] = {}
    modules: dict[str, str] = {}

    def gather(name: str, function: Any) -> None:
        source = textwrap.dedent(inspect.getsource(function))
        functions[name] = source
        tree = ast.parse(source).body[0]
        assert isinstance(tree, ast.FunctionDef)
        named = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        for free in sorted(_free(tree)):
            if free in functions or free in constants or free in modules:
                continue
            if free not in named:
                if hasattr(builtins, free):
                    continue
                raise NotTaped(f"kernel {name}: {free} is no global name")
            value = named[free]
            if isinstance(value, ModuleType):
                modules[free] = value.__name__
            elif (place := _place_in_the_language(value)) is not None:
                constants[free] = ["from", place]
            elif hasattr(value, "fn") and hasattr(value, "arg_names"):
                gather(free, value.fn)
            else:
                constants[free] = _encoded(value, _nowhere)

    gather(kernel.fn.__name__, kernel.fn)
    return {"entry": kernel.fn.__name__, "functions": functions, "constants": constants, "modules": modules}


def _place_in_the_language(value: Any) -> list[str] | None:
    """[module, name] of a function that was imported by its name."""
    if not callable(value) or isinstance(value, tl.dtype):
        return None
    places = ([where, name] for where in _MODULES[1:] for name, there in _members(where).items() if there is value)
    return next(places, None)


def _members(where: str) -> dict[str, Any]:
    return vars(sys.modules[where]) if where in sys.modules else {}


def _nowhere(tensor: torch.Tensor) -> Any:
    raise NotTaped("a tensor in a kernel's globals")


def _free(function: ast.FunctionDef) -> set[str]:
    named = {n.id for part in function.body for n in ast.walk(part) if isinstance(n, ast.Name)}
    return named - _bound(function)


def _bound(function: ast.FunctionDef) -> set[str]:
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}


# Playing ------------------------------------------------------------------------------------------

_NODES = (
    *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.For, ast.While, ast.If, ast.Return, ast.Pass, ast.Assert),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.keyword, ast.Attribute, ast.Subscript),
    *(ast.Slice, ast.Tuple, ast.List, ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.unaryop, ast.boolop),
    ast.cmpop,
)
_BUILTINS = ("range", "min", "max", "abs", "float", "int", "bool", "len")
_METHODS = (
    *("to", "dtype", "element_ty", "shape", "T", "type", "reshape", "view", "trans", "permute", "broadcast_to", "cast"),
    *("expand_dims", "value", "sum", "max", "min", "argmax", "argmin", "xor_sum", "cumsum", "ravel", "numel", "scalar"),
    *("primitive_bitwidth", "sigmoid", "softmax", "load", "store", "logical_and", "logical_or", "split", "flip"),
)
_MODULES = (
    "triton",
    *(f"triton.language{more}" for more in ("", ".math", ".extra.libdevice", ".extra.cuda.libdevice")),
)


def _checked(name: str, source: str, known: set[str], modules: Mapping[str, str]) -> ast.FunctionDef:
    """The function, if there is nothing in it but what a kernel needs. Raises NotTaped."""
    if not name.isidentifier():
        raise NotTaped("a function without a name")
    body = ast.parse(source).body
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
        raise NotTaped(f"kernel {name} is no function")
    function = body[0]
    every = function.args
    defaults = [*every.defaults, *(d for d in every.kw_defaults if d is not None)]
    if every.vararg or every.kwarg or any(not isinstance(d, ast.Constant) for d in defaults):
        raise NotTaped(f"kernel {name}: its parameters")
    for argument in (*every.posonlyargs, *every.args, *every.kwonlyargs):
        constant = argument.annotation is not None and ast.unparse(argument.annotation).endswith("constexpr")
        argument.annotation = ast.parse("tl.constexpr", mode="eval").body if constant else None
    function.decorator_list, function.returns, function.name = [], None, name
    _Quiet().visit(function)
    if hasattr(function, "type_params"):
        function.type_params = []
    bound = _bound(function)
    for part in function.body:
        for node in ast.walk(part):
            if not isinstance(node, _NODES):
                raise NotTaped(f"kernel {name}: {type(node).__name__} in it")
            if isinstance(node, ast.Name) and node.id not in bound | known | set(_BUILTINS) | set(modules):
                raise NotTaped(f"kernel {name}: the name {node.id}")
            if isinstance(node, ast.Name) and node.id.startswith("__"):
                raise NotTaped(f"kernel {name}: the name {node.id}")
            if isinstance(node, ast.Attribute) and not _plain(node, modules, bound):
                raise NotTaped(f"kernel {name}: {ast.unparse(node)[:60]}")
    return function


class _Quiet(ast.NodeTransformer):
    """Leaves out what a kernel says to people: messages, which are f-strings often, and prints."""

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            return node
        said = call.func.attr
        if said in ("static_print", "device_print"):
            return ast.Pass()
        if said in ("static_assert", "device_assert"):
            call.args, call.keywords = call.args[:1], [k for k in call.keywords if k.arg in ("cond", "mask")]
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        node.msg = None
        return node


def _shown(name: str, value: Any) -> str:
    """A constant as it is written down: a plain value, or a tuple of them."""
    kind, content = value
    if kind in ("u", "l"):
        return "(" + "".join(f"{_shown(name, v)}, " for v in content) + ")"
    if kind not in ("v", "f"):
        raise NotTaped(f"the constant {name}")
    return f"float({content!r})" if kind == "f" else repr(content)


def _plain(node: ast.Attribute, modules: Mapping[str, str], bound: set[str]) -> bool:
    """A method of a tensor, or something of `triton.language` that is no module."""
    chain, inner = [node.attr], node.value
    while isinstance(inner, ast.Attribute):
        chain.append(inner.attr)
        inner = inner.value
    if not (isinstance(inner, ast.Name) and inner.id in modules and inner.id not in bound):
        return node.attr in _METHODS
    names = [*modules[inner.id].split(".")[2:], *chain[::-1]]
    if modules[inner.id] == "triton":
        if names in (["cdiv"], ["next_power_of_2"], ["language"]):
            return True
        if names[0] != "language":
            return False
        names = names[1:]
    return _of_the_language(names)


def _of_the_language(names: list[str]) -> bool:
    """Whether `tl.A.B.C` is what a kernel may say, or the beginning of it. By name: in the interpreter the functions of
    `triton.language` are others, from elsewhere."""
    first, *rest = names
    if first == "math":
        return len(rest) <= 1 and all(name in _SAID for name in rest)
    if first == "extra":
        known = [["libdevice"], ["cuda"], ["cuda", "libdevice"], *(["cuda", name] for name in _ON_CUDA)]
        if rest in ([], *known):
            return True
        return (
            rest[:-1] in known
            and rest[-2] == "libdevice"
            and re.fullmatch("(?!core$)[a-z][a-z0-9_]*", rest[-1]) is not None
        )
    return first in _SAID and all(name in _METHODS for name in rest)


def _imported(name: str, where: str, said: str) -> str:
    """The line that imports one function of the language. Raises NotTaped."""
    if where not in _MODULES[1:] or not _of_the_language([*where.split(".")[2:], said]):
        raise NotTaped(f"the constant {name}")
    return f"from {where} import {said} as {name}"


_SAID = set(tl.__all__) - {"extra", "math", "target_info"}
_ON_CUDA = ("globaltimer", "num_threads", "num_warps", "smid")


NOWHERE = "meta"  # torch's device for tensors without memory


def compiled(tape: Mapping[str, Any], library: bool, inputs: Sequence[Mapping[str, Any]]) -> None:
    """Compiles what the tape launches, for a player to come; nothing is launched or written, since another process may
    be timed meanwhile. What cannot be had so is compiled when it is played.

    Raises whatever.
    """
    places = [
        torch.empty(tuple(row["shape"]), dtype=getattr(torch, TORCH_DTYPES[row["dtype"]]), device=NOWHERE)
        for row in inputs
    ]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        Player(tape, NOWHERE, library).run(*places)


class Player:
    """`run` does what the tape says, and nothing else. Raises NotTaped for a tape with anything else in it.

    library: any of torch's operators may be in it, not glue alone.
    """

    def __init__(self, tape: Mapping[str, Any], device: str, library: bool = False) -> None:
        try:
            self._device, self._library = device, library
            self._memory: dict[int, torch.Tensor] = {}  # what lives on between calls
            self._calls = Calls()
            # What comes together follows from the steps, not from the numbers: the first run tells. It warms up on a
            # device, so that no time is taken of it.
            self._mixing: Mixing | None = None if library or device == NOWHERE else Mixing()
            if device == "cpu":  # what nobody has written is no number, and nothing that was freed
                torch.use_deterministic_algorithms(True, warn_only=True)
            elif device != NOWHERE:  # descriptors that a kernel makes need memory
                triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device=device))
            self._inputs = [int(i) for i in tape["inputs"]]
            self._outputs = [int(i) for i in tape["outputs"]]
            self._kernels = [self._load(row) for row in tape["kernels"]]
            self._steps = [self._step(row) for row in tape["steps"]]
            self.launches = sum(row["kind"] == "launch" for row in tape["steps"])
        except (LookupError, TypeError, ValueError, AttributeError, SyntaxError, RecursionError) as error:
            raise NotTaped(f"{type(error).__name__}: {error}"[:200]) from None

    def _load(self, row: Mapping[str, Any]) -> Any:
        modules = dict(row["modules"])
        if not set(modules.values()) <= set(_MODULES) or any(not n.isidentifier() for n in modules):
            raise NotTaped(f"modules {sorted(modules.values())}")
        known = {*row["functions"], *row["constants"]}
        lines = ["import triton", "import triton.language as tl"]
        lines += [f"import {where} as {name}" for name, where in modules.items()]
        for name, value in row["constants"].items():
            if not name.isidentifier():
                raise NotTaped("a constant without a name")
            kind, content = value
            if kind == "from":
                lines.append(_imported(name, *content))
                continue
            _decoded(value, {}, self._device)
            lines.append(f"{name} = tl.{content}" if kind == "tl" else f"{name} = tl.constexpr({_shown(name, value)})")
        checked = [_checked(name, source, known, modules) for name, source in row["functions"].items()]
        for function in checked:
            lines += ["", "", "@triton.jit", ast.unparse(ast.fix_missing_locations(function))]
        text = "\n".join(lines) + "\n"
        # What is run is what was checked, and not what the writing of it could be read as.
        written = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
        for function in written:
            function.decorator_list = []
        if [ast.dump(f) for f in written] != [ast.dump(f) for f in checked]:
            raise NotTaped("a kernel that reads otherwise when it is written down")
        return getattr(load_source(text), row["entry"])

    def _step(self, row: Mapping[str, Any]) -> Callable[[dict[int, torch.Tensor]], None]:
        args, kwargs, out = row["args"], row["kwargs"], [None if o is None else int(o) for o in row["out"]]
        device = self._device
        if row["kind"] == "launch":
            kernel = self._kernels[int(row["kernel"])]
            grid = tuple(int(n) for n in row["grid"])
            options = {k: v for k, v in row["options"].items() if k in _OPTIONS and _is_setting(v)}
            for key, value in kwargs.items():
                # Triton takes what it compiles with (files and flags among it) from the same keywords.
                if key not in kernel.arg_names or (
                    key in _settings() and not (key in _OPTIONS and _is_setting(value[1]))
                ):
                    raise NotTaped(f"the keyword {key[:60]}")

            def launch(tensors: dict[int, torch.Tensor]) -> None:
                given = {k: _decoded(v, tensors, device) for k, v in kwargs.items()}
                if self._mixing is not None:
                    self._mixing.launched([*given.values()])
                if device == NOWHERE:
                    kernel.run(grid=grid, warmup=True, **given, **options)
                else:
                    kernel[grid](**given, **options)

            return launch
        if row["kind"] == "scratch":
            dtype, shape, strides, offset = _decoded(row["of"], {}, device)
            storage, size = int(row["storage"]), int(row["bytes"])

            def lay(tensors: dict[int, torch.Tensor]) -> None:
                if storage not in self._memory:
                    self._memory[storage] = torch.zeros(size, dtype=torch.uint8, device=device)
                laid = self._memory[storage].view(dtype).as_strided(shape, strides, offset)
                if self._mixing is not None:
                    self._mixing.given(laid)
                tensors[out[0]] = laid  # type: ignore[index]

            return lay
        operator, overload = self._operator(str(row["name"]))

        def operate(tensors: dict[int, torch.Tensor]) -> None:
            named = {key: _decoded(value, tensors, device) for key, value in kwargs.items()}
            plain = _decoded(args, tensors, device)
            result = operator(*plain, **named)
            if self._mixing is not None:
                self._mixing.done(overload, plain, named, result)
            for place, made in zip(out, result if isinstance(result, list | tuple) else [result], strict=True):
                if isinstance(made, torch.Tensor):
                    _inside(made, str(row["name"]), device)  # one that has no place may still be an argument, changed
                    if place is not None:
                        tensors[place] = made

        return operate

    def _operator(self, name: str) -> tuple[Callable[..., Any], Any]:
        """(how it is called, one of torch's). One that is no glue takes a few numbers only, unless `library`. Raises
        NotTaped."""
        space, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        found = getattr(getattr(torch.ops.aten, base, None), overload or "default", None) if space == "aten" else None
        if not isinstance(found, torch._ops.OpOverload) or is_composite(found):  # a recorder sees what those consist of
            raise NotTaped(f"the operator {name}")
        if self._library or is_glue(found):
            return found, found
        if base not in _ON_FEW:
            raise NotTaped(f"the operator {name}")

        def small(*args: Any, **kwargs: Any) -> Any:
            if not self._calls.small((args, tuple(kwargs.values()))):
                raise RuntimeError(f"the operator {name}, which is no glue")
            return found(*args, **kwargs)

        return small, found

    def run(self, *inputs: torch.Tensor, **params: Any) -> tuple[torch.Tensor, ...]:
        """The candidate's `run`, as it was recorded: shapes and params are those of that call."""
        tensors = dict(zip(self._inputs, inputs, strict=True))
        self._calls.spent = 0
        if self._mixing is not None:
            self._mixing.began(inputs)
        for step in self._steps:
            step(tensors)
        outputs = tuple(tensors[i] for i in self._outputs)
        if self._mixing is not None:
            self._mixing.ended(inputs, outputs)
        self._mixing = None
        return outputs


def _is_setting(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= _MOST_SETTING


@functools.cache
def _settings() -> frozenset[str]:
    """What Triton's compilers take from the keywords of a launch."""
    modules = [sys.modules[backend.compiler.__module__] for backend in backends.values()]
    classes = [value for module in modules for value in vars(module).values() if dataclasses.is_dataclass(value)]
    return frozenset(f.name for kind in classes for f in dataclasses.fields(kind))


def _inside(tensor: torch.Tensor, name: str, device: str) -> None:
    """Raises RuntimeError for what is no dense tensor here, and for a view that reaches outside of its memory: torch's
    `_reshape_alias` makes them. Who writes through one, or by a sparse tensor's places, changes the process that
    plays."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type not in ("cpu", device):
        raise RuntimeError(f"the operator {name} makes a tensor of another kind")
    if not tensor.numel():
        return
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    least = min(tensor.stride(), default=0)
    end = (tensor.storage_offset() + reach + 1) * tensor.element_size()
    if least < 0 or end > tensor.untyped_storage().nbytes():
        raise RuntimeError(f"the operator {name} makes a view outside of its tensor's memory")


# What may be asked for a few numbers, beside glue. All of these look where they read and write.
_ON_FEW = frozenset(
    (
        *("sum", "mean", "prod", "amax", "amin", "max", "min", "aminmax", "argmax", "argmin", "any", "all", "cumsum"),
        *("cumprod", "logsumexp", "_softmax", "_log_softmax", "linalg_vector_norm", "norm", "var", "std", "var_mean"),
        *("mm", "bmm", "mv", "dot", "addmm", "baddbmm", "sort", "argsort", "topk", "flip", "roll", "tril", "triu"),
        *("index_select", "gather", "index", "masked_select", "nonzero", "bincount", "searchsorted", "bucketize"),
    )
)
