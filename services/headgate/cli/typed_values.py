"""Values of options that have their type already.

typer converts every value by pydantic, even one that is not given. To import pydantic takes as long as to import all
that a command such as ``feed list`` needs beside it, so typer is asked only where a value must be converted or refused.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import typer


class TypedValues:
    """A converter of one parameter that asks typer's, which ``converter`` makes, only if it must."""

    def __init__(self, converter: Callable[[], Any]) -> None:
        self._converter = converter

    def __call__(self) -> "TypedValues":
        """Itself: it replaces the method that makes typer's."""
        return self

    def coerce(self, value: Any, param: Any, ctx: typer.Context) -> Any:
        """The value as the command takes it. Raises typer.BadParameter."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        found = as_typed(value, param.type_descriptor.annotation)
        if found is None or not _is_within(found, param.type_descriptor.parameter_info):
            return self._converter().coerce(value, param=param, ctx=ctx)
        return found


def as_typed(value: object, kind: Any) -> object | None:
    """``value`` as a ``kind`` if it is one, or the exact name of a choice; None if it must be converted or refused."""
    if get_origin(kind) is list:
        is_list = (
            isinstance(value, list | tuple) and get_args(kind) == (str,) and all(type(each) is str for each in value)
        )
        return list(value) if is_list else None  # type: ignore[call-overload]
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else None
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next((each for each in kind if value is each or value == each.value), None)
    return value if kind in (str, int, float) and type(value) is kind else None


def _is_within(value: Any, info: Any) -> bool:
    """Whether a number is within the option's bounds."""
    if not isinstance(value, int | float):
        return True
    return (info.min is None or value >= info.min) and (info.max is None or value <= info.max)


def keep_typed(parameter: Any) -> None:
    """Let ``parameter`` take values that have its type as they are."""
    converter = getattr(parameter, "get_runtime_param", None)
    if converter is not None and not isinstance(converter, TypedValues):
        parameter.get_runtime_param = TypedValues(converter)
