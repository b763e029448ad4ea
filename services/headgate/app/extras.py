"""Which optional packages are installed."""

import sys
from importlib.util import find_spec


def has_faust() -> bool:
    """Whether Faust is installed, which the views need.

    Faust replaces its own module when it is imported. The new one has no ``__spec__``, and ``find_spec`` refuses that.
    """
    return sys.modules.get("faust") is not None or find_spec("faust") is not None
