"""Values of settings: the text of a variable, or a flag, as the type that its option has."""

import re
from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec

from headgate.config.wording import explained, one_of

_SWITCHES: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
"""How people write true and false in variables."""

_KINDS: Final[Mapping[object, str]] = {str: "string", int: "int", float: "float", bool: "bool"}
"""Types by their names in wording.py; what has none is a mapping."""

_BOUNDS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"ge": ge, "gt": gt, "le": le, "lt": lt}


def value_of(given: object, hint: object) -> object:
    """``given`` as a value of type ``hint``, whose msgspec.Meta may have bounds or a pattern.

    Raises ValueError with what is wrong and what is allowed.
    """
    kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if get_origin(kind) is Literal:
        if given not in get_args(kind):
            raise ValueError(one_of(given, get_args(kind)))
        return given
    try:
        value: object = msgspec.convert(_read(given, kind), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(explained({"type": _KINDS.get(kind, "dict"), "input": given, "msg": str(error)})) from error
    for meta in notes:
        _check(value, given, meta)
    return value


def _read(given: object, kind: object) -> object:
    """Text for msgspec, which takes no blanks around numbers and knows fewer words for true and false."""
    if kind is str or not isinstance(given, str):
        return given
    text = given.strip()
    return _SWITCHES.get(text.lower(), text) if kind is bool else text


def _check(value: object, given: object, meta: msgspec.Meta) -> None:
    for name, holds in _BOUNDS.items():
        bound = getattr(meta, name)
        if bound is not None and not holds(value, bound):
            raise ValueError(explained({"type": "bound", "input": given, "ctx": {name: bound}}))
    if meta.pattern is not None and re.search(meta.pattern, str(value)) is None:
        raise ValueError(
            explained({"type": "string_pattern_mismatch", "input": given, "ctx": {"pattern": meta.pattern}})
        )
