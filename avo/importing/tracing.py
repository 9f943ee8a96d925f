"""From a PyTorch function to the operators that it runs (torch.export), and from these to values of the language."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import logging
import operator as python
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from avo.errors import UserMistake
from avo.importing import layers as _layers  # noqa: F401  (registers its operators)
from avo.importing.operators import OPERATORS, call
from avo.importing.shapes import length
from avo.importing.values import Builder, Cannot, Value, literal
from dsl.syntax import Binary, Expr, Name, Number, Unary
from dsl.wording import counted

DTYPES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int8": "int8",
    "int32": "i32",
    "int64": "i32",
    "bool": "bool",
    "float64": "f64",
}
_IGNORED = frozenset(
    (
        *("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "implicit"),
        *("generator", "sparse_grad", "output_size", "requires_grad"),
    )
)
_BY_RANK = {1: "c", 2: "rc", 3: "bsc", 4: "bhsd"}  # what the axes of an input are called where nothing says more
_CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")


@dataclass(frozen=True)
class Trouble:
    """One operator that has no words in the language, and the line of the person's file that asked for it."""

    operator: str
    line: int
    why: str


class NotImported(Exception):
    """The function cannot be written in the language: every operator that is in the way."""

    def __init__(self, path: str, troubles: Sequence[Trouble], source: Sequence[str]) -> None:
        self.troubles = tuple(troubles)
        lines = [f"{path}: {counted(len(troubles), 'operator')} that cannot be written so:"]
        for t in troubles:
            lines.append(f"{path}:{t.line}: {t.operator}: {t.why}")
            if 0 < t.line <= len(source):
                lines.append("    " + source[t.line - 1].strip())
        super().__init__("\n".join(lines))


@dataclass
class Traced:
    """values and axes of the builder; inputs by parameter name; outputs in order. specialised: axes of inputs whose
    length the trace fixed, so that numbers computed from them have lost where they came from."""

    builder: Builder
    inputs: dict[str, Value] = field(default_factory=dict)
    outputs: list[Value] = field(default_factory=list)
    specialised: list[int] = field(default_factory=list)


def trace(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    path: Path,
    called: Mapping[str, Sequence[str]] | None = None,
) -> Traced:
    """arguments: by parameter name, in order; tensors are inputs, all else is fixed at its value. called: what the
    person calls the axes of an input.

    Raises UserMistake where the function fails or cannot be exported, NotImported where operators are in the way.
    """
    graph, names = _exported(function, arguments, path, called or {})
    return _Reader(graph, names, arguments, path, called or {}).run()


