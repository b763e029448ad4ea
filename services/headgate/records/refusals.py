"""The code that a refusal starts with: programs decide by it, and commands derive their exit code from it.

An outcome's reason is for people. Where the reason has a code (one of docs/error-codes.md, or that something asked for
does not exist) it begins with the code and a colon: every schema level can express that, and every reader sees it.
"""

from typing import Final

from headgate.records.error_codes import ERROR_CODES

NOT_FOUND: Final = "not_found"
"""No feed, table or agent has the name that was given."""

WARNING: Final = "warning: "
"""Start of a sentence that warns of a hazard and refuses nothing."""

_CODES: Final = frozenset({NOT_FOUND, *ERROR_CODES})


def coded(code: str, reason: str) -> str:
    """``reason`` with its code in front. Raises ValueError for an unknown code."""
    if code not in _CODES:
        raise ValueError(f"no refusal has the code {code!r}")
    return f"{code}: {reason}"


def is_warning(text: str) -> bool:
    """Whether ``text`` warns of a hazard, as opposed to a present problem."""
    return text.startswith(WARNING)


def code_in(reason: str) -> str | None:
    """The code that ``reason`` begins with; None if it has none."""
    code, colon, _ = reason.partition(": ")
    return code if colon and code in _CODES else None
