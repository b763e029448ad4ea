"""Refuse words that readers stumble over, in Markdown and in the comments, docstrings and texts of services/.

A word of INSTEAD is not used anywhere. A word of INSTEAD_BY_FOLDER is not used outside of the folders and files of
NOT_YET, which only ever loses entries: rewrite a folder's text, and remove it there in the same commit.
Code in backquotes and addresses of links are not text.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

GIT_SECONDS_MAX: Final = 60.0
"""git lists the files within a second; it may wait for a busy disk."""

INSTEAD: Final = {
    r"anew": "again",
    r"as\s+ever": "as before",
    r"bare\s+hands": "hand-written COPY",
    r"be\s+it": "even if, or",
    r"campaigns?\s+won": "elected",
    r"fault\s+of\s+headgate": "internal error",
    r"(?:is|are)\s+said\s+to": "is reported as",
    r"(?:is|are)\s+to\s+be": "must be",
    r"in\s+vain": "without success",
    r"lest": "so that … not",
    r"meanwhile": "until then, since, or in the meantime",
    r"for\s+good": "permanently, or no longer exists",
    r"forgive[ns]?": "re-admit",
    r"no\s+such": "unknown, not found, or does not exist",
    r"reckon(?:ed|ing|s)?": "estimate, compute",
    r"than\s+is": "another construction",
    r"(?:take[ns]?|taking|took)\s+up(?!\s+to\b)": "start, resume, process",
    r"throne": "election, term",
    r"up\s+to\s+when": "to which time",
    r"wish(?:es|ed)?": "desired state, request",
}
"""Expression → what to write."""

INSTEAD_BY_FOLDER: Final = {
    r"afresh": "again",
    r"at\s+the\s+begin": "at the start",
    r"begun": "started",
    r"for\s+ever": "without limit, permanently",
    r"(?:go|goes|going|gone|went)\s+on": "continue, resume",
    r"nobody|somebody|everybody": "no client, a user, all processes",
    r"(?:is|are|was|were)\s+no(?!\s+(?:longer|more\s+than))": "is not a, does not exist",
    r"of\s+ours": "of Headgate",
    r"(?:un)?said|says?|saying": "report, show, describe, contain",
    r"(?:stand|stands|stood|standing)(?!-|\s+(?:by|for|apart)\b)": "is stored, exists, is blocked",
    r"(?:tell|tells|telling|told)(?!\s+apart\b)": "report, show, distinguish",
    r"tried\s+again": "retried",
    r"who(?:ever|soever)": "the client or process that",
}
"""The same, for text that has been rewritten."""

NOT_YET: Final = ("docs/adr/00",)
"""Text that still has words of INSTEAD_BY_FOLDER: decisions before 0100. New ones are not exempt."""

_CODE: Final = re.compile(r"```.*?```|``[^`]*``|`[^`\n]*`|\]\([^)\n]*\)", re.DOTALL)
_PLACEHOLDER: Final = re.compile(r"\{[^{}]*\}")
_TEXTS: Final = (tokenize.COMMENT, tokenize.STRING)


def words_of(name: str) -> dict[str, str]:
    """Expression → what to write, for a file."""
    return INSTEAD if name.startswith(NOT_YET) else INSTEAD | INSTEAD_BY_FOLDER


def found(text: str, words: dict[str, str], line: int = 1) -> Iterator[tuple[int, str]]:
    """Line and word of each hit in a text that begins at ``line``."""
    plain = _CODE.sub(lambda code: re.sub(r"[^\n]", "·", code[0]), text)
    for hit in re.finditer(rf"\b(?:{'|'.join(words)})\b", plain, re.IGNORECASE):
        yield line + plain.count("\n", 0, hit.start()), hit[0]


def found_in(path: Path, words: dict[str, str]) -> Iterator[tuple[int, str]]:
    """The same for a file: all of a page, and the comments, docstrings and texts of a program."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from found(text, words)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _TEXTS and " " in token.string:  # else a name or a code
            yield from found(_PLACEHOLDER.sub("·", token.string), words, token.start[0])


def main() -> int:
    """Print every hit; 1 if there is one."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "services/*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=GIT_SECONDS_MAX,
    )
    count = 0
    for name in listed.stdout.splitlines():
        if not (ROOT / name).exists():  # deleted, and not committed yet
            continue
        words = words_of(name)
        for line, word in found_in(ROOT / name, words):
            instead = next(text for expression, text in words.items() if re.match(expression, word, re.IGNORECASE))
            sys.stderr.write(f"{name}:{line}: {word!r}: write {instead}\n")
            count += 1
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
