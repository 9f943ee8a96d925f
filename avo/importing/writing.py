"""From traced values to the algorithm half of a program: which values are statements, and what everything is called."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from avo.importing.axes import extent, index, is_axis, is_extent, number_of
from avo.importing.tracing import NotImported, Traced, Trouble
from avo.importing.values import Cannot, Value, is_value, rebuilt
from dsl.elaborate import MODULE_NAMES
from dsl.expressions import FUNCTIONS
from dsl.habits import KEYWORDS
from dsl.syntax import Algorithm, AxisDecl, Binary, Call, Expr, Name, Number, Read, Statement, Tensor, Unary

_POOL = "efgijlpuowcrmnkdhsbvatxyz"
_BY_REDUCTION = {"sum": "s", "mean": "mu", "max": "z", "min": "z", "softmax": "p", "runsum": "run", "argmax": "i"}
_RESERVED = {*KEYWORDS, *FUNCTIONS, *MODULE_NAMES, "for", "and", "or", "not", "inf", "true", "false", "kernels", "f64"}


@dataclass(frozen=True)
class Written:
    """inputs: the program's name of each argument. sizes: axis -> extent in the example, of those that inputs fix."""

    algorithm: Algorithm
    inputs: dict[str, str]
    sizes: dict[str, int]
    notes: tuple[tuple[int, str], ...]
    guessed: tuple[str, ...]
    names: dict[int, str]  # of each value that has one


def write(traced: Traced, name: str, path: str, keep_numbers: bool = False) -> Written:
    """keep_numbers: do not take a number that equals sqrt(D) or its inverse for one that was computed from D.

    Raises NotImported where an output has no form in the language.
    """
    return _Writer(traced, name, path, keep_numbers).run()


