"""All records and keys of the control topics: a service adds its own with one line here.

``KEY_FORMS`` gives for each topic the forms of its keys; a key's class defines which record its value is.
"""

import sys
from typing import Any, Final, cast

import msgspec

from headgate.records import generation, keys, migration, timestamps
from headgate.records.base import Key, MalformedKeyError
from headgate.records.names import decode_part, is_plain

SERVICES: Final = (keys, timestamps, generation, migration)
"""Modules with ``KEYS``. Within a topic the order counts (see there)."""

KEY_FORMS: Final[dict[str, tuple[type[Key], ...]]] = {
    topic: tuple(form for service in SERVICES for form in service.KEYS if form.topic == topic)
    for topic in dict.fromkeys(form.topic for service in SERVICES for form in service.KEYS)
}

_OF_NAMES_ONLY: Final[frozenset[Any]] = frozenset(
    form
    for forms in KEY_FORMS.values()
    for form in forms
    if all(field.type is str for field in msgspec.structs.fields(form))
)
"""Forms without a number, for which there is nothing to convert: keys are parsed for every record that is read."""


def parse_key(topic: str, text: str) -> Key:
    """The typed key of ``text`` on control topic ``topic`` (name without prefix), or MalformedKeyError."""
    parts = text.split("/")
    for form in KEY_FORMS[topic]:
        names = form.__struct_fields__
        fixed = len(form.prefix)
        behind = fixed + 1 + len(form.infix)
        if len(parts) != fixed + len(form.infix) + len(names) or tuple(parts[:fixed]) != form.prefix:
            continue
        if tuple(parts[fixed + 1 : behind]) != form.infix:
            continue
        told = [parts[fixed], *parts[behind:]]
        try:
            if form in _OF_NAMES_ONLY and is_plain(text):
                # A name occurs in many keys; kept once, it takes a third off a coordinator's memory.
                return cast("Key", cast("Any", form)(*map(sys.intern, told)))
            values = {name: decode_part(part) for name, part in zip(names, told, strict=True)}
            key = msgspec.convert(values, form, strict=False)
        except (UnicodeDecodeError, msgspec.ValidationError) as error:
            raise MalformedKeyError(f"key {text!r} on {topic}: {error}") from error
        if key.text() == text:
            return key
    raise MalformedKeyError(f"key {text!r} has no form known on topic {topic}")