def _exported(
    function: Callable[..., Any], arguments: Mapping[str, Any], path: Path, called: Mapping[str, Sequence[str]]
) -> tuple[Any, list[str]]:
    import torch

    names = [n for n, a in arguments.items() if isinstance(a, torch.Tensor)]
    if not names:
        raise UserMistake(f"{function.__name__} has no tensor among its arguments")
    fixed = {n: a for n, a in arguments.items() if n not in names}

    lengths: dict[str, tuple[str, str]] = {}  # torch's symbol -> as the function calls it, what it is in the example

    class Wrapped(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            for name, tensor in zip(names, tensors, strict=True):
                axes = dict(enumerate(called.get(name, ())))
                for place, (symbol, n) in enumerate(zip(tensor.shape, arguments[name].shape, strict=True)):
                    own = f"{name}.shape[{place}]"
                    known = f"{own} is {axes[place]}={n}" if axes.get(place) else f"{own} is {n}"
                    lengths.setdefault(str(symbol), (own, known))
            return function(**dict(zip(names, tensors, strict=True)), **fixed)

    tensors = tuple(arguments[n] for n in names)
    auto = torch.export.Dim.AUTO
    shapes = (tuple({p: auto for p, n in enumerate(t.shape) if n > 1} for t in tensors),)
    with _quiet(), torch.no_grad():
        try:
            whole = torch.export.export(Wrapped(), tensors, dynamic_shapes=shapes, strict=False)
            program = _decomposed(whole)
        except Exception as error:
            raise UserMistake(_export_trouble(function, error, path, lengths)) from None
    if any("MUTATION" in str(s.kind) for s in program.graph_signature.output_specs):
        first = next(n for n in whole.graph.nodes if _in_place(n))
        source = path.read_text(encoding="utf-8").splitlines()
        name, line = _name(first.target), line_of(first, path)
        why = f"it changes an argument in place; write it without the `_`: {name.rstrip('_')}"
        raise NotImported(str(path), [Trouble(name, line, why)], source)
    return program, names


def _decomposed(program: Any) -> Any:
    """The operators that have no handler here by those that PyTorch itself makes them of, and no others: what is left
    whole (a product, attention) reads better. Operators that work in place become those that do not."""
    import torch

    if any(_in_place(n) for n in program.graph.nodes):
        program = program.run_decompositions({})
    for _ in range(4):
        targets = {n.target for n in program.graph.nodes if n.op == "call_function" and hasattr(n.target, "_schema")}
        unknown = {t for t in targets if _name(t) not in OPERATORS and _name(t) not in (*_CHECKS, "sym_size")}
        if not unknown:
            break
        from torch._decomp import get_decompositions

        table = torch.export.default_decompositions()
        chosen = {t: table[t] for t in unknown if t in table}
        chosen |= {t: f for t, f in get_decompositions(list(unknown - chosen.keys())).items() if t in unknown}
        if not chosen:
            break
        program = program.run_decompositions(chosen)
    return program


def _in_place(node: Any) -> bool:
    """Whether an operator changes one of its operands: `add_`."""
    return hasattr(node.target, "_schema") and bool(node.target._schema.is_mutable)


def _name(target: Any) -> str:
    return str(target._schema.name).partition("::")[2]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch.export warns of what is fine here (lengths that it fixes)."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    nowhere = io.StringIO()  # it also prints the graph that it had when it failed
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _export_trouble(
    function: Callable[..., Any], error: Exception, path: Path, lengths: Mapping[str, tuple[str, str]]
) -> str:
    """lengths: of torch's symbols, which no person has seen: `s85` is the second length of x."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    where = f"{path}:{frames[-1].lineno}" if frames else f"{path}:{inspect.unwrap(function).__code__.co_firstlineno}"
    text = " ".join(str(error).split("\n\n")[0].split())
    if "data-dependent" in text or "GuardOnDataDependent" in type(error).__name__:
        text = "a branch or a shape depends on the values of a tensor; the language has where() and fixed shapes"
    text = text[:600]
    met = [s for s in dict.fromkeys(_SYMBOL.findall(text)) if s in lengths]
    text = _SYMBOL.sub(lambda s: lengths[s[0]][0] if s[0] in lengths else s[0], text).rstrip(".")
    told = f" ({', '.join(lengths[s][1] for s in met)})" if met else ""
    return f"{where}: {function.__name__} cannot be traced: {text}{told}"


_SYMBOL = re.compile(r"\bs\d+\b")


_FILLED = "nothing is filled part by part; torch.cat the parts, or torch.stack((a, b), -1).flatten(-2) to alternate"
_COMPLEX = "the language has no complex numbers; write real and imaginary parts: (a * c - b * s, a * s + b * c)"
_NO_RANDOM = "the language has no random numbers"
_NO_ORDER = "the language has no sorting; topk[n](x, k) gives a mask of the k largest, not their values and places"
_NO_SCATTER = "the language writes no value by position; turn it round: read by position, or where()"
_DATA = "the shape of its result depends on values"
_WHY = {
    **dict.fromkeys(("rand", "randn", "randint", "rand_like", "randn_like", "bernoulli", "multinomial"), _NO_RANDOM),
    **dict.fromkeys(("native_dropout", "uniform", "normal"), _NO_RANDOM),
    **dict.fromkeys(("sort", "argsort", "topk", "kthvalue", "median", "mode", "msort"), _NO_ORDER),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce", "index_put", "index_add", "index_copy"), _NO_SCATTER),
    **dict.fromkeys(("nonzero", "unique", "_unique2", "masked_select", "bincount"), _DATA),
    **dict.fromkeys(("empty", "empty_like", "empty_permuted", "slice_scatter", "select_scatter", "copy"), _FILLED),
    **dict.fromkeys(("view_as_complex", "view_as_real", "complex", "polar"), _COMPLEX),
    "item": "it takes a value of a tensor into Python",
    "_local_scalar_dense": "it takes a value of a tensor into Python",
}


class _Reader:
    """Reads the exported graph, node by node."""

    def __init__(
        self,
        program: Any,
        names: list[str],
        arguments: Mapping[str, Any],
        path: Path,
        called: Mapping[str, Sequence[str]],
    ) -> None:
        self.program, self.names, self.arguments, self.path, self.called = program, names, arguments, path, called
        self.source = path.read_text(encoding="utf-8").splitlines()
        self.traced = Traced(Builder())
        self.env: dict[Any, Any] = {}
        self.troubles: list[Trouble] = []
        self.last_of_line: dict[int, Value] = {}

    def run(self) -> Traced:
        b = self.traced.builder
        queue = list(self.names)
        constants = self._constants()
        for node in self.program.graph.nodes:
            b.line = self._line(node)
            if node.op == "placeholder":
                if node.name in constants:
                    self._constant(node, constants[node.name])
                else:
                    self.env[node] = self._input(queue.pop(0), node)
            elif node.op == "output":
                self._outputs(node.args[0])
            elif node.op == "get_attr":
                self._constant(node, getattr(self.program.graph_module, node.target))
            else:
                self._call(node)
        if self.troubles:
            raise NotImported(str(self.path), self.troubles, self.source)
        variables = assigned(self.source)
        for line, value in self.last_of_line.items():
            if line in variables and not value.named:
                value.named = variables[line]
        return self.traced

    def _constants(self) -> dict[str, Any]:
        """Tensors that the function did not get as arguments, by the placeholder that stands for them."""
        signature = self.program.graph_signature
        found = {**signature.inputs_to_buffers, **signature.inputs_to_parameters}
        found |= signature.inputs_to_lifted_tensor_constants
        held = {**self.program.constants, **self.program.state_dict}
        return {place: held[name] for place, name in found.items()}

    def _constant(self, node: Any, tensor: Any) -> None:
        if hasattr(tensor, "numel") and tensor.numel() == 1:
            b = self.traced.builder
            self.env[node] = b.make(literal(tensor.item()), [None] * tensor.dim(), dtype_of(tensor))
        else:
            shape, line = list(getattr(tensor, "shape", ())), self._line(next(iter(node.users), node))
            self._stop("constant", f"a tensor {shape} that is no argument; make it one", line)

    def _input(self, name: str, node: Any) -> Value:
        b, tensor = self.traced.builder, self.arguments[name]
        dtype = dtype_of(tensor)
        if dtype == "f64" or dtype == "?":
            legal = "float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, int8, int32, int64, bool"
            more = "; take torch.view_as_real of it, or two inputs" if tensor.dtype.is_complex else ""
            raise UserMistake(f"input {name} is {tensor.dtype}; the language has {legal}{more}")
        dims = []
        for n, shown in zip(tensor.shape, node.meta["val"].shape, strict=True):
            axis = b.axes.new(int(n))
            dims.append(axis)
            if str(shown).isdigit() and n > 1:  # a SymInt too, once torch has fixed it
                self.traced.specialised.append(axis)
        for axis, hint in zip(dims, _BY_RANK.get(len(dims), ""), strict=False):
            b.axes.hint(axis, hint, 1)
        for axis, hint in zip(dims, self.called.get(name, ()), strict=False):
            b.axes.hint(axis, hint, 10)
        whole = b.make(Name(name), dims, dtype)
        whole.is_input, whole.named = True, name
        self.traced.inputs[name] = whole
        if 1 not in tensor.shape:
            return whole
        at = {d: Number(0) for d, n in zip(dims, tensor.shape, strict=True) if n == 1}
        seen: list[int | None] = [None if n == 1 else d for d, n in zip(dims, tensor.shape, strict=True)]
        return b.make(b.moved(whole.ref, at), seen, dtype)

    def _outputs(self, given: Any) -> None:
        for node in given:
            value = self.env.get(node) if node is not None else None
            if not isinstance(value, Value) and not self.troubles:
                raise UserMistake(f"{self.path}: the function returns something that is no tensor")
            if isinstance(value, Value):
                self.traced.outputs.append(value)

    def _call(self, node: Any) -> None:
        b = self.traced.builder
        target = node.target
        if target is python.getitem:
            source = self.env.get(node.args[0])
            if source is not None and node.args[1] < len(source):
                self.env[node] = source[node.args[1]]
            elif source is not None:
                self._stop("getitem", f"result {node.args[1]} of this operator", b.line)
            return
        name = _name(target) if hasattr(target, "_schema") else target.__name__
        if name in _CHECKS:
            return
        arguments = self._arguments(node)
        if arguments is None:  # it needs what is in the way already
            return
        try:
            if name == "sym_size":
                self.env[node] = length(b, arguments[0].dims[arguments[1]])
                return
            if not hasattr(target, "_schema") or name.startswith("sym_"):
                self.env[node] = scalar(name, arguments)
                return
            self.env[node] = self._operator(node, name, arguments)
        except Cannot as why:
            asked = node.meta.get("torch_fn") if name.startswith("_") else None  # what the person called it
            self._stop(str(asked[1]).rpartition(".")[2] if asked else name, str(why), b.line)

    def _operator(self, node: Any, name: str, arguments: list[Any]) -> Any:
        b = self.traced.builder
        handler = OPERATORS.get(name)
        if handler is None:
            raise Cannot(_WHY.get(name, "the language has nothing for it, or avo import does not know it"))
        meta = node.meta["val"]
        dtype = dtype_of(meta[0] if isinstance(meta, (tuple, list)) else meta)
        named = "name" in inspect.signature(handler).parameters
        before = len(b.values)
        result = handler(b, dtype, *arguments, **({"name": name} if named else {}))
        if isinstance(result, Value) and result.id >= before:
            result.dtype = dtype
            self.last_of_line[b.line] = result
        return result

    def _arguments(self, node: Any) -> list[Any] | None:
        """The arguments by position, with the schema's defaults up to the last that was given; None: one is missing."""
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            given = list(node.args)
        else:
            given, last = [], 0
            for i, a in enumerate(schema.arguments):
                if a.name in _IGNORED and not (a.name == "dtype" and i < len(node.args)):
                    continue
                if i < len(node.args):
                    given.append(node.args[i])
                else:
                    given.append(node.kwargs.get(a.name, a.default_value if a.has_default_value() else None))
                if i < len(node.args) or a.name in node.kwargs:
                    last = len(given)
            given = given[:last]
        try:
            return [self._value(g) for g in given]
        except KeyError:
            return None

    def _value(self, given: Any) -> Any:
        if isinstance(given, (list, tuple)):
            return [self._value(g) for g in given]
        if hasattr(given, "meta"):
            return self.env[given]
        return given

    def _stop(self, name: str, why: str, line: int) -> None:
        self.troubles.append(Trouble(name, line, why))

    def _line(self, node: Any) -> int:
        return line_of(node, self.path) or self.traced.builder.line


def line_of(node: Any, path: Path) -> int:
    """The innermost line of the person's file on the way to this operator; 0 where there is none."""
    frames = re.findall(r'File "(.+?)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [int(n) for f, n in frames if Path(f) == path]
    return own[-1] if own else 0


def assigned(source: Sequence[str]) -> dict[int, str]:
    """Line -> the variable that an assignment over this line gives a value to."""
    found: dict[int, str] = {}
    for node in ast.walk(ast.parse("\n".join(source))):
        if isinstance(node, ast.Assign):
            target = node.targets[0] if len(node.targets) == 1 else None
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            target = node.target
        else:
            continue
        if isinstance(target, ast.Name):
            found |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), target.id)
    return found


