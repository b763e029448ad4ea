"""Parses PostgreSQL's statements with its own grammar (pgparse, which is libpg_query), and admits clause by clause.

The tree shows what a statement does, but not where the names are in the text: those are found by tokens, and must be
the ones of the tree.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, Literal

from pgparse import PGQueryError, parse

from headgate.migration.statements.clauses import CLAUSES, Support
from headgate.migration.statements.reserved_schemas import why_reserved
from headgate.migration.statements.statement import Span, Statement, StatementClause, StatementError, refuse, shown

_CLAUSES: Final = CLAUSES["postgres"]

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<quoted>"(?:[^"]|"")+")
    |(?P<string>[eE]'(?:[^'\\]|''|\\.)*'|[uU]&'(?:[^']|'')*'|(?:[bBxXnN])?'(?:[^']|'')*')
    |(?P<dollar>\$(?P<tag>[A-Za-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff]*)?\$)
    |(?P<word>[A-Za-z_\u0080-\U0010ffff][\w$\u0080-\U0010ffff]*)
    |(?P<other>[0-9]+|.)""",
    re.DOTALL | re.VERBOSE,
)

TOKENS_MAX: Final = 20_000
"""libpg_query walks the tree by recursion: an expression of 100 000 operators ends the process, one of 60 000 does not.
A thousand columns have fewer tokens than this."""

_CONSTRAINTS: Final = {
    "CONSTR_CHECK": "add-check",
    "CONSTR_UNIQUE": "add-unique",
    "CONSTR_PRIMARY": "add-primary",
    "CONSTR_FOREIGN": "add-foreign",
    "CONSTR_EXCLUSION": "add-exclusion",
}
ON_COLUMNS: Final = frozenset(
    {
        *("AT_DropColumn", "AT_AlterColumnType", "AT_ColumnDefault", "AT_SetNotNull", "AT_DropNotNull"),
        *("AT_SetExpression", "AT_DropExpression", "AT_AddIdentity", "AT_DropIdentity", "AT_SetIdentity"),
        *("AT_SetStatistics", "AT_SetOptions", "AT_ResetOptions", "AT_SetStorage", "AT_SetCompression"),
    }
)
"""Commands whose name is that of a column; others name a trigger, a rule, a constraint or an index."""

_OF_COLUMNS: Final = frozenset(
    {"CONSTR_NOTNULL", "CONSTR_NULL", "CONSTR_DEFAULT", "CONSTR_GENERATED", "CONSTR_IDENTITY"}
)
"""Properties of a column, rather than constraints of the table."""

_STATEMENTS: Final = {
    "AlterTableStmt": "ALTER TABLE",
    "RenameStmt": "RENAME",
    "AlterObjectSchemaStmt": "SET SCHEMA",
    "AlterTableMoveAllStmt": "ALTER TABLE ALL",
    "CreateStmt": "CREATE TABLE",
    "CreateTableAsStmt": "CREATE TABLE AS",
    "SelectStmt": "SELECT INTO",
    "DropStmt": "DROP",
}

Node = dict[str, Any]
"""A node of the tree, whose shape is PostgreSQL's (parsenodes.h)."""


def read_postgresql(text: str) -> Statement:
    """One statement. Raises StatementError."""
    text = text.strip().rstrip(";").strip()
    if "\0" in text:
        raise StatementError("the statement has a NUL character")
    tokens = list(_tokens(text))
    if len(tokens) > TOKENS_MAX:
        raise StatementError(f"the statement has more than {TOKENS_MAX} words and signs: submit it in parts")
    try:
        found: list[Node] = parse(text)
    except RecursionError as error:
        raise StatementError("an expression in the statement is nested too deeply: submit it in parts") from error
    except PGQueryError as error:
        raise StatementError(
            f"the statement does not parse: {error.message}, at {shown(_from(text, error.position))!r}"
        ) from error
    if not found:
        raise StatementError("'nothing': a migration is an ALTER TABLE, CREATE TABLE or DROP TABLE")
    if len(found) > 1:
        raise StatementError("a migration is one statement. Submit the others as migrations of their own")
    ((kind, node),) = found[0]["stmt"].items()
    for table in _referenced(node):
        if "schemaname" not in table:
            raise StatementError(
                f"REFERENCES {table['relname']}: write the schema before the table's name, because Headgate's sessions "
                "have only pg_catalog on their search path"
            )
        _check_schema(table["schemaname"], table["relname"])
    return _Reader(text, tokens, kind, node).statement()


def _check_schema(schema: str, table: str) -> None:
    if why := why_reserved("postgres", schema):
        raise StatementError(f"table {schema}.{table}: {why}")


def _referenced(node: object) -> Iterator[Node]:
    """Tables that foreign keys refer to, wherever they are in a tree."""
    children: list[object] = []
    if isinstance(node, dict):
        if isinstance(table := node.get("pktable"), dict):
            yield table
        children = list(node.values())
    elif isinstance(node, list):
        children = node
    for child in children:
        yield from _referenced(child)


