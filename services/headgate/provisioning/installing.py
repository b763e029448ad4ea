"""How to install an optional part of Headgate. It is on no package index, so its wheels are named as files.

An index is not searched for the name: a package of a stranger could have it.
"""

from typing import Final

from headgate import __version__

__all__ = ["LAB", "installing"]

_WHEEL: Final = f"dist/headgate-{__version__}-py3-none-any.whl"

LAB: Final = f"pip install {_WHEEL} dist/headgate_lab-{__version__}-py3-none-any.whl"
"""The command that installs the lab beside Headgate, where ``make dist`` has built both wheels."""


def installing(extra: str) -> str:
    """The command that installs Headgate with ``extra``: "views", "delta" or "iceberg", with commas for several."""
    return f"pip install '{_WHEEL}[{extra}]'"