def dtype_of(tensor: Any) -> str:
    """The language's name of a tensor's dtype; "?" where it has none."""
    return DTYPES.get(str(getattr(tensor, "dtype", "")).removeprefix("torch."), "?")


_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "truediv": "/"}


def scalar(name: str, arguments: Sequence[Any]) -> Expr | int | float:
    """Arithmetic on lengths, done while tracing: `x.shape[-1] // 2`, `d ** -0.5`."""
    name = name.removeprefix("_").removeprefix("sym_")
    args = [literal(a) for a in arguments]
    if name in _OPERATORS:
        return Binary(_OPERATORS[name], args[0], args[1])
    if name == "neg":
        return Unary("-", args[0])
    if name in ("float", "int", "trunc", "item"):
        return args[0]
    if name == "sqrt":
        return call("sqrt", args[0])
    if name in ("pow", "pow_by_natural") and isinstance(arguments[1], (int, float)):
        power = arguments[1]
        if power in (0.5, -0.5):
            return call("sqrt" if power > 0 else "rsqrt", args[0])
        if power == int(power) and 1 <= power <= 4:
            return _power(args[0], int(power))
    if name in ("max", "min"):
        return call(name, *args)
    raise Cannot(f"`{name}` of lengths")


def _power(e: Expr, n: int) -> Expr:
    result = e
    for _ in range(n - 1):
        result = Binary("*", result, e)
    return result
