"""The code that a refusal starts with: programs decide by it, and commands derive their exit code from it.

An outcome's reason is for people. Where the reason has a code (one of docs/error-codes.md, or that something asked for
does not exist) it begins with the code and a colon: every schema level can say that, and every reader sees it.
"""

from typing import Final

from headgate.records.error_codes import ERROR_CODES

NOT_FOUND: Final = "not_found"
"""There is no feed, table or agent of the name that was given."""

WARNING: Final = "warning: "
"""What a sentence begins with that tells of a hazard and refuses nothing."""

_CODES: Final = frozenset({NOT_FOUND, *ERROR_CODES})


def coded(code: str, reason: str) -> str:
    """``reason`` with its code in front. Raises ValueError for a code that nobody knows."""
    if code not in _CODES:
        raise ValueError(f"no refusal has the code {code!r}")
    return f"{code}: {reason}"


def is_warning(text: str) -> bool:
    """Whether ``text`` tells of a hazard, as opposed to what is wrong now."""
    return text.startswith(WARNING)


def code_in(reason: str) -> str | None:
    """The code that ``reason`` begins with; None where it has none."""
    code, colon, _ = reason.partition(": ")
    return code if colon and code in _CODES else None
