"""Imports what typer prints help with, and leaves out two modules that no help of ours uses.

typer's help imports rich.markdown (with markdown-it) and rich.traceback (with pygments): half of what ``--help`` costs.
Until one of them is called, classes of their names stand in for them.
"""

import sys
from importlib import import_module
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, Final

__all__ = ["import_help"]


class _Markdown:
    """Stands in for rich's class, and becomes it where one is made."""

    def __new__(cls, *args: Any, **further: Any) -> Any:
        """An object of rich's class."""
        return resolve_name("rich.markdown:Markdown")(*args, **further)


class _Traceback:
    """Stands in for rich's class, of which typer calls one method."""

    @staticmethod
    def from_exception(*args: Any, **further: Any) -> Any:
        """See rich's class."""
        return resolve_name("rich.traceback:Traceback").from_exception(*args, **further)


_LATE: Final[dict[str, tuple[str, type]]] = {
    "rich.markdown": ("Markdown", _Markdown),
    "rich.traceback": ("Traceback", _Traceback),
}


def import_help() -> None:
    """Import typer's module for help, if it is not imported yet."""
    if "typer.rich_utils" in sys.modules:
        return
    placed = {name: _module(name, *late) for name, late in _LATE.items() if name not in sys.modules}
    sys.modules.update(placed)
    try:
        import_module("typer.rich_utils")
    finally:
        for name in placed:
            del sys.modules[name]


def _module(name: str, attribute: str, late: type) -> ModuleType:
    module = ModuleType(name)
    setattr(module, attribute, late)
    return module
