"""How long the demo, ``headgate up``, ``headgate chaos`` and the tests wait for a process before they give up.

Beyond such a bound something does not work at all. Each is written for a machine that is four times
slower than the one it was written on (two cores), and goes through ``scaled_seconds``, which multiplies it by
``HEADGATE_TIME_SCALE``. Who ends by itself is noticed at once whatever the bound, so a generous one costs nothing.
Headgate's own times, such as leases, are not scaled: they are what is demonstrated.
"""

import math
import os
from typing import Final

from headgate.provisioning.errors import EmbeddedError

TIME_SCALE_VARIABLE: Final = "HEADGATE_TIME_SCALE"


def scaled_seconds(seconds: float) -> float:
    """``seconds`` on this machine. Raises EmbeddedError if HEADGATE_TIME_SCALE is not a number of 1 or more."""
    said = os.environ.get(TIME_SCALE_VARIABLE, "1")
    try:
        scale = float(said)
    except ValueError:
        scale = math.nan
    if not 1 <= scale < math.inf:
        raise EmbeddedError(f"{TIME_SCALE_VARIABLE}={said}: it must be a number of 1 or more")
    return seconds * scale
