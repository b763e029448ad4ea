"""Words of a line as bash gives them to completion, put together again where it has divided a name.

Bash divides words at ``@``, ``=`` and ``:``, too: of ``public.orders@te`` it gives three, and what it is offered takes
the place of the last one, with an ``@`` before it (readline takes that for the begin of a host's name). Names of
Headgate have these signs, and no word consists of them alone. zsh and fish give whole words.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Final, NamedTuple

__all__ = ["Line", "put_together", "whole_words"]

_COMPLETE: Final = "_HEADGATE_COMPLETE"
_BREAKS: Final = frozenset("@=:")


class Line(NamedTuple):
    """The words up to the cursor. ``kept``: how the last one begins, where bash leaves that on the line."""

    words: list[str]
    kept: str


def put_together(words: list[str]) -> Line:
    """The words as they were typed. Behind the last one is the cursor."""
    whole: list[str] = []
    kept, behind_break = "", False
    for word in words:
        is_break = bool(word) and _BREAKS.issuperset(word)
        kept = ""
        if whole and word and (is_break or behind_break):
            kept = whole[-1] + (word if is_break else "")
            whole[-1] += word
        else:
            whole.append(word)
        behind_break = is_break
    return Line(whole, kept.removesuffix("@"))


@contextmanager
def whole_words() -> Iterator[None]:
    """While bash's completion is answered, the environment has whole words, and the answer what bash has to add."""
    words, at = os.environ.get("COMP_WORDS", "").split("\n"), os.environ.get("COMP_CWORD", "")
    before = words[: int(at) + 1] if at.isdecimal() else words
    line = put_together(before)
    if os.environ.get(_COMPLETE) != "complete_bash" or line.words == before:
        yield
        return
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join(line.words), str(len(line.words) - 1)
    answer = StringIO()
    try:
        with redirect_stdout(answer):
            yield
    finally:
        offered = answer.getvalue().splitlines(keepends=True)
        sys.stdout.writelines(each.removeprefix(line.kept) for each in offered)
