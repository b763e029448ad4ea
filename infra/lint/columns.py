"""Refuse lines of Markdown prose that are wider than a reader's window beside a browser: see COLUMNS_MAX.

Code, tables, headings and a line that is one long address or command are not prose. The parser is the one that rich
brings with it.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).parents[2]

GIT_SECONDS_MAX: Final = 60.0
"""git lists the files within a second; it may wait for a busy disk."""

COLUMNS_MAX: Final = 100
"""Two windows of 100 columns fit beside each other on a laptop, and a changed line of a diff stays one line."""

_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")
_WHOLE: Final = re.compile(r"(`+).+?\1|\]\([^)]*\)")
"""Is not divided: code, and the address of a link."""


def too_wide(page: str) -> Iterator[tuple[int, int]]:
    """Number (from 1) and width of each line that could be divided and is not."""
    lines = page.splitlines()
    for token in _MARKDOWN.parse(page):
        if token.type == "paragraph_open" and token.map is not None:
            for number in range(*token.map):
                line = lines[number].rstrip()
                if len(line) > COLUMNS_MAX and len(_WHOLE.sub("·", line).split()) > 1:
                    yield number + 1, len(line)


def main() -> int:
    """Print every such line; 1 if there is one."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=GIT_SECONDS_MAX
    )
    count = 0
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists():  # else deleted, and not committed yet
            for number, width in too_wide((ROOT / name).read_text(encoding="utf-8")):
                sys.stderr.write(f"{name}:{number}: {width} columns: divide the line before column {COLUMNS_MAX}\n")
                count += 1
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
