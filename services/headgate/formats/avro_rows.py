"""A table's rows as Avro: their schema, made of what the events' schema describes, and a writer for it.

The schema of keys has the key's columns, that of values all of them. Columns outside of the key may be NULL, which is
their default, so a column that is added, or dropped, is a compatible change for every registry.

The writer is Python code that is made for the schema, as the reader of events is (avro_code.py): it takes half of
fastavro's time, which walks the schema for each record (docs/adr/0150-topics-in-avro.md). The code holds no text of a
schema: names are constants beside it. fastavro is what the tests compare with.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, cast

import msgspec

from headgate.formats.avro_forms import AvroForm, Schema, encoded_number, form_of, form_of_computed
from headgate.formats.avro_schema import TEXT_CHARACTERS_MAX
from headgate.formats.change import COMPUTED, DATA_ERRORS, ChangeError, Row, columns_described, reason_of
from headgate.formats.meaning import check_columns

__all__ = ["RowSchema", "check_names", "forms_of", "row_schema"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NOT_OF_NAMES: Final = re.compile(r"[^A-Za-z0-9_]", re.ASCII)

NAMESPACE_DEFAULT: Final = "headgate"
"""Of a topic whose name has nothing but points."""

_SMALL: Final = tuple(bytes((number,)) for number in range(128))
"""The numbers that one byte can hold, as bytes."""

Write = Callable[[bytes, Row], bytes]
"""What the record begins with, and the row → the record. Raises ChangeError."""


class RowSchema(msgspec.Struct, frozen=True):
    """A schema as JSON, and how rows of it are written."""

    text: str
    write: Write


def forms_of(semantics: Mapping[str, str] | None, columns: Sequence[str] | None = None) -> dict[str, AvroForm]:
    """Column → how it is written. ``columns``: only of those, all of which must be there.

    Raises ChangeError where the event has no schema, or a type that is not known.
    """
    told = semantics or {}
    meanings = columns_described(told)
    if not meanings:
        raise ChangeError(
            "the event has no schema, so the types of its columns are not known. Let the connector write schemas "
            "(key.converter.schemas.enable=true and value.converter.schemas.enable=true, or an Avro converter), or "
            "create a feed with sink.format: flat"
        )
    computed = msgspec.json.decode(told.get(COMPUTED, "{}"), type=dict[str, str])
    wanted = (*meanings, *computed) if columns is None else tuple(columns)
    check_columns(dict.fromkeys(wanted))
    check_names(wanted, (*meanings, *computed))
    return {column: _form(column, meanings.get(column), computed.get(column)) for column in wanted}


def _form(column: str, meaning: str | None, computed: str | None) -> AvroForm:
    try:
        if meaning is not None:
            return form_of(meaning)
        if computed is not None:
            return form_of_computed(computed)
    except ChangeError as error:
        raise ChangeError(f"column {column}: {error}") from error
    raise ChangeError(f"the event's schema does not describe column {column}, which is in the event's key")


def check_names(columns: Iterable[str], taken: Collection[str] = ()) -> None:
    """Raise ChangeError for a column whose name Avro does not allow. ``taken``: names that cannot replace it."""
    wrong = next((column for column in columns if _NAME.fullmatch(column) is None), None)
    if wrong is not None:
        free = _allowed(wrong)
        while free in taken:
            free += "_"
        raise ChangeError(
            f"column {wrong!r} has a name that Avro does not allow: letters of ASCII, digits and underscores, the "
            f'first one no digit. Give it another one with columns.rename: {{"{wrong}": {free}}}'
        )


def _allowed(part: str) -> str:
    """The name with an underscore for each character that Avro does not allow."""
    name = _NOT_OF_NAMES.sub("_", part)
    return f"_{name}" if name[:1].isdigit() or not name else name


def row_schema(topic: str, record: str, forms: Mapping[str, AvroForm], required: frozenset[str]) -> RowSchema:
    """The schema of rows with these columns, and their writer. ``required``: columns that are never NULL.

    ``record``: the last part of the schema's name, whose others are the topic's. Raises ChangeError.
    """
    namespace = ".".join(_allowed(part) for part in topic.split(".") if part) or NAMESPACE_DEFAULT
    met: set[str] = set()
    fields = [_field(column, _once(form.schema, met), column in required) for column, form in forms.items()]
    schema = {"type": "record", "name": record, "namespace": namespace, "fields": fields}
    text = msgspec.json.encode(schema).decode()
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ChangeError(
            f"the schema has {len(text)} characters; a schema of a table has {TEXT_CHARACTERS_MAX} at most"
        )
    return RowSchema(text, _Writer(forms, required))


def _field(column: str, schema: Schema, is_required: bool) -> dict[str, Schema | None]:
    field: dict[str, Schema | None] = {"name": column, "type": schema if is_required else ["null", schema]}
    return field if is_required else field | {"default": None}


def _once(schema: Schema, met: set[str]) -> Schema:
    """The schema with each record written out where it is first used, and named where it is used again."""
    if isinstance(schema, list):
        return [_once(each, met) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema["type"] == "record":
        name = f"{schema['namespace']}.{schema['name']}"
        if name in met:
            return name
        met.add(name)
    return {part: _once(each, met) if part == "items" else each for part, each in schema.items()}


class _Writer:
    """Writes rows; finds out what is wrong with one that cannot be written."""

    def __init__(self, forms: Mapping[str, AvroForm], required: frozenset[str]) -> None:
        self._forms = forms
        self._required = required
        self._write = _compiled(forms, required)

    def __call__(self, head: bytes, row: Row) -> bytes:
        try:
            return self._write(head, row)
        except DATA_ERRORS as error:
            raise self._reason(row) or ChangeError(f"the row cannot be written: {reason_of(error)}") from error

    def _reason(self, row: Row) -> ChangeError | None:
        more = [column for column in row if column not in self._forms]
        if more:
            return ChangeError(f"the event has column {more[0]}, which its schema does not describe")
        for column, form in self._forms.items():
            if column not in row:
                return ChangeError(f"the event does not have column {column}, which its schema describes")
            value = row[column]
            if value is None:
                if column in self._required:
                    return ChangeError(f"column {column} is NULL, and it is a column of the key")
                continue
            try:
                form.encode(value)
            except DATA_ERRORS as error:
                return ChangeError(f"column {column}: {reason_of(error)}")
        return None


def _compiled(forms: Mapping[str, AvroForm], required: frozenset[str]) -> Write:
    code = _Code()
    code.line("def write(head, row):")
    code.line(f"    if len(row) != {len(forms)}: raise ValueError")
    code.line("    parts = [head]; add = parts.append")
    for column, form in forms.items():
        code.column(column, form, is_required=column in required)
    code.line("    return b''.join(parts)")
    return code.compiled()


class _Code:
    """Lines of one function, and the constants that they name."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._scope: dict[str, object] = {"small": _SMALL, "number": encoded_number}

    def line(self, text: str) -> None:
        """One line."""
        self._lines.append(text)

    def compiled(self) -> Write:
        """The function."""
        exec(compile("\n".join(self._lines), "<avro writer>", "exec"), self._scope)  # noqa: S102 - no text of a schema is in it
        return cast("Write", self._scope["write"])

    def _constant(self, value: object) -> str:
        name = f"c{len(self._scope)}"
        self._scope[name] = value
        return name

    def column(self, column: str, form: AvroForm, *, is_required: bool) -> None:
        """Add the column's bytes: where it may be NULL, the number of a branch first."""
        self.line(f"    v = row[{self._constant(column)}]")
        if is_required:
            self._value(form, "    ")
            return
        self.line("    if v is None: add(small[0])")
        self.line("    else:")
        self.line("        add(small[2])")
        self._value(form, "        ")

    def _value(self, form: AvroForm, indent: str) -> None:
        if form.bounds is not None:
            low, high = form.bounds
            self.line(f"{indent}if type(v) is not int or not {low} <= v <= {high}: raise ValueError")
            self.line(f"{indent}add(small[v + v] if 0 <= v < 64 else number(v))")
        elif form.is_text:
            self.line(f"{indent}v = v.encode(); n = len(v)")
            self.line(f"{indent}add(small[n + n] if n < 64 else number(n)); add(v)")
        else:
            self.line(f"{indent}add({self._constant(form.encode)}(v))")
