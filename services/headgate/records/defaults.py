"""The fields of a record that differ from their defaults: a form in which schema versions can be compared.

A newer version of a record only ever adds fields with a default (docs/adr/0003). So a record with every field at its
default left out reads the same whichever version wrote it, and whichever code holds it: a state's digest is taken of
this form, and a writer may write an older version exactly when nothing is lost by it.
"""

from functools import cache
from typing import Any, get_args, get_type_hints

import msgspec


class _Shape(msgspec.Struct, frozen=True):
    """Which fields of a struct can be left out, as builtins, and in which fields there are structs with such fields."""

    defaults: dict[str, Any]
    nested: dict[str, "_Shape"]


def without_defaults(record: msgspec.Struct) -> dict[str, Any]:
    """``record`` as builtins (text keys, sorted sets), without fields that are at their default, at any depth."""
    plain: dict[str, Any] = msgspec.to_builtins(record, str_keys=True, order="deterministic")
    _prune(_shape(type(record)), plain)
    return plain


def _prune(shape: _Shape, plain: dict[str, Any]) -> None:
    for name, default in shape.defaults.items():
        if plain[name] == default:
            del plain[name]
    for name, inner in shape.nested.items():
        value = plain.get(name)
        for item in value if isinstance(value, list | tuple) else (value,):
            if item is not None:
                _prune(inner, item)


@cache
def _shape(kind: type[msgspec.Struct]) -> _Shape:
    """Worked out once per type: most records have nothing to leave out."""
    defaults: dict[str, Any] = {}
    nested: dict[str, _Shape] = {}
    hints = get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT:
            defaults[field.name] = msgspec.to_builtins(field.default, str_keys=True)
        elif field.default_factory is not msgspec.NODEFAULT:
            defaults[field.name] = msgspec.to_builtins(field.default_factory(), str_keys=True)
        for inner in _structs_in(hints[field.name]):
            shape = _shape(inner)
            if shape.defaults or shape.nested:
                nested[field.name] = shape
    return _Shape(defaults, nested)


def _structs_in(hint: Any) -> list[type[msgspec.Struct]]:
    """The structs that a field of type ``hint`` can hold: itself, or as item or alternative; never as a map's value."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [inner for arg in get_args(hint) for inner in _structs_in(arg)]
