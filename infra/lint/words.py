"""Refuse words that readers stumble over, in Markdown and in the comments, docstrings and texts of services/.

A word that is here is not used anywhere: there are no exceptions. To add one, replace it everywhere in the same commit.
Code in backquotes is not text.
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

_WORD: Final = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)
_CODE: Final = re.compile(r"```.*?```|``[^`]*``|`[^`\n]*`", re.DOTALL)
_TEXTS: Final = (tokenize.COMMENT, tokenize.STRING)


def found(text: str, line: int = 1) -> Iterator[tuple[int, str]]:
    """Line and word of each hit in a text that begins at ``line``."""
    plain = _CODE.sub(lambda code: re.sub(r"[^\n]", "·", code[0]), text)
    for hit in _WORD.finditer(plain):
        yield line + plain.count("\n", 0, hit.start()), hit[0]


def found_in(path: Path) -> Iterator[tuple[int, str]]:
    """The same for a file: all of a page, and of a program what is written for people."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from found(text)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _TEXTS:
            yield from found(token.string, token.start[0])


def main() -> int:
    """Print every hit; 1 if there is one."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "services/*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    count = 0
    for name in listed.stdout.splitlines():
        if not (ROOT / name).exists():  # deleted, and not committed yet
            continue
        for line, word in found_in(ROOT / name):
            instead = next(text for expression, text in INSTEAD.items() if re.fullmatch(expression, word.lower()))
            sys.stderr.write(f"{name}:{line}: {word!r}: write {instead}\n")
            count += 1
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
