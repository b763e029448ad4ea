"""Expressions compiled to Python functions, as readers of Avro schemas are: one call per row, nothing interpreted.

Names and values are constants beside the code, so no text of a feed is in it. NULL is None, and a condition that is
neither true nor false is None, too. Operands are computed from the left, and AND, OR, CASE and COALESCE stop at the
first that decides.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from headgate.config.expressions import Call, ColumnReference, Expression, Kind, Literal
from headgate.formats.change import Row
from headgate.formats.expressions.functions import FUNCTIONS, extracting, rounding, truncating
from headgate.formats.expressions.operators import (
    EXACT,
    cast,
    divide_decimals,
    divide_integers,
    exact,
    like,
    literal,
    lowered,
    raised,
    ranged,
)
from headgate.formats.expressions.reading import Readable
from headgate.formats.expressions.typing import kind_of

__all__ = ["compile_expression"]

_FAST: Final[Mapping[Kind, str]] = {Kind.TEXT: "str", Kind.INTEGER: "int", Kind.BOOLEAN: "bool"}
"""Kinds whose values are themselves, if they are of that Python type."""

_EXACT: Final[Mapping[str, Callable[..., object]]] = {
    "+": exact(EXACT.add), "-": exact(EXACT.subtract), "*": exact(EXACT.multiply), "/": divide_decimals,
}  # fmt: skip
_COMPARED: Final[Mapping[str, str]] = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def compile_expression(
    expression: Expression, columns: Mapping[str, Readable], *, lacking_is_null: bool = False
) -> Callable[[Row], Any]:
    """A function of a row. ``lacking_is_null``: of a column that the row does not have; otherwise KeyError.

    The function raises ChangeError. ``columns``: of every column that the expression names. Raises ExpressionError.
    """
    code = _Code(columns, lacking_is_null=lacking_is_null)
    kind_of(expression, code.kinds)
    return code.compiled(expression)


class _Code:
    """An expression's text, and the constants that it names."""

    def __init__(self, columns: Mapping[str, Readable], *, lacking_is_null: bool) -> None:
        self._columns = columns
        self.kinds = {name: readable.kind for name, readable in columns.items()}
        self._scope: dict[str, Any] = {"__builtins__": {}, "type": type, "str": str, "int": int, "bool": bool}
        self._names = 0
        self._row = "row.get({})" if lacking_is_null else "row[{}]"

    def compiled(self, expression: Expression) -> Callable[[Row], Any]:
        text = f"def compute(row): return {self._text(expression)}"
        exec(compile(text, "<expression>", "exec"), self._scope)  # noqa: S102 - no text of a feed is in it
        compute: Callable[[Row], Any] = self._scope["compute"]
        return compute

    def _name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _constant(self, value: object) -> str:
        name = f"c{len(self._scope)}"
        self._scope[name] = value
        return name

    def _kind(self, expression: Expression) -> Kind:
        return kind_of(expression, self.kinds)

    def _text(self, expression: Expression) -> str:
        if isinstance(expression, Literal):
            return self._literal(expression)
        if isinstance(expression, ColumnReference):
            return self._column(expression.name)
        return _WRITTEN[expression.of](self, expression)

    def _literal(self, given: Literal) -> str:
        value = literal(given.kind, given.text)
        return "None" if value is None else self._constant(value)

    def _column(self, name: str) -> str:
        kind, read, checks_all = self._columns[name]
        value = self._row.format(self._constant(name))
        if kind in _FAST and not checks_all:
            held = self._name()
            return f"({held} if type({held} := {value}) is {_FAST[kind]} else {self._constant(read)}({held}))"
        return f"{self._constant(read)}({value})"

    def strict(self, call: Call, result: str) -> str:
        """NULL if an operand is NULL, otherwise ``result``, in which {0} and {1} stand for the operands."""
        names = [self._name() for _ in call.operands]
        nulls = " or ".join(
            f"({name} := {self._text(operand)}) is None"
            for name, operand in zip(names, call.operands, strict=True)
        )  # fmt: skip
        return f"(None if {nulls} else {result.format(*names)})"

    def comparison(self, call: Call) -> str:
        return self.strict(call, f"{{0}} {_COMPARED[call.of]} {{1}}")

    def junction(self, call: Call) -> str:
        """AND: false as soon as one is, unknown if one is unknown, otherwise true. OR: the other way round."""
        decisive, otherwise = ("False", "True") if call.of == "and" else ("True", "False")
        names = [self._name() for _ in call.operands]
        decided = " or ".join(
            f"({name} := {self._text(operand)}) is {decisive}"
            for name, operand in zip(names, call.operands, strict=True)
        )  # fmt: skip
        unknown = " or ".join(f"{name} is None" for name in names)
        return f"({decisive} if {decided} else None if {unknown} else {otherwise})"

    def within(self, call: Call) -> str:
        wanted, *items = call.operands
        held = self._name()
        looked_for = f"({held} := {self._text(wanted)})"
        if all(isinstance(item, Literal) and item.kind is not Kind.NULL for item in items):
            listed = frozenset(self._scope[self._text(item)] for item in items)
            return f"(None if {looked_for} is None else {held} in {self._constant(listed)})"
        # As a chain of comparisons, in which what is looked for is computed once.
        names = [self._name() for _ in items]
        same = " or ".join(
            f"(({name} := {self._text(item)}) is not None and {held} == {name})"
            for name, item in zip(names, items, strict=True)
        )  # fmt: skip
        unknown = " or ".join(f"{name} is None" for name in names)
        return f"(None if {looked_for} is None else True if {same} else None if {unknown} else False)"

    def arithmetic(self, call: Call) -> str:
        is_integer = Kind.NUMERIC not in map(self._kind, call.operands)
        if call.of == "neg":
            return self.strict(call, f"{self._constant(ranged)}(-{{0}})" if is_integer else "{0}.copy_negate()")
        if not is_integer:
            return self.strict(call, f"{self._constant(_EXACT[call.of])}({{0}}, {{1}})")
        if call.of == "/":
            return self.strict(call, f"{self._constant(divide_integers)}({{0}}, {{1}})")
        return self.strict(call, f"{self._constant(ranged)}({{0}} {call.of} {{1}})")

    def coalesce(self, call: Call) -> str:
        *front, last = call.operands
        texts = []
        for operand in front:
            held = self._name()
            texts.append(f"{held} if ({held} := {self._text(operand)}) is not None else ")
        return self._of_kind(call, f"({''.join(texts)}{self._text(last)})")

    def case(self, call: Call) -> str:
        *pairs, last = call.operands
        texts = [
            f"{self._text(value)} if {self._text(condition)} is True else "
            for condition, value in zip(pairs[::2], pairs[1::2], strict=True)
        ]
        return self._of_kind(call, f"({''.join(texts)}{self._text(last)})")

    def _of_kind(self, call: Call, text: str) -> str:
        """Integers beside decimals become decimals."""
        if self._kind(call) is not Kind.NUMERIC:
            return text
        held = self._name()
        decimal = self._constant(cast(Kind.INTEGER, Kind.NUMERIC, None, 0))
        return f"(None if ({held} := {text}) is None else {decimal}({held}))"

    def casting(self, call: Call) -> str:
        assert call.to is not None  # noqa: S101 - the parser gives every cast a type
        made = cast(self._kind(call.operands[0]), call.to, call.precision, call.scale)
        return self.strict(call, f"{self._constant(made)}({{0}})")

    def like(self, call: Call) -> str:
        value, pattern = call.operands
        assert isinstance(pattern, Literal)  # noqa: S101 - the parser takes no other pattern
        matches = self._constant(like(pattern.text))
        return self.strict(Call("like", (value,)), f"{matches}({{0}})")

    def function(self, call: Call) -> str:
        given = ", ".join(f"{{{number}}}" for number in range(len(call.operands)))
        return self.strict(call, f"{self._constant(_FUNCTIONS[call.of])}({given})")

    def of_literal(self, call: Call) -> str:
        """A function whose unit, or whose number of digits, is written in the expression."""
        first, last = call.operands
        if call.of == "round":
            made: Callable[..., object] = rounding(int(last.text)) if isinstance(last, Literal) else rounding(0)
            return self.strict(Call("round", (first,)), f"{self._constant(made)}({{0}})")
        assert isinstance(first, Literal)  # noqa: S101 - the parser gives it a unit
        made = truncating(first.text) if call.of == "date_trunc" else extracting(first.text, self._kind(last))
        return self.strict(Call(call.of, (last,)), f"{self._constant(made)}({{0}})")

    def absolute(self, call: Call) -> str:
        if self._kind(call) is Kind.NUMERIC:
            return self.strict(call, "{0}.copy_abs()")
        return self.strict(call, f"{self._constant(ranged)}(-{{0}} if {{0}} < 0 else {{0}})")

    def nullif(self, call: Call) -> str:
        held, other = self._name(), self._name()
        first, second = map(self._text, call.operands)
        return self._of_kind(
            call,
            f"(None if ({held} := {first}) is None else None if ({other} := {second}) is not None and {held} == {other}"
            f" else {held})",
        )

    def concatenation(self, call: Call) -> str:
        return f"({' + '.join(self._text(operand) for operand in call.operands)})"


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {**FUNCTIONS, "lower": lowered, "upper": raised}

_WRITTEN: Final[Mapping[str, Callable[[_Code, Call], str]]] = {
    **dict.fromkeys(_COMPARED, _Code.comparison),
    "and": _Code.junction,
    "or": _Code.junction,
    "not": lambda code, call: code.strict(call, "not {0}"),
    "is null": lambda code, call: f"({code._text(call.operands[0])} is None)",
    "in": _Code.within,
    "like": _Code.like,
    "||": lambda code, call: code.strict(call, "{0} + {1}"),
    **dict.fromkeys(("+", "-", "*", "/", "neg"), _Code.arithmetic),
    "coalesce": _Code.coalesce,
    "case": _Code.case,
    "cast": _Code.casting,
    **dict.fromkeys(_FUNCTIONS, _Code.function),
    **dict.fromkeys(("round", "date_trunc", "extract"), _Code.of_literal),
    "abs": _Code.absolute,
    "nullif": _Code.nullif,
    "concat": _Code.concatenation,
}
