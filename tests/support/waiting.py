"""How tests wait: until something is true, however slow the machine is."""

import time
from collections.abc import Callable
from typing import TypeVar

from headgate.provisioning.time_scale import scaled_seconds

DEADLINE_SECONDS = 240.0
"""For something to become true on a machine that does other things as well; stretched by HEADGATE_TIME_SCALE."""

END_SECONDS_MAX = scaled_seconds(60.0)
"""For a thread that was told to end, or a process that was killed: work that is under way is finished before."""

POLL_SECONDS, POLL_SECONDS_MAX = 0.01, 1.0
POLL_RATIO = 6
"""Between two polls it rests for so many times as long as a poll takes."""

ValueT = TypeVar("ValueT")


def eventually(
    fact: Callable[[], ValueT], what: object | Callable[[], object] = "", seconds: float = DEADLINE_SECONDS
) -> ValueT:
    """Poll until ``fact()`` is true and return its value. Fails with ``what``, called if it is a function.

    A poll costs processor time here and at the server that answers it, which what is awaited needs as well: the longer
    a poll takes, the later the next one comes.
    """
    deadline = time.monotonic() + scaled_seconds(seconds)
    while True:
        began = time.monotonic()
        if value := fact():
            return value
        now = time.monotonic()
        assert now < deadline, f"not within {seconds:g} s: {what() if callable(what) else what}"
        time.sleep(min(POLL_SECONDS_MAX, max(POLL_SECONDS, POLL_RATIO * (now - began))))