@dataclass
class _Writer:
    traced: Traced
    name: str
    path: str
    keep_numbers: bool
    names: dict[int, str] = field(default_factory=dict)  # value -> its name, if it has one
    axis_names: dict[int, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    outputs: dict[int, str] = field(default_factory=dict)
    guessed: list[str] = field(default_factory=list)
    derived: dict[int, Expr] = field(default_factory=dict)  # axis of an input -> what the function needs it to be

    def run(self) -> Written:
        b, traced = self.traced.builder, self.traced
        results = [self._result(v) for v in traced.outputs]
        chosen = self._statements(results)
        inputs = {n: self._free_name(n) for n in traced.inputs}
        for n, v in traced.inputs.items():
            self.names[v.id] = inputs[n]
        for i, v in enumerate(results):
            plain = "y" if len(results) == 1 else f"y{i}"
            self.names[v.id] = self.outputs[v.id] = self._free_name(v.named or plain)
        for v in chosen:
            if v.id not in self.names:
                self.names[v.id] = self._free_name(v.named or _kind(v.expr))
        self._derive()
        used = self._used_axes(chosen)
        self._name_axes(used)
        statements = tuple(self._statement(v) for v in chosen)
        algorithm = Algorithm(
            name=self._free_name(self.name),
            rank=None,
            inputs=tuple(
                Tensor(inputs[n], tuple(self._axis(d) for d in v.dims if d is not None), v.dtype)
                for n, v in traced.inputs.items()
            ),
            outputs=tuple(Tensor(self.outputs[v.id], self._shape(v), v.dtype) for v in results),
            axes=tuple(self._declarations(used)),
            params=(),
            statements=statements,
        )
        fixed = {b.axes.find(d) for v in traced.inputs.values() for d in v.dims if d is not None}
        fixed -= self.derived.keys()
        sizes = {self.axis_names[a]: b.axes.size(a) for a in self.axis_names if a in fixed}
        return Written(algorithm, inputs, sizes, tuple(b.notes), tuple(self.guessed), self.names)

    # Values -----------------------------------------------------------------------------------------------------------

    def _result(self, v: Value) -> Value:
        """The value that an output stores: with all its axes, and without a cast that its declaration makes anyway."""
        b = self.traced.builder
        if any(d is None for d in v.dims):
            raise self._refuse(v, "an output has a dimension of length 1", "squeeze it, or give larger example sizes")
        expr: Expr = v.ref if v.is_input else v.expr
        whole = {b.axes.find(d) for d in v.dims if d is not None}
        fresh = v.is_input or v.id in self.outputs
        if set(b.shape(v)) != whole:  # the axis of grouped heads stands in for that of the heads
            expr, fresh = b.moved(v.ref, {a: index(a) for a in whole}), True
            if set(b.depends(expr)) != whole:
                raise self._refuse(v, "an output repeats its values along an axis", "return the smaller tensor")
        while isinstance(expr, Name) and is_value(expr.id):
            source = b.at(expr.id)
            if source.is_input or source.declare or source.forced or (source.named and not b.light(source.expr)):
                break
            expr = source.expr
        if isinstance(expr, Call) and expr.axes is None and expr.function == v.dtype:
            expr = expr.args[0]
        if v.dtype in ("f64", "?"):
            raise self._refuse(v, "an output has a dtype that the language lacks", "float32 is the widest")
        if fresh:
            result = Value(len(b.values), expr, v.dims, v.dtype, v.line, v.named)
            b.values.append(result)
        else:
            result = v  # what else reads it then reads the output, rounded as in PyTorch
            result.expr = expr
        result.forced = True
        self.outputs[result.id] = ""
        return result

    def _refuse(self, v: Value, what: str, instead: str) -> NotImported:
        with open(self.path, encoding="utf-8") as file:
            return NotImported(self.path, [Trouble("output", v.line, f"{what}; {instead}")], file.read().splitlines())

    def _statements(self, results: list[Value]) -> list[Value]:
        """Those that the outputs need and that stand on a line of their own, in order."""
        b = self.traced.builder
        uses: dict[int, int] = {}
        queue = list(results)
        reached: dict[int, Value] = {v.id: v for v in results}
        while queue:
            for name in references(queue.pop().expr):
                other = b.at(name)
                uses[other.id] = uses.get(other.id, 0) + 1
                if other.id not in reached:
                    reached[other.id] = other
                    queue.append(other)
        lines = []
        for v in sorted(reached.values(), key=lambda v: -v.id):
            if self._alias(v):  # what it stands for is the statement
                b.at(v.expr.id).forced |= v.forced and not b.at(v.expr.id).is_input  # type: ignore[union-attr]
        for v in sorted(reached.values(), key=lambda v: v.id):
            if self._alias(v):
                continue
            plain = isinstance(v.expr, (Name, Number)) or (isinstance(v.expr, Read) and not v.forced)
            shared = uses.get(v.id, 0) > 1 and not plain and not _small(v.expr)
            spoken = bool(v.named) and not plain and not b.light(v.expr)
            if not v.is_input and (v.forced or v.declare or shared or spoken):
                lines.append(v)
        return lines

    def _alias(self, v: Value) -> bool:
        """Another value by another name."""
        same = isinstance(v.expr, Name) and is_value(v.expr.id)
        return same and not v.is_input and not v.declare and v.id not in self.outputs

    def _free_name(self, wanted: str) -> str:
        """A legal name that nothing else has, like the wanted one."""
        base = re.sub(r"\W", "_", wanted) or "t"
        if base in _RESERVED or keyword.iskeyword(base) or base[0].isdigit():
            base += "_"
        name, n = base, 2
        while name in self.taken:
            name, n = f"{base}{n}", n + 1
        self.taken.add(name)
        return name

    def _derive(self) -> None:
        axes = self.traced.builder.axes
        for axis, needed in axes.fixed.items():
            root, others = axes.find(axis), axes.mentioned(needed)
            plain = needed == extent(root) or root in others or others & self.derived.keys()
            if not plain and all(axes.free(o) is None for o in others) and root not in self.derived:
                self.derived[root] = needed

    # Axes -------------------------------------------------------------------------------------------------------------

    def _used_axes(self, chosen: list[Value]) -> list[int]:
        """Every axis that the text will mention, those of the inputs first."""
        b = self.traced.builder
        found: dict[int, None] = {}
        for v in self.traced.inputs.values():
            found |= dict.fromkeys(b.axes.find(d) for d in v.dims if d is not None)
        names = {v.id for v in chosen} | {v.id for v in self.traced.inputs.values()}
        for v in chosen:
            found |= dict.fromkeys(b.shape(v))
            found |= dict.fromkeys(self._mentioned(v.expr, names))
        queue = list(found)
        while queue:  # what their extents and blocks need
            axis = queue.pop()
            needs = set()
            free = self.derived.get(axis) or b.axes.free(axis)
            if free is not None:
                needs |= {b.axes.find(number_of(n)) for n in axis_names(free)}
            finer = b.axes.finer(axis)
            if finer is not None and finer in found:
                needs |= {finer}
            for n in needs - found.keys():
                found[n] = None
                queue.append(n)
        return list(found)

    def _mentioned(self, e: Expr, names: set[int]) -> Iterator[int]:
        b = self.traced.builder
        for n in axis_names(e):
            yield b.axes.find(number_of(n))
        for n in references(e):
            v = b.at(n)
            if v.id not in names:
                yield from self._mentioned(v.expr, names)
            else:
                yield from b.shape(v)

    def _name_axes(self, used: list[int]) -> None:
        uppers = {n for n in self.taken}
        for axis in used:
            wanted = [*self.traced.builder.axes.hints(axis), *_POOL, *(f"{a}{i}" for i in range(9) for a in _POOL)]
            name = next(w for w in wanted if w not in self.taken and w.upper() not in uppers and w not in _RESERVED)
            self.axis_names[axis] = name
            self.taken |= {name, name.upper()}

    def _axis(self, axis: int) -> str:
        return self.axis_names[self.traced.builder.axes.find(axis)]

    def _shape(self, v: Value) -> tuple[str, ...]:
        return tuple(self._axis(a) for a in self.traced.builder.shape(v))

    def _declarations(self, used: list[int]) -> Iterator[AxisDecl]:
        b = self.traced.builder
        for axis in used:
            finer = b.axes.finer(axis)
            free = b.axes.free(axis)
            if axis in self.derived:
                yield AxisDecl(self._axis(axis), None, self._named(self.derived[axis]))
            elif finer is not None and finer in used:
                ratio = b.axes.coarse[axis][1]
                yield AxisDecl(self._axis(axis), self._axis(finer), self._named(ratio))
            elif free is not None:
                yield AxisDecl(self._axis(axis), None, self._named(free))

    # Text -------------------------------------------------------------------------------------------------------------

    def _statement(self, v: Value) -> Statement:
        name = self.names[v.id]
        out = v.id in self.outputs
        target = Tensor(name, None if out else self._shape(v), v.dtype if v.declare and not out else None)
        return Statement((target,), self._named(v.expr))

    def _named(self, e: Expr) -> Expr:
        b = self.traced.builder

        def name(n: Name) -> Expr:
            if is_value(n.id):
                v = b.at(n.id)
                return Name(self.names[v.id]) if v.id in self.names else self._named(v.expr)
            if is_axis(n.id):
                return Name(self._axis(number_of(n.id)))
            if is_extent(n.id):
                return Name(self._axis(number_of(n.id)).upper())
            return n

        def read(r: Read) -> Expr:
            v = b.at(r.tensor)
            while v.id not in self.names and isinstance(v.expr, Name):
                v = b.at(v.expr.id)
            own = tuple(Name(a) for a in self._shape(v))
            return Name(self.names[v.id]) if r.indices == own else Read(self.names[v.id], r.indices)

        return rebuilt(self._computed(e), name, read, lambda a: self._axis(number_of(a)))

    def _computed(self, e: Expr) -> Expr:
        """A number that came from a length that the trace fixed is written as that again."""
        match e:
            case Number(value) if isinstance(value, float) and not self.keep_numbers:
                for axis in self.traced.specialised:
                    root = self.traced.builder.axes.find(axis)
                    size = self.traced.builder.axes.size(root)
                    if root in self.axis_names and value in (size**0.5, size**-0.5, 1 / size**0.5):
                        made = Call("sqrt" if value == size**0.5 else "rsqrt", None, (Name(f"~{root}!"),))
                        self.guessed.append(f"{value!r} is taken for {made.function}({self._axis(root).upper()})")
                        return made
            case Unary(op, x):
                return Unary(op, self._computed(x))
            case Binary("/", x, Call("sqrt", None, _) | Number() as y):
                y = self._computed(y)
                if isinstance(y, Call) and y.function == "sqrt":  # x / sqrt(D)
                    return Binary("*", self._computed(x), Call("rsqrt", None, y.args))
                return Binary("/", self._computed(x), y)
            case Binary(op, x, y):
                return Binary(op, self._computed(x), self._computed(y))
            case Call(f, axes, args, keywords):
                return Call(f, axes, tuple(self._computed(a) for a in args), keywords)
        return e


def references(e: Expr) -> Iterator[str]:
    """Every value that an expression names, once for each time."""
    match e:
        case Name(id) if is_value(id):
            yield id
        case Unary(_, x):
            yield from references(x)
        case Binary(_, x, y):
            yield from references(x)
            yield from references(y)
        case Read(t, indices):
            yield t
            for i in indices:
                yield from references(i)
        case Call(_, _, args, _):
            for a in args:
                yield from references(a)


def axis_names(e: Expr) -> Iterator[str]:
    """Every `~3` and `~3!` of an expression, reduced axes among them."""
    match e:
        case Name(id) if is_axis(id) or is_extent(id):
            yield id
        case Unary(_, x):
            yield from axis_names(x)
        case Binary(_, x, y):
            yield from axis_names(x)
            yield from axis_names(y)
        case Read(_, indices):
            for i in indices:
                yield from axis_names(i)
        case Call(_, axes, args, _):
            yield from (a.axis for a in axes or ())
            for a in args:
                yield from axis_names(a)


def _reduces(e: Expr) -> bool:
    match e:
        case Unary(_, x):
            return _reduces(x)
        case Binary(_, x, y):
            return _reduces(x) or _reduces(y)
        case Call(_, axes, args, _):
            return axes is not None or any(map(_reduces, args))
    return False


def _small(e: Expr) -> bool:
    """Short enough to be written twice: a mask, a sign, a cast of a name."""
    match e:
        case Unary(_, x):
            return _small(x)
        case Binary(op, x, y):
            return op in ("<", "<=", ">", ">=", "==", "!=") and not _reduces(x) and not _reduces(y)
        case Read(_, indices):
            return all(isinstance(i, Name) for i in indices)
        case Call():
            return False
    return True


def _kind(e: Expr) -> str:
    match e:
        case Call(f, axes, _, _) if axes is not None:
            return _BY_REDUCTION.get(f, "t")
        case Binary(_, x, _):
            return _kind(x)
    return "t"


__all__ = ["Cannot", "Written", "write"]
