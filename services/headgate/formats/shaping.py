"""Changes as a feed's options let them through: rows filtered, columns chosen, renamed, masked and computed.

The options of a table are written as Python code and compiled: what is known before the first row is not asked per row.
The code has no text of a feed in it, names and values are constants beside it. A table without such options never comes
here.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from headgate.config.columns import ColumnOptions, Mask
from headgate.config.expressions import Kind
from headgate.config.secrets import NotPermittedError, read_secret, secret
from headgate.formats.change import (
    ABSENT,
    BESIDE,
    COMPUTED,
    DATA_ERRORS,
    Change,
    ChangeError,
    Operation,
    Row,
    is_described,
    reason_of,
)
from headgate.formats.decoding import UndecodableError
from headgate.formats.expressions.computed import ComputedColumns
from headgate.formats.expressions.declared import DeclaredTypes
from headgate.formats.expressions.filters import RowFilter
from headgate.formats.included import AtSink, IncludedColumns

__all__ = ["SaltUnavailableError", "Shaping", "read_salts"]

NAMES_CACHED: Final = 1_000
"""Sets of columns of a table that were seen to be spelled right. Events of one schema have a few."""

MEANINGS_MAX: Final = 256
"""Schemas remembered, of one table. Few tables are ever altered as often."""

_TEXTS: Final = frozenset(
    {"string", "io.debezium.data.Uuid", "io.debezium.data.Enum", "io.debezium.data.EnumSet", "io.debezium.data.Xml"}
)
"""What the events' schemas call types whose values are the same texts in every format."""

_INTEGERS: Final = frozenset({"int8", "int16", "int32", "int64"})
_OF_CONSTANTS: Final[dict[type, str]] = {str: "string", bool: "boolean", int: "int64"}
"""What a constant means, as an event's schema would describe it."""

_MASKED: Final = "*"
_LACKING: Final = object()


class SaltUnavailableError(Exception):
    """A mask's salt cannot be read. The events are not at fault, and wait."""

    code = "mask_salt"
    retryable = True


