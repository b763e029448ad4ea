"""Spellings of integers that YAML reads as another one, where an integer's digits name something.

YAML reads ``010`` as 8, ``1_000`` as 1000, ``1:30`` as 90, and ``08`` as a text. Other options keep that. The value of
a discriminator is in each row of a table and cannot be changed later, so it must be written as the column has it.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

__all__ = ["spelling_faults"]

_PLAIN: Final = re.compile("0|-?[1-9][0-9]*")
_LIKE_NUMBER: Final = re.compile("[-+]?[0-9][0-9_]*")
"""Of a text without quotes: what looks like an integer, and is none to YAML."""


class _Unquoted(str):
    """An integer as the file spells it, or a text that looks like one."""

    __slots__ = ()


class _Loader(yaml.SafeLoader):
    """Reads such scalars as the file spells them."""


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    return _Unquoted(loader.construct_scalar(node))


def _text(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    text = str(loader.construct_scalar(node))
    return _Unquoted(text) if node.style is None and _LIKE_NUMBER.fullmatch(text) else text


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:str", _text)


def spelling_faults(text: str, data: dict[str, Any]) -> list[str]:
    """What is wrong with discriminators of a feed's text, which YAML reads as ``data``."""
    if not isinstance(data.get("tables"), dict) or "discriminator" not in text:
        return []
    spelled = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    read = dict(_discriminators(data))
    return [
        f"{'.'.join(map(str, place))}: YAML reads {value} as {_shown(read.get(place))}. Write an integer with its "
        f"digits only and without zeros before them, or, for a text, put it in quotes: '{value}'"
        for place, value in _discriminators(spelled)
        if isinstance(value, _Unquoted) and _PLAIN.fullmatch(value) is None
    ]


def _shown(value: object) -> str:
    return f"the text {value!r}" if isinstance(value, str) else f"{value}"


def _discriminators(data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Where each discriminator is, and its value. Whatever is not of such a form is refused elsewhere."""
    tables = data.get("tables")
    for pattern, options in tables.items() if isinstance(tables, dict) else ():
        into = options.get("into") if isinstance(options, dict) else None
        given = into.get("discriminator") if isinstance(into, dict) else None
        for column, value in given.items() if isinstance(given, dict) else ():
            yield ("tables", str(pattern), "into", "discriminator", str(column)), value
