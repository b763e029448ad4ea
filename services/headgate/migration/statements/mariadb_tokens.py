"""Tokens of a MariaDB statement, and a reader that walks along them.

Executable comments are refused, because the server executes what others take for a comment. So is an escaped quote:
where a string with one ends depends on the server's SQL mode (NO_BACKSLASH_ESCAPES), and so does what follows it.
"""

import re
from enum import Enum, auto
from typing import Final

import msgspec

from headgate.migration.statements.clauses import CLAUSES
from headgate.migration.statements.statement import StatementError, refuse, shown

_SPACE: Final = re.compile(r"[ \t\r\n\f\v]+|#[^\n]*(?:\n|\Z)|--(?:[ \t\r\f\v][^\n]*)?(?:\n|\Z)")
_WORD: Final = re.compile(r"[0-9A-Za-z_$\u0080-\U0010ffff]+")
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_$\u0080-\U0010ffff])")
_QUOTED: Final = re.compile(r"`((?:[^`\0]|``)+)`")
_STRING: Final = re.compile(r"""'(?:[^'\\]|''|\\[^'"])*'|"(?:[^"\\]|""|\\[^'"])*\"""", re.DOTALL)
_SYMBOLS: Final = frozenset("(),.;=<>!+-*/%&|^~")
_ESCAPED_QUOTE: Final = "a quote after a backslash: write two quotes ('') instead"


class TokenKind(Enum):
    """What a token is."""

    WORD = auto()
    QUOTED = auto()
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()
    END = auto()


class Token(msgspec.Struct, frozen=True):
    """``value`` is a name without its quotes, or a word, symbol, string or number as it is written."""

    kind: TokenKind
    value: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """In capitals if it is a word that is not quoted; else empty, or the symbol."""
        return self.value.upper() if self.kind in (TokenKind.WORD, TokenKind.SYMBOL) else ""


def tokens_of(text: str) -> list[Token]:
    """The tokens of a statement, the last one an END. Raises StatementError."""
    found: list[Token] = []
    at = 0
    while (at := _skipped(text, at)) < len(text):
        found.append(_token(text, at))
        at = found[-1].end
    return [*found, Token(TokenKind.END, "", len(text), len(text))]


def _skipped(text: str, at: int) -> int:
    """Where the next token begins: behind spaces and comments."""
    while True:
        if (space := _SPACE.match(text, at)) is not None:
            at = space.end()
        elif text.startswith("/*", at):
            if text.startswith(("/*!", "/*M!", "/*m!"), at):
                raise refuse(CLAUSES["mysql"]["executable-comment"])
            end = text.find("*/", at + 2)
            if end < 0:
                raise StatementError("a comment does not end")
            at = end + 2
        else:
            return at


def _token(text: str, at: int) -> Token:
    for kind, pattern in ((TokenKind.NUMBER, _NUMBER), (TokenKind.WORD, _WORD), (TokenKind.STRING, _STRING)):
        if (match := pattern.match(text, at)) is not None:
            return Token(kind, match.group(), at, match.end())
    if (match := _QUOTED.match(text, at)) is not None:
        return Token(TokenKind.QUOTED, match.group(1).replace("``", "`"), at, match.end())
    if text[at] in _SYMBOLS:
        return Token(TokenKind.SYMBOL, text[at], at, at + 1)
    if text[at] in "'\"":
        raise StatementError(f"a string does not end, or has {_ESCAPED_QUOTE}: {shown(text[at:])}")
    raise StatementError(f"{text[at]!r} is not understood: {shown(text[at:])}")


class Reader:
    """Walks along tokens. What it is asked to take and does not find is an error that shows the place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tokens_of(text)
        self._at = 0

    @property
    def next(self) -> Token:
        """The token that comes next."""
        return self._tokens[self._at]

    @property
    def previous(self) -> Token:
        """The token that was taken last."""
        return self._tokens[self._at - 1]

    def ahead(self, count: int = 1) -> Token:
        """A token behind the next one."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The next token, whatever it is."""
        token = self.next
        if token.kind is not TokenKind.END:
            self._at += 1
        return token

    def sees(self, *words: str) -> bool:
        """Whether these words or symbols come next."""
        return all(self.ahead(count).word == word for count, word in enumerate(words))

    def takes(self, *words: str) -> bool:
        """Take these words if they come next."""
        if not self.sees(*words):
            return False
        self._at += len(words)
        return True

    def takes_one(self, *words: str) -> str:
        """Take the next word if it is one of these; empty if not."""
        return self.take().word if self.next.word in words else ""

    def need(self, *words: str) -> None:
        """Take these words. Raises StatementError."""
        if not self.takes(*words):
            raise self.unknown(f"expected {' '.join(words)}")

    def name(self, what: str = "a name") -> str:
        """Take an identifier. Raises StatementError."""
        if self.next.kind not in (TokenKind.WORD, TokenKind.QUOTED):
            raise self.unknown(f"expected {what}")
        return self.take().value

    def string(self) -> None:
        """Take a string. Raises StatementError."""
        if self.next.kind is not TokenKind.STRING:
            raise self.unknown("expected a string")
        self.take()

    def number(self) -> None:
        """Take a number. Raises StatementError."""
        if self.next.kind is not TokenKind.NUMBER:
            raise self.unknown("expected a number")
        self.take()

    def group(self, *, without: frozenset[str] = frozenset()) -> list[Token]:
        """Take everything up to the parenthesis that closes the next one, and return it. Raises StatementError.

        ``without``: words that may not be in it.
        """
        self.need("(")
        depth, first = 1, self._at
        while depth:
            token = self.take()
            if token.kind is TokenKind.END:
                raise StatementError("a parenthesis is not closed")
            if token.word in without or token.word == ";":
                raise StatementError(f"{token.value} is not understood here: {shown(self.text[token.start :])}")
            depth += {"(": 1, ")": -1}.get(token.word, 0)
        return self._tokens[first : self._at]

    @property
    def is_at_end(self) -> bool:
        """Whether nothing follows."""
        return self.next.kind is TokenKind.END

    def unknown(self, why: str = "it is not understood") -> StatementError:
        """The error for what comes next."""
        rest = shown(self.text[self.next.start :]) or "the end of the statement"
        return StatementError(
            f"at {rest!r}: {why}. Clauses that are not listed in docs/reference/clauses.md are refused"
        )

    def plain(self, start: int) -> str:
        """The text from there on without comments, on one line."""
        found, before = "", start
        for token in self._tokens:
            if token.kind is TokenKind.END or token.start < start:
                continue
            found += (" " if found and token.start > before else "") + self.text[token.start : token.end]
            before = token.end
        return found
