"""A DDL statement as far as a migration has to understand it: what it does, to which table, and where that name stands.

The server is the parser: each statement is tried on an empty copy of the table before it is accepted (``rehearse``).
What is read here are tokens, by sqlglot's tokenizer of the dialect, which knows its quotes and comments: the verb, the
table, the renamed columns, and where the table's name stands, so that the very same text can be applied to another
table (docs/adr/0036).
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

DialectName = Literal["mysql", "postgres"]

_VERBS: Final = ("ALTER", "CREATE", "DROP")
_BEFORE_TABLE: Final = frozenset({"IF", "NOT", "EXISTS", "ONLY", "ONLINE", "IGNORE", "OR", "REPLACE"})
_QUOTES: Final = {"mysql": "`", "postgres": '"'}


class StatementError(ValueError):
    """A statement that no migration can be made of; the message says what is wrong and what to write instead."""


class Statement(msgspec.Struct, frozen=True):
    """``action`` is alter, create or drop; ``schema`` is None where the statement names none.

    ``head`` and ``tail`` are the text before and after the table's name. ``renamed`` maps old to new column names.
    ``rules`` are constraints that it drops: (name, where in ``tail`` the name begins, and ends).
    """

    action: Literal["alter", "create", "drop"]
    schema: str | None
    table: str
    head: str
    tail: str
    if_exists: bool = False
    if_not_exists: bool = False
    renamed: dict[str, str] = {}
    rules: tuple[tuple[str, int, int], ...] = ()

    def on(self, name: str, rules: Mapping[str, str] | None = None) -> str:
        """The statement with another table's (quoted) name in place of its own.

        ``rules``: constraints of that table that are called otherwise there, and how (quoted).
        """
        tail = self.tail
        for rule, start, end in reversed(self.rules):
            if rules is not None and rule in rules:
                tail = tail[:start] + rules[rule] + tail[end:]
        return f"{self.head}{name}{tail}"


def parse_statement(text: str, dialect: DialectName) -> Statement:
    """Read one ALTER TABLE, CREATE TABLE or DROP TABLE. Raises StatementError."""
    text = text.strip().rstrip(";").strip()
    try:
        tokens = _tokenizer(dialect).tokenize(text)
    except TokenError as error:
        raise StatementError(f"the statement does not parse: {error}") from error
    if any(token.token_type is TokenType.SEMICOLON for token in tokens):
        raise StatementError("a migration is one statement: submit the others as migrations of their own")
    words = [token.text.upper() for token in tokens]
    verb = words[0] if words else ""
    if verb not in _VERBS:
        raise StatementError(f"{verb or 'nothing'!r}: a migration is an ALTER TABLE, CREATE TABLE or DROP TABLE")
    if "TABLE" not in words[1:4]:
        raise StatementError(f"{' '.join(words[:2])}: only tables are migrated; run other statements by yourself")
    index = words.index("TABLE") + 1
    if "TEMPORARY" in words[:index]:
        raise StatementError("a temporary table is its session's own: no migration can change it")
    before = []
    while index < len(words) and words[index] in _BEFORE_TABLE and tokens[index].token_type is not TokenType.IDENTIFIER:
        before.append(words[index])
        index += 1
    return _with_table(text, verb.lower(), tokens, index, before=before, dialect=dialect)


def _with_table(
    text: str, action: str, tokens: list[Token], index: int, *, before: list[str], dialect: DialectName
) -> Statement:
    if index >= len(tokens):
        raise StatementError("the statement names no table")
    names, last = [tokens[index].text], index
    while last + 2 < len(tokens) and tokens[last + 1].token_type is TokenType.DOT:
        last += 2
        names.append(tokens[last].text)
    if len(names) > 2:
        raise StatementError(f"{'.'.join(names)}: name the table as schema.table or database.table")
    rest = tokens[last + 1 :]
    if action == "drop" and any(token.token_type is TokenType.COMMA for token in rest):
        raise StatementError("DROP of several tables: submit one migration for each")
    if action == "alter" and not rest:
        raise StatementError("ALTER TABLE without a change")
    _check_tail(action, rest)
    return Statement(
        action=action,  # type: ignore[arg-type]
        schema=names[0] if len(names) == 2 else None,
        table=names[-1],
        head=text[: _start(tokens[index], text, _QUOTES[dialect])],
        tail=text[tokens[last].end + 1 :],
        if_exists="EXISTS" in before and "NOT" not in before,
        if_not_exists="EXISTS" in before and "NOT" in before,
        renamed=_renamed(rest) if action == "alter" else {},
        rules=_dropped_rules(rest, text, tokens[last].end + 1, _QUOTES[dialect]) if action == "alter" else (),
    )


def _check_tail(action: str, rest: list[Token]) -> None:
    words = [token.text.upper() for token in rest]
    if action != "alter":
        return
    for index, word in enumerate(words):
        follows = words[index + 1] if index + 1 < len(words) else ""
        if (
            word == "RENAME"
            and follows not in ("COLUMN", "INDEX", "KEY", "CONSTRAINT")
            and (follows in ("TO", "AS") or len(words) == index + 2)
        ):
            raise StatementError("RENAME of a table takes no time: run it by yourself, where no migration is pending")


def _renamed(rest: list[Token]) -> dict[str, str]:
    """CHANGE [COLUMN] a b …, RENAME COLUMN a TO b, and PostgreSQL's RENAME a TO b."""
    found: dict[str, str] = {}
    texts, words = [token.text for token in rest], [token.text.upper() for token in rest]
    for index, word in enumerate(words):
        if rest[index].token_type is TokenType.IDENTIFIER:
            continue
        at = index + 1
        if at < len(words) and words[at] == "COLUMN":
            at += 1
        while at < len(words) and words[at] in ("IF", "EXISTS"):
            at += 1
        if word == "CHANGE" and at + 1 < len(words):
            found[texts[at]] = texts[at + 1]
        if word == "RENAME" and at + 2 < len(words) and words[at + 1] == "TO":
            found[texts[at]] = texts[at + 2]
    return {old: new for old, new in found.items() if old != new}


def _dropped_rules(rest: list[Token], text: str, begin: int, quote: str) -> tuple[tuple[str, int, int], ...]:
    """DROP CONSTRAINT [IF EXISTS] a."""
    words = [token.text.upper() for token in rest]
    found = []
    for index in range(len(words) - 2):
        at = index + (4 if words[index + 2 : index + 4] == ["IF", "EXISTS"] else 2)
        if words[index : index + 2] == ["DROP", "CONSTRAINT"] and at < len(rest):
            found.append((rest[at].text, _start(rest[at], text, quote) - begin, rest[at].end + 1 - begin))
    return tuple(found)


def _start(token: Token, text: str, quote: str) -> int:
    """Where the token begins, its quote included: of a quoted name the tokenizer may tell where its text begins."""
    start = token.start
    if start > 0 and text[start - 1] == quote and token.token_type is TokenType.IDENTIFIER and text[start] != quote:
        return start - 1
    return start


def _tokenizer(dialect: DialectName) -> Tokenizer:
    return Dialect.get_or_raise(dialect).tokenizer_class()
