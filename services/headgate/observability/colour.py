"""Whether what is written to a stream may be in colour: the one place that decides it, for commands and for logs."""

import os
from typing import TextIO


def in_colour(stream: TextIO) -> bool:
    """On a terminal that can show it, unless the user does not want it (no-color.org); elsewhere if FORCE_COLOR is set.

    Both variables count only if they are not empty. NO_COLOR is the stronger one.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") in {"dumb", "unknown"}:
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()
