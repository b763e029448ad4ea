"""Refuse words that readers stumble over, in Markdown and in the comments, docstrings and texts of services/.

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
    r"afresh": "again",
    r"anew": "again",
    r"as\s+ever": "as before",
    r"at\s+the\s+begin": "at the start",
    r"bare\s+hands": "hand-written COPY",
    r"begun": "started",
    r"be\s+it": "even if, or",
    r"campaigns?\s+won": "elected",
    r"fault\s+of\s+headgate": "internal error",
    r"for\s+ever": "without limit, permanently",
    r"forgive[ns]?": "re-admit",
    r"for\s+good": "permanently, or no longer exists",
    r"(?:go|goes|going|gone|went)\s+on": "continue, resume",
    r"in\s+vain": "without success",
    r"(?:is|are)\s+said\s+to": "is reported as",
    r"(?:is|are)\s+to\s+be": "must be",
    r"(?:is|are|was|were)\s+no(?!\s+(?:longer|more\s+than))": "is not a, does not exist",
    r"lest": "so that … not",
    r"look(?:s|ed|ing)?\s+again": "check again, poll again, read again",
    r"meanwhile": "until then, since, or in the meantime",
    r"needy": "unassigned",
    r"nobody|somebody|everybody": "no client, a user, all processes",
    r"no\s+such": "unknown, not found, or does not exist",
    r"not(?:ed|ing)": "record, checkpoint",
    r"no\s+way\s+back": "cannot be reverted",
    r"of\s+ours": "of Headgate",
    r"on\s+the\s+way\s+back": "in a revert",
    r"(?:is|are|was|were)\s+passed\s+over": "is skipped, is excluded",
    r"(?:reader|writer)s?\s+of\s+(?:a|the)\s+set": "reader or writer of a change log",
    r"reckon(?:ed|ing|s)?": "estimate, compute",
    r"(?:stand|stands|stood|standing)(?!-|\s+(?:by|for|apart)\b)": "is stored, exists, is blocked",
    r"(?:take[ns]?|taking|took)\s+up(?!\s+to\b)": "start, resume, process",
    r"(?:tell|tells|telling|told)(?!\s+apart\b)": "report, show, distinguish",
    r"than\s+is": "another construction",
    r"throne": "election, term",
    r"tried\s+again": "retried",
    r"(?:un)?said|says?|saying": "report, show, describe, contain",
    r"up\s+to\s+when": "to which time",
    r"who(?:ever|soever)": "the client or process that",
    r"wish(?:es|ed)?": "desired state, request",
}
"""Expression → what to write."""

_CODE: Final = re.compile(r"```.*?```|``[^`]*``|`[^`\n]*`|\]\([^)\n]*\)", re.DOTALL)
_PLACEHOLDER: Final = re.compile(r"\{[^{}]*\}")
_TEXTS: Final = (tokenize.COMMENT, tokenize.STRING)


def found(text: str, line: int = 1) -> Iterator[tuple[int, str]]:
    """Line and word of each hit in a text that begins at ``line``."""
    plain = _CODE.sub(lambda code: re.sub(r"[^\n]", "·", code[0]), text)
    for hit in re.finditer(rf"\b(?:{'|'.join(INSTEAD)})\b", plain, re.IGNORECASE):
        yield line + plain.count("\n", 0, hit.start()), hit[0]


def found_in(path: Path) -> Iterator[tuple[int, str]]:
    """The same for a file: all of a page, and the comments, docstrings and texts of a program."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from found(text)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _TEXTS and " " in token.string:  # else a name or a code
            yield from found(_PLACEHOLDER.sub("·", token.string), token.start[0])


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
        for line, word in found_in(ROOT / name):
            instead = next(text for expression, text in INSTEAD.items() if re.match(expression, word, re.IGNORECASE))
            sys.stderr.write(f"{name}:{line}: {word!r}: write {instead}\n")
            count += 1
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
