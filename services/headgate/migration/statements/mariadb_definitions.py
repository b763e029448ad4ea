"""MariaDB's grammar of columns, keys and constraints, as they are written in CREATE TABLE and ALTER TABLE."""

from typing import Final

from headgate.migration.statements.clauses import CLAUSES, Support
from headgate.migration.statements.mariadb_tokens import Reader, TokenKind
from headgate.migration.statements.reserved_schemas import why_reserved
from headgate.migration.statements.statement import ColumnPosition, StatementClause, StatementError, refuse

QUERIES: Final = frozenset({"SELECT", "UNION", "TABLE"})
"""Not in an expression: it could read other tables."""

_CLAUSES: Final = CLAUSES["mysql"]
_CONSTRAINTS: Final = frozenset({"PRIMARY", "UNIQUE", "FOREIGN", "CHECK"})
_DATED: Final = frozenset({"DATE", "TIME", "TIMESTAMP"})
"""Words before the string of a literal: DATE '2026-01-31'."""
_TYPE_WORDS: Final = frozenset({"UNSIGNED", "SIGNED", "ZEROFILL", "BINARY", "ASCII", "UNICODE", "BYTE"})
_ACTIONS: Final = (("RESTRICT",), ("CASCADE",), ("SET", "NULL"), ("NO", "ACTION"), ("SET", "DEFAULT"))