def read_salts(columns: ColumnOptions) -> dict[Path, bytes]:
    """The salts that the masks name, by file. Raises SaltUnavailableError."""
    salts: dict[Path, bytes] = {}
    for file in columns.salt_files:
        try:
            text = read_secret(secret(file, "mask.sha256"))
        except NotPermittedError as error:
            raise SaltUnavailableError(str(error)) from error
        except OSError as error:
            raise SaltUnavailableError(f"mask.sha256: cannot read {file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SaltUnavailableError(f"mask.sha256: {file} is not UTF-8. Write the salt as a text") from error
        if not text:
            raise SaltUnavailableError(
                f"mask.sha256: {file} is empty. Without a salt, hashes of names and numbers can be looked up. Write a "
                "long random text into it"
            )
        salts[file] = text.encode()
    return salts


class Shaping:
    """Shapes the changes of one table. Not for more than one thread."""

    def __init__(
        self,
        columns: ColumnOptions,
        salts: Mapping[Path, bytes],
        where: str | None = None,
        declared: DeclaredTypes | None = None,
        at_sink: AtSink | None = None,
    ) -> None:
        """``salts``: of ``read_salts``. ``where``: the table's row filter, asked of the source's columns.

        ``declared``: the types of the source's catalogue, where they are known; see Evaluation. ``at_sink``: see
        IncludedColumns.
        """
        self._columns = columns
        self._masks = {column: _masking(column, mask, salts) for column, mask in columns.mask.items()}
        self._meanings: dict[_Meant, tuple[dict[str, str] | None, dict[str, str] | None]] = {}
        self._computed = ComputedColumns(columns.set, declared)
        self._shape = _compiled(columns, self._masks, IncludedColumns(columns, declared, at_sink))
        self._filter = None if where is None else RowFilter(where, declared)

    def decoded(self, decode: Callable[..., list[Change]], *events: Any) -> list[Change]:
        """What ``decode`` makes of the events, shaped. Raises UndecodableError, as it does, and what it raises else."""
        try:
            changes = decode(*events)
        except UndecodableError as error:
            error.decoded = self.shaped(error.decoded)
            raise
        return self.shaped(changes)

    def shaped(self, changes: list[Change]) -> list[Change]:
        """The changes, whose rows are used up. Raises UndecodableError at the first that cannot be shaped."""
        if self._filter is None:
            return self._with_columns(changes)
        try:
            kept = self._filter.filtered(changes)
        except UndecodableError as error:
            error.decoded = self._with_columns(error.decoded)
            raise
        return self._with_columns(kept)

    def _with_columns(self, changes: list[Change]) -> list[Change]:
        if not self._columns.shapes:
            return changes
        done: list[Change] = []
        try:
            self._shape(changes, done.append, self.plain_meaning, self._computing)
        except DATA_ERRORS as error:
            bad = changes[len(done)]
            before = [each for each in done if (each.partition, each.offset) != (bad.partition, bad.offset)]
            raise UndecodableError(bad.partition, bad.offset, reason_of(error), before) from error
        return done

    def row(self, row: Row, semantics: dict[str, str] | None, computed: Row | None = None) -> Row:
        """One row, which the filter keeps and which is used up. Raises ChangeError.

        ``computed``: the computed columns, as far as they are known. The row does not have what they are computed from.
        """
        if not self._columns.shapes:
            return row
        done: list[Change] = []
        changes = [Change(0, 0, Operation.UPSERT, {}, row, None, 0, semantics)]
        values = [(computed or {}).get(name, ABSENT) for name in self._columns.set]
        self._shape(changes, done.append, self.plain_meaning, lambda _: (lambda _: values, None))
        shaped = done[0].row or {}
        return {name: value for name, value in shaped.items() if value is not ABSENT} if ABSENT in values else shaped

    def meaning(self, semantics: dict[str, str] | None) -> dict[str, str] | None:
        """Change.semantics of shaped rows: one dictionary for all that share one. Raises ChangeError."""
        return self._computing(semantics)[1] if self._columns.shapes else semantics

    def _computing(self, semantics: dict[str, str] | None) -> "_Computed":
        """What computes the columns of rows with this meaning, and what the shaped rows mean. Raises ChangeError."""
        if not self._columns.set:
            return _nothing, self._meaning(semantics, ())
        function, kinds = self._computed.typed(semantics)
        return function, self._meaning(semantics, kinds)

    def plain_meaning(self, semantics: dict[str, str] | None) -> dict[str, str] | None:
        """What a change without a row means: nothing is computed of it, and its event may describe the key only."""
        return self._meaning(semantics, ())

    def _meaning(self, semantics: dict[str, str] | None, kinds: "_Kinds") -> dict[str, str] | None:
        known = self._meanings.get((id(semantics), kinds))
        if known is None:
            if len(self._meanings) >= MEANINGS_MAX:
                self._meanings.clear()
            # What is remembered by its identity must live as long.
            known = self._meanings[id(semantics), kinds] = semantics, self._shaped_meaning(semantics or {}, kinds)
        return known[1]

    def _shaped_meaning(self, semantics: Mapping[str, str], kinds: "_Kinds") -> dict[str, str] | None:
        """A column that events describe otherwise, but not this one, is not in its row, and gets no mask either."""
        columns, described = self._columns, is_described(semantics)
        shaped: dict[str, str] = {}
        for name, meaning in semantics.items():
            if name in BESIDE:
                shaped[name] = meaning
            elif columns.goes(name) and name not in columns.mask:
                shaped[columns.target(name)] = meaning
        for name, mask in columns.mask.items():
            if described and name not in semantics:
                continue
            _check_meaning(name, mask, semantics.get(name))
            if mask.needs_text:
                shaped[columns.target(name)] = "string"
            elif not mask.null:
                shaped[columns.target(name)] = _OF_CONSTANTS[type(mask.constant)]
            elif name in semantics:
                shaped[columns.target(name)] = semantics[name]
        if kinds and described:
            shaped[COMPUTED] = msgspec.json.encode(dict(kinds)).decode()
        return shaped or None


def _nothing(_row: Row) -> Sequence[object]:
    return ()


def _check_meaning(column: str, mask: Mask, meaning: str | None) -> None:
    """Raise ChangeError for values whose texts differ from format to format. None: the event does not show it."""
    if not mask.needs_text or meaning is None or meaning in _TEXTS:
        return
    if mask.sha256 is not None and meaning in _INTEGERS:
        return
    raise _unfit(column, mask, f"values of type {meaning}")


def _unfit(column: str, mask: Mask, what: str) -> ChangeError:
    form, takes = ("sha256", "texts and integers") if mask.sha256 is not None else ("keep_last", "texts")
    return ChangeError(
        f"column {column} has {what}, and mask {form} takes {takes} only. Exclude the column, or mask it with null or "
        "a constant (columns.mask)"
    )


def _masking(column: str, mask: Mask, salts: Mapping[Path, bytes]) -> Callable[[object], object] | None:
    """What a value becomes, None for a mask that does not ask for the value."""
    if mask.sha256 is not None:
        return _hashing(column, mask, salts[mask.sha256])
    if mask.keep_last is not None:
        return _keeping(column, mask, mask.keep_last)
    return None


def _hashing(column: str, mask: Mask, salt: bytes) -> Callable[[object], object]:
    sha256 = hashlib.sha256

    def hashed(value: object) -> object:
        if type(value) is str:
            return sha256(salt + value.encode()).hexdigest()
        if value is None or value is ABSENT:
            return value
        if type(value) is int:
            return sha256(salt + str(value).encode()).hexdigest()
        raise _unfit(column, mask, f"a value of type {type(value).__name__}")

    return hashed


def _keeping(column: str, mask: Mask, kept: int) -> Callable[[object], object]:
    def starred(value: object) -> object:
        if type(value) is str:
            hidden = len(value) - kept
            return _MASKED * hidden + value[hidden:] if hidden > 0 else _MASKED * len(value)
        if value is None or value is ABSENT:
            return value
        raise _unfit(column, mask, f"a value of type {type(value).__name__}")

    return starred


def _refuse_key(columns: ColumnOptions) -> Callable[[Row], None]:
    def refuse(key: Row) -> None:
        raise ChangeError(f"{columns.hidden_key(key)}. Correct columns in the feed, or the key of its events")

    return refuse


def _refuse_clash(columns: ColumnOptions) -> Callable[[Row], None]:
    def refuse(row: Row) -> None:
        raise ChangeError(f"{columns.clash(row)}. Correct columns in the feed")

    return refuse


def _refuse_taken(columns: ColumnOptions) -> Callable[[str], None]:
    def refuse(name: str) -> None:
        raise ChangeError(f"{columns.taken(name)}. Correct columns in the feed")

    return refuse


def _refuse_spelling(columns: ColumnOptions) -> Callable[[Row], None]:
    """To MySQL and MariaDB ``Mail`` and ``mail`` are one column, so its values would reach the sink as they are."""
    hidden = {name.casefold(): name for name in (*(columns.exclude or ()), *columns.mask)}
    right: set[tuple[str, ...]] = set()

    def refuse(row: Row) -> None:
        columns_of_row = tuple(row)
        if columns_of_row in right:
            return
        for column in row:
            named = hidden.get(column.casefold(), column)
            if named != column and column not in hidden.values():
                option = "mask" if named in columns.mask else "exclude"
                raise ChangeError(
                    f"the event has column {column}, and columns.{option} names {named}, which the event does not "
                    "have. Spell it as the source does"
                )
        if len(right) < NAMES_CACHED:
            right.add(columns_of_row)

    return refuse


_Kinds = tuple[tuple[str, Kind], ...]
"""The computed columns whose types are known, with them."""

_Meant = tuple[int, _Kinds]
"""By what a meaning is found: the identity of the events' own, and the types of computed columns."""

_Computed = tuple[Callable[[Row], Sequence[object]], dict[str, str] | None]
"""A function of a row: the values of the computed columns, in their order; and what the shaped row means."""

_Computing = Callable[[Any], _Computed]
"""What values mean → how rows with this meaning are computed."""

_Shape = Callable[[Sequence[Change], Callable[[Change], None], Callable[[Any], Any], _Computing], None]


def _compiled(
    columns: ColumnOptions, masks: Mapping[str, Callable[[object], object] | None], included: IncludedColumns
) -> _Shape:
    """A function (changes, what takes each shaped change, what gives its meaning, what computes its columns).

    Raises DATA_ERRORS as it runs, and what IncludedColumns raises.
    """
    code = _Code(columns, masks)
    code.line("def shape(changes, add, meaning, computing):", 0)
    code.line("last = compute = meant = lacking", 1)
    code.line("for change in changes:", 1)
    code.line("semantics = change.semantics", 2)
    code.line("if semantics is not last: meant = meaning(semantics); compute = lacking; last = semantics", 2)
    code.line("row = change.row", 2)
    code.line("if row is not None:", 2)
    if columns.set:
        code.line("if compute is lacking: compute, meant = computing(semantics)", 3)
        code.line("values = compute(row)", 3)
    if columns.include is not None:
        code.included(included)
    else:
        code.in_place()
    code.computed()
    code.key()
    code.line(
        "add(Change(change.partition, change.offset, change.operation, key, row, change.source_ms, change.append_ms, "
        "meant))",
        2,
    )
    return code.compiled()


class _Code:
    """Lines of the function, and the constants that they name."""

    def __init__(self, columns: ColumnOptions, masks: Mapping[str, Callable[[object], object] | None]) -> None:
        self._columns = columns
        self._masks = masks
        self._lines: list[str] = []
        self._scope: dict[str, Any] = {
            "Change": Change,
            "lacking": _LACKING,
            "refuse_key": _refuse_key(columns),
            "refuse_clash": _refuse_clash(columns),
            "refuse_taken": _refuse_taken(columns),
            "refuse_spelling": _refuse_spelling(columns),
        }

    def line(self, text: str, depth: int) -> None:
        """One line."""
        self._lines.append("    " * depth + text)

    def compiled(self) -> _Shape:
        """The function."""
        exec(compile("\n".join(self._lines), "<shaping>", "exec"), self._scope)  # noqa: S102 - no text of a feed is in it
        shape: _Shape = self._scope["shape"]
        return shape

    def _constant(self, value: object) -> str:
        name = f"c{len(self._scope)}"
        self._scope[name] = value
        return name

    def _value(self, column: str, value: str) -> str:
        """An expression of what the value of a column becomes, which ``value`` is an expression of."""
        mask = self._columns.mask.get(column)
        if mask is None:
            return value
        masking = self._masks[column]
        if masking is None:
            return "None" if mask.null else self._constant(mask.constant)
        return f"{self._constant(masking)}({value})"

    def included(self, wanted: IncludedColumns) -> None:
        """The row is built again from the columns that are named; one that lacks some, column by column."""
        parts: list[tuple[str, str, str]] = []
        for column in wanted.names:
            here = self._constant(column)
            parts.append((here, self._constant(self._columns.target(column)), self._value(column, f"row[{here}]")))
        whole = ", ".join(f"{target}: {value}" for _, target, value in parts)
        self.line("try:", 3)
        for here, _, value in parts:
            if f"row[{here}]" not in value:  # whether the row has it decides here, too
                self.line(f"row[{here}]", 4)
        self.line(f"row = {{{whole}}}", 4)
        self.line("except KeyError:", 3)
        self.line(f"{self._constant(wanted.check)}(row, semantics, change.append_ms)", 4)
        self.line("some = {}", 4)
        for here, target, value in parts:
            self.line(f"if {here} in row: some[{target}] = {value}", 4)
        self.line("row = some", 4)

    def in_place(self) -> None:
        """Columns are taken out of the row, replaced in it, and renamed: first all are taken out, then put in."""
        columns = self._columns
        self.line("pass", 3)
        for name in columns.guarded:
            here = self._constant(name)
            self.line(f"if {here} in row: refuse_taken({here})", 3)
        if columns.exclude or columns.mask:
            hidden = self._constant(frozenset({*(columns.exclude or ()), *columns.mask}))
            self.line(f"if not {hidden} <= row.keys(): refuse_spelling(row)", 3)
        for column in columns.exclude or ():
            self.line(f"row.pop({self._constant(column)}, None)", 3)
        for column in columns.mask:
            here = self._constant(column)
            self.line(f"if {here} in row: row[{here}] = {self._value(column, f'row[{here}]')}", 3)
        renamed = [(f"v{number}", column) for number, column in enumerate(columns.rename)]
        targets = [self._constant(columns.rename[column]) for _, column in renamed]
        for (name, column), target in zip(renamed, targets, strict=True):
            here = self._constant(column)
            if columns.rename[column] not in columns.rename:
                self.line(f"if {target} in row and {here} in row: refuse_clash(row)", 3)
            self.line(f"{name} = row.pop({here}, lacking)", 3)
        for (name, _), target in zip(renamed, targets, strict=True):
            self.line(f"if {name} is not lacking: row[{target}] = {name}", 3)

    def computed(self) -> None:
        """Values were computed from the row as it came; they are put into the row that goes to the sink."""
        for number, name in enumerate(self._columns.set):
            self.line(f"row[{self._constant(name)}] = values[{number}]", 3)

    def key(self) -> None:
        """The key keeps all its columns, under their names at the sink."""
        columns = self._columns
        self.line("key = change.key", 2)
        replaced = (name for name in columns.set if not columns.goes(name))
        hidden = frozenset({*(columns.exclude or ()), *columns.mask, *replaced})
        if columns.include is not None:
            shown = self._constant(frozenset(columns.include) - hidden)
            self.line(f"if not {shown}.issuperset(key): refuse_key(key)", 2)
        elif hidden:
            self.line(f"if not {self._constant(hidden)}.isdisjoint(key): refuse_key(key)", 2)
        if columns.rename:
            renamed, names = self._constant(frozenset(columns.rename)), self._constant(columns.rename)
            self.line(
                f"if not {renamed}.isdisjoint(key): "
                f"key = {{{names}.get(column, column): value for column, value in key.items()}}",
                2,
            )
