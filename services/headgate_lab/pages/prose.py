"""Paragraphs and list items of a page that is made, filled to the width of those that are written by hand."""

import re
import textwrap
from itertools import groupby
from typing import Final

__all__ = ["filled"]

COLUMNS_MAX: Final = 100
"""As `make lint` has it for every page."""

_ITEM: Final = re.compile(r"- |\d+\. ")
_NOT_PROSE: Final = ("|", "#", "<", "    ")
_WHOLE: Final = re.compile(r"`[^`]+`|\]\([^)]*\)")
"""Code and a link's address: their blanks divide no line."""
_BLANK: Final = "\0"


def filled(page: str) -> str:
    """The page with its prose filled; code, tables and headings stay as they are."""
    lines: list[str] = []
    for is_code, some in groupby(_marked(page.splitlines()), key=lambda each: each[0]):
        texts = [text for _, text in some]
        lines += texts if is_code else _filled(texts)
    return "\n".join(lines) + "\n"


def _marked(lines: list[str]) -> list[tuple[bool, str]]:
    """(whether the line is one of a block of code, the line)."""
    is_open, marked = False, []
    for line in lines:
        is_fence = line.startswith("```")
        marked.append((is_open or is_fence, line))
        is_open ^= is_fence
    return marked


def _filled(lines: list[str]) -> list[str]:
    filled_lines: list[str] = []
    paragraph: list[str] = []

    def end() -> None:
        if paragraph:
            mark = _ITEM.match(paragraph[0])
            text = _WHOLE.sub(lambda whole: whole[0].replace(" ", _BLANK), " ".join(map(str.strip, paragraph)))
            indent = " " * (mark.end() if mark else 0)
            wrapped = textwrap.wrap(
                text, COLUMNS_MAX, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
            filled_lines.extend(line.replace(_BLANK, " ") for line in wrapped)
            paragraph.clear()

    for line in lines:
        if not line or line.startswith(_NOT_PROSE):
            end()
            filled_lines.append(line)
            continue
        if _ITEM.match(line):
            end()
        paragraph.append(line)
    end()
    return filled_lines