class Definitions:
    """Reads definitions. Each method takes what it is named after, and adds the steps that it finds."""

    def __init__(self, text: str) -> None:
        self._reader = Reader(text)
        self._steps: list[StatementClause] = []

    def _add(
        self,
        key: str,
        column: str | None = None,
        name: str | None = None,
        *,
        place: ColumnPosition | None = None,
        is_conditional: bool = False,
    ) -> None:
        clause = _CLAUSES[key]
        if clause.support is Support.REFUSED:
            raise refuse(clause)
        self._steps.append(StatementClause(clause, column, name, place, is_conditional))

    def _table(self) -> tuple[str | None, str, int, int]:
        """Schema, name, and where both begin and end."""
        reader, start = self._reader, self._reader.next.start
        names = [reader.name("the name of a table")]
        while reader.takes("."):
            names.append(reader.name())
        if len(names) > 2:
            raise StatementError(f"{'.'.join(names)}: name the table as database.table")
        if len(names) == 2 and (why := why_reserved("mysql", names[0])):
            raise StatementError(f"table {'.'.join(names)}: {why}")
        return (names[0] if len(names) == 2 else None), names[-1], start, reader.previous.end

    def _elements(self) -> None:
        reader = self._reader
        reader.need("(")
        self._element()
        while reader.takes(","):
            self._element()
        reader.need(")")

    def _element(self, *, at_place: bool = False) -> None:
        """A column, key or constraint; ``at_place``: FIRST or AFTER may follow a column."""
        reader = self._reader
        if reader.takes("CONSTRAINT"):
            self._constraint_name()
        match reader.next.word:
            case "PRIMARY":
                reader.need("PRIMARY", "KEY")
                self._key("add-primary")
            case "UNIQUE":
                reader.take()
                reader.takes_one("INDEX", "KEY")
                self._key("add-unique")
            case "FULLTEXT" | "SPATIAL" | "INDEX" | "KEY":
                if reader.take().word in ("FULLTEXT", "SPATIAL"):
                    reader.takes_one("INDEX", "KEY")
                self._key("add-index")
            case "FOREIGN":
                reader.need("FOREIGN", "KEY")
                reader.takes("IF", "NOT", "EXISTS")
                if not reader.sees("("):
                    reader.name()
                self._parts()
                self._references()
            case "CHECK":
                reader.take()
                reader.group(without=QUERIES)
                self._add("add-check")
            case "PERIOD" if reader.ahead().word == "FOR":
                reader.need("PERIOD", "FOR")
                reader.name()
                self._parts()
                self._add("versioning")
            case _:
                self._column(at_place=at_place)

    def _constraint_name(self) -> None:
        reader = self._reader
        reader.takes("IF", "NOT", "EXISTS")
        if reader.next.word not in _CONSTRAINTS:
            reader.name("the name of a constraint")
        if reader.next.word not in _CONSTRAINTS:
            raise reader.unknown()

    def _column(self, *, at_place: bool) -> None:
        reader = self._reader
        reader.takes("COLUMN")
        conditional = reader.takes("IF", "NOT", "EXISTS")
        if reader.sees("(") and at_place and not conditional:  # ADD COLUMN (a int, b int)
            self._elements()
            return
        name = reader.name("a column")
        self._definition(name)
        place = self._placed() if at_place else None
        self._add("add-column", name=name, place=place, is_conditional=conditional)

    def _placed(self) -> ColumnPosition | None:
        if self._reader.takes("FIRST"):
            return ColumnPosition()
        if self._reader.takes("AFTER"):
            return ColumnPosition(self._reader.name("a column"))
        return None

    def _key(self, key: str) -> None:
        reader = self._reader
        reader.takes("IF", "NOT", "EXISTS")
        if not reader.sees("(") and not reader.sees("USING"):
            reader.name("the name of an index")
        self._index_type()
        is_prefix = self._parts()
        while self._index_option():
            pass
        self._add("add-unique-prefix" if is_prefix and key == "add-unique" else key)
        if is_prefix and key == "add-primary":
            raise StatementError("a primary key over a prefix of a column does not identify rows: name whole columns")

    def _index_type(self) -> bool:
        if not self._reader.takes_one("USING", "TYPE"):
            return False
        if not self._reader.takes_one("BTREE", "HASH", "RTREE"):
            raise self._reader.unknown()
        return True

    def _index_option(self) -> bool:
        reader = self._reader
        if reader.takes("COMMENT"):
            reader.string()
        elif reader.takes("KEY_BLOCK_SIZE"):
            reader.takes("=")
            reader.number()
        elif reader.takes("WITH", "PARSER"):
            reader.name()
        else:
            return self._index_type() or reader.takes("IGNORED") or reader.takes("NOT", "IGNORED")
        return True

    def _parts(self) -> bool:
        """The columns of a key; whether only a prefix of one is in it."""
        reader, is_prefix = self._reader, False
        reader.need("(")
        while True:
            reader.name("a column")
            if reader.takes("("):
                reader.number()
                reader.need(")")
                is_prefix = True
            reader.takes_one("ASC", "DESC")
            if not reader.takes(","):
                break
        reader.need(")")
        return is_prefix

    def _references(self) -> None:
        reader = self._reader
        reader.need("REFERENCES")
        self._table()
        if reader.sees("("):
            self._parts()
        if reader.takes("MATCH"):
            reader.name()
        while reader.takes("ON"):
            if not reader.takes_one("DELETE", "UPDATE"):
                raise reader.unknown()
            if not any(reader.takes(*words) for words in _ACTIONS):
                raise reader.unknown()
        self._add("add-foreign")

    def _definition(self, column: str) -> None:
        """The type and the properties of a column."""
        self._type()
        while self._attribute(column):
            pass

    def _type(self) -> None:
        reader = self._reader
        if reader.next.kind is not TokenKind.WORD:
            raise reader.unknown("expected a type")
        word = reader.take().word
        if word == "NATIONAL":
            reader.name("a type")
        if word in ("DOUBLE", "LONG", "CHAR", "CHARACTER", "NCHAR", "NATIONAL"):
            reader.takes_one("PRECISION", "VARYING", "VARCHAR", "VARBINARY")
        if word == "LONG":
            reader.takes_one("CHAR")
        if reader.sees("("):
            self._arguments()
        while reader.next.word in _TYPE_WORDS:
            reader.take()
        if reader.sees("CHARACTER") or reader.sees("CHARSET") or reader.sees("CHAR", "SET"):
            self._charset()
            reader.takes("BINARY")

    def _arguments(self) -> None:
        """Of a type: numbers, or the words of an enum."""
        reader = self._reader
        reader.need("(")
        while True:
            self._literal()
            if not reader.takes(","):
                break
        reader.need(")")

    def _attribute(self, column: str) -> bool:  # noqa: C901, PLR0912 - one word after the other
        reader = self._reader
        match reader.next.word:
            case "NOT":
                reader.need("NOT", "NULL")
            case "NULL" | "AUTO_INCREMENT" | "INVISIBLE" | "SERIAL":
                reader.take()
            case "DEFAULT":
                reader.take()
                self._value()
            case "ON":
                reader.need("ON", "UPDATE")
                self._value()
            case "UNIQUE":
                reader.take()
                reader.takes("KEY")
                self._add("add-unique", name=column)
            case "PRIMARY" | "KEY":
                reader.takes("PRIMARY")
                reader.need("KEY")
                self._add("add-primary", name=column)
            case "COMMENT":
                reader.take()
                reader.string()
            case "COLLATE":
                reader.take()
                reader.takes("=")
                self._literal()
            case "CONSTRAINT" | "CHECK":
                if reader.takes("CONSTRAINT") and not reader.sees("CHECK"):
                    reader.name()
                reader.need("CHECK")
                reader.group(without=QUERIES)
                self._add("add-check")
            case "GENERATED" | "AS":
                if reader.takes("GENERATED"):
                    reader.need("ALWAYS")
                reader.need("AS")
                reader.group(without=QUERIES)
                reader.takes_one("VIRTUAL", "STORED", "PERSISTENT")
            case "COMPRESSED":
                reader.take()
                if reader.takes("="):
                    reader.name()
            case "REFERENCES":
                self._references()
            case _:
                return False
        return True

    def _value(self) -> None:
        """What a default is: an expression in parentheses, a function, or a literal."""
        reader = self._reader
        if reader.sees("("):
            reader.group(without=QUERIES)
            return
        if reader.next.word in ("NEXT", "PREVIOUS"):
            raise reader.unknown("sequences are not followed")
        self._literal()
        if reader.sees("(") and reader.previous.kind is TokenKind.WORD:
            reader.group(without=QUERIES)

    def _literal(self) -> None:
        """A word, number or string, with a sign or a character set before it."""
        reader = self._reader
        reader.takes_one("+", "-")
        if reader.takes("."):
            reader.number()
            return
        token = reader.take()
        if token.kind is TokenKind.WORD and reader.next.kind is TokenKind.STRING and reader.next.start == token.end:
            token = reader.take()  # x'ff', _utf8mb4'a'
        elif (
            token.kind is TokenKind.WORD
            and (token.word.startswith("_") or token.word in _DATED)
            and reader.next.kind is TokenKind.STRING
        ):
            token = reader.take()
        while token.kind is TokenKind.STRING and reader.next.kind is TokenKind.STRING:  # one text in several parts
            token = reader.take()
        if token.kind not in (TokenKind.WORD, TokenKind.NUMBER, TokenKind.STRING, TokenKind.QUOTED):
            raise reader.unknown("expected a value")

    def _charset(self) -> None:
        reader = self._reader
        if not (reader.takes("CHARACTER", "SET") or reader.takes("CHARSET") or reader.takes("CHAR", "SET")):
            raise reader.unknown("expected CHARACTER SET")
        reader.takes("=")
        if reader.sees("DEFAULT"):
            raise reader.unknown("DEFAULT depends on the database's settings: name the character set")
        self._literal()