def _from(text: str, position: int) -> str:
    """The text from a character on; positions of errors begin with 1."""
    return text[max(0, position - 1) :]


class _Reader:
    """One statement's tree, and its text."""

    def __init__(self, text: str, tokens: list[tuple[str, int, int]], kind: str, node: Node) -> None:
        self._text, self._tokens, self._kind, self._node = text, tokens, kind, node
        self._steps: list[StatementClause] = []

    def statement(self) -> Statement:
        node = self._node
        match self._kind:
            case "AlterTableStmt":
                self._check_object(node.get("objtype"))
                for command in node["cmds"]:
                    self._command(command["AlterTableCmd"])
                return self._finished("alter", node["relation"], if_exists=node.get("missing_ok", False))
            case "RenameStmt":
                self._renamed()
                return self._finished("alter", node["relation"], if_exists=node.get("missing_ok", False))
            case "AlterObjectSchemaStmt":
                self._check_object(node["objectType"])
                raise refuse(_CLAUSES["set-schema"])
            case "AlterTableMoveAllStmt":
                raise refuse(_CLAUSES["tablespace-all"])
            case "CreateStmt":
                self._created()
                return self._finished("create", node["relation"], if_not_exists=node.get("if_not_exists", False))
            case "CreateTableAsStmt":
                raise refuse(_CLAUSES["create-select"])
            case "DropStmt":
                return self._dropped()
            case _:
                words = " ".join(word for word, *_ in self._tokens[:2]).upper()
                if words.split(" ")[0] in ("ALTER", "CREATE", "DROP"):
                    raise StatementError(f"{words}: only tables are migrated. Run other statements yourself")
                raise StatementError(f"{words!r}: a migration is an ALTER TABLE, CREATE TABLE or DROP TABLE")

    def _check_object(self, kind: str | None) -> None:
        if kind != "OBJECT_TABLE":
            shown_kind = str(kind).removeprefix("OBJECT_").replace("_", " ")
            raise StatementError(f"{shown_kind}: only tables are migrated. Run other statements yourself")

    def _add(
        self,
        key: str,
        what: str,
        column: str | None = None,
        name: str | None = None,
        *,
        is_conditional: bool = False,
    ) -> None:
        clause = _CLAUSES.get(key)
        if clause is None:
            raise StatementError(
                f"{what} is not understood. Clauses that are not listed in docs/reference/clauses.md are refused"
            )
        if clause.support is Support.REFUSED:
            raise refuse(clause)
        self._steps.append(StatementClause(clause, column, name, is_conditional=is_conditional))

    # --- ALTER TABLE ---

    def _command(self, command: Node) -> None:
        kind, name = str(command["subtype"]), command.get("name")
        if command.get("behavior") == "DROP_CASCADE":
            raise refuse(_CLAUSES["cascade"])
        conditional = bool(command.get("missing_ok", False))
        definition = command.get("def", {})
        match kind:
            case "AT_AddColumn":
                column = definition["ColumnDef"]
                self._add(kind, kind, name=column["colname"], is_conditional=conditional)
                self._constraints(column.get("constraints", []), column["colname"])
            case "AT_AlterColumnType" if "raw_default" in definition["ColumnDef"]:
                self._add("type-using", kind, name, name)
            case "AT_AddConstraint":
                self._constraint(definition["Constraint"], None)
            case "AT_DropConstraint":
                self._add(kind, kind, None, name, is_conditional=conditional)
            case _:
                column = name if kind in ON_COLUMNS else None
                self._add(kind, kind.removeprefix("AT_"), column, name, is_conditional=conditional)

    def _renamed(self) -> None:
        node = self._node
        kind = node["renameType"]
        if kind == "OBJECT_TABLE":
            raise refuse(_CLAUSES["rename-table"])
        if kind == "OBJECT_TABCONSTRAINT":
            self._add("rename-constraint", kind, None, node["newname"])
        elif kind == "OBJECT_COLUMN":
            self._check_object(node["relationType"])
            if node.get("behavior") == "DROP_CASCADE":
                raise refuse(_CLAUSES["cascade"])
            self._add("rename-column", kind, node["subname"], node["newname"])
        else:
            self._check_object(kind)

    def _constraints(self, found: list[Node], column: str) -> None:
        for constraint in found:
            self._constraint(constraint["Constraint"], column)

    def _constraint(self, constraint: Node, column: str | None) -> None:
        kind = str(constraint["contype"])
        if column is not None and (kind in _OF_COLUMNS or kind.startswith("CONSTR_ATTR_")):
            return
        key = _CONSTRAINTS.get(kind, kind)
        if constraint.get("skip_validation", False):
            key = "add-not-valid"
        if "indexname" in constraint:
            key = "add-using-index"
        self._add(key, kind, None, column or constraint.get("conname"))

    # --- CREATE TABLE and DROP TABLE ---

    def _created(self) -> None:
        node = self._node
        if node["relation"].get("relpersistence") == "t":
            raise refuse(_CLAUSES["temporary"])
        if "inhRelations" in node or "partbound" in node:
            raise refuse(_CLAUSES["partition-of"])
        if "ofTypename" in node:
            raise refuse(_CLAUSES["AT_AddOf"])
        self._add("create-table", self._kind)

    def _dropped(self) -> Statement:
        node = self._node
        self._check_object(node.get("removeType"))
        if len(node["objects"]) > 1:
            raise refuse(_CLAUSES["drop-tables"])
        if node.get("behavior") == "DROP_CASCADE":
            raise refuse(_CLAUSES["cascade"])
        self._add("drop-table", self._kind)
        names = [item["String"]["sval"] for item in node["objects"][0]["List"]["items"]]
        relation = dict(zip(("relname", "schemaname", "catalogname"), reversed(names), strict=False))
        return self._finished("drop", relation, if_exists=node.get("missing_ok", False))

    # --- names in the text ---

    def _finished(
        self,
        action: Literal["alter", "create", "drop"],
        relation: Node,
        *,
        if_exists: bool = False,
        if_not_exists: bool = False,
    ) -> Statement:
        if "catalogname" in relation:
            raise StatementError("name the table as schema.table, without a database")
        schema, table = relation.get("schemaname"), relation["relname"]
        if schema is not None:
            _check_schema(schema, table)
        start, end, after = self._table(tuple(filter(None, (schema, table))))
        return Statement(
            action=action,
            schema=schema,
            table=table,
            head=self._text[:start],
            tail=self._text[end:],
            steps=tuple(self._steps),
            if_exists=if_exists,
            if_not_exists=if_not_exists,
            rules=self._rules(after, end),
        )

    def _table(self, names: tuple[str, ...]) -> tuple[int, int, int]:
        """Where the table's name begins and ends in the text, and which token follows. Raises StatementError."""
        texts = [text.upper() for text, *_ in self._tokens]
        at = texts.index("TABLE") + 1
        for words in (("IF", "NOT", "EXISTS"), ("IF", "EXISTS"), ("ONLY",)):
            if texts[at : at + len(words)] == list(words):
                at += len(words)
        if texts[at] == "(":
            raise StatementError("ONLY (table): leave out the parentheses")
        found, start = [_folded(self._tokens[at][0])], self._tokens[at][1]
        while at + 2 < len(self._tokens) and texts[at + 1] == ".":
            at += 2
            found.append(_folded(self._tokens[at][0]))
        if tuple(found) != names:
            raise StatementError(
                f"the name of the table is not found in the text ({'.'.join(names)}): write it plainly"
            )
        end = self._tokens[at][2]
        if at + 1 < len(texts) and texts[at + 1] == "*":  # it means the same without it
            end, at = self._tokens[at + 1][2], at + 1
        return start, end, at + 1

    def _rules(self, first: int, offset: int) -> tuple[Span, ...]:
        """Where the names of dropped constraints are in the text. Raises StatementError if the tree has others."""
        texts = [text.upper() for text, *_ in self._tokens]
        found, depth = [], 0
        for at in range(first, len(texts) - 2):
            depth += {"(": 1, ")": -1}.get(texts[at], 0)
            if depth or texts[at : at + 2] != ["DROP", "CONSTRAINT"]:
                continue
            name, start, end = self._tokens[at + (4 if texts[at + 2 : at + 4] == ["IF", "EXISTS"] else 2)]
            found.append(Span(_folded(name), start - offset, end - offset))
        if [span.name for span in found] != [s.name for s in self._steps if s.clause.key == "AT_DropConstraint"]:
            raise StatementError("the names of the dropped constraints are not found in the text: write them plainly")
        return tuple(found)


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Tokens of a text: as they are written, and where they begin and end. They are right if the grammar accepts it."""
    at = 0
    while (found := _TOKEN.match(text, at)) is not None:
        start, at = at, found.end()
        if found["comment"] is not None:
            at = _comment_end(text, start)
        elif found["dollar"] is not None:
            end = text.find(found["dollar"], at)
            at = len(text) if end < 0 else end + len(found["dollar"])
            yield text[start:at], start, at
        elif found["space"] is None:
            if found["string"] is not None and found["string"][0] not in "eE" and "\\'" in found["string"]:
                # Where the string ends depends on the server's standard_conforming_strings.
                raise StatementError(f"a quote after a backslash, in {shown(found['string'])}: write E'…'")
            yield found.group(), start, at


def _comment_end(text: str, at: int) -> int:
    """Comments are nested."""
    depth = 0
    for found in re.finditer(r"/\*|\*/", text[at:]):
        depth += 1 if found.group() == "/*" else -1
        if not depth:
            return at + found.end()
    return len(text)


def _folded(name: str) -> str:
    """An identifier as PostgreSQL keeps it: in small letters, unless it is quoted."""
    if name.startswith('"'):
        return name[1:-1].replace('""', '"')
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)
