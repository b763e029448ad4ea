"""Errors about options, in words for the person who wrote them. The library's own are not."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from headgate.records.name_lists import shown_names

_KINDS: Final = {
    "missing": "it is missing",
    "string": "write a text",
    "int": "write a whole number",
    "float": "write a number",
    "bool": "write true or false",
    "tuple": "write a list, like [a, b]",
    "list": "write a list, like [a, b]",
    "dict": "write names with values, like {name: value}",
    "mapping": "write names with values, like {name: value}",
    "model": "write its options below it, each with a name and a value",
    "path": "write the path of a file",
}
"""By the first word of the library's own kind of error (``int_parsing``, ``int_type``, …)."""


def explained(detail: Mapping[str, Any]) -> str:
    """One of pydantic's error details as a sentence, with the nearest of the values that can be."""
    kind, given, context = str(detail["type"]), detail.get("input"), detail.get("ctx") or {}
    if kind == "value_error":
        return str(context.get("error", detail["msg"]))
    if kind in ("literal_error", "enum"):
        known = str(context["expected"]).replace(" or ", ", ").split(", ")
        return one_of(given, [word.strip("'") for word in known])
    bounds = [f"{word} {context[name]}" for name, word in _BOUNDS.items() if name in context]
    if bounds:
        return f"{given!r} is not allowed: it must be {' and '.join(bounds)}"
    if kind == "string_pattern_mismatch":
        return f"{given!r} is not allowed: it must match {context['pattern']}"
    says = _KINDS.get(kind.partition("_")[0])
    if says is None:
        return str(detail["msg"])
    return says if kind == "missing" else f"{given!r} is not allowed: {says}"


_BOUNDS: Final = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


_NEAR_ENOUGH: Final = 0.6
"""difflib's own measure of names that may be mistyped."""


def nearest(given: object, known: Iterable[str], *, cutoff: float = _NEAR_ENOUGH) -> str | None:
    """The known name that was perhaps meant, if one is near enough. The only place that decides that."""
    names = list(known)
    by_case = {name.lower(): name for name in names}
    found = get_close_matches(str(given).lower(), by_case, n=1, cutoff=cutoff)
    return by_case[found[0]] if found else None


def nearest_table(given: str, known: Iterable[str]) -> str | None:
    """The known table that was perhaps meant by ``schema.table``. A schema that both have makes no table similar."""
    names = list(known)
    own = nearest(_own_part(given), map(_own_part, names))
    return None if own is None else nearest(given, (name for name in names if _own_part(name) == own), cutoff=0)


def _own_part(table: str) -> str:
    return table.rpartition(".")[2]


def did_you_mean(*near: str | None, begins: bool = False) -> str:
    """The question whether one of these was meant, which may begin a sentence; empty without a name."""
    named = ", ".join(map(repr, filter(None, near)))
    return f"{'D' if begins else 'd'}id you mean {named}?" if named else ""


def unknown_option(name: str, known: Iterable[str]) -> str:
    """That there is none of this name, with the nearest one, or all of them."""
    names = list(known)
    return f"unknown option {name!r}; " + (did_you_mean(nearest(name, names)) or f"choose from {', '.join(names)}")


def known_names(given: object, known: Sequence[str]) -> str:
    """The nearest of the names that exist, and the first of all of them."""
    return " ".join(
        filter(None, (did_you_mean(nearest(given, known), begins=True), f"Known are: {shown_names(known)}"))
    )


def one_of(given: object, known: Sequence[str]) -> str:
    """That ``given`` is not one of ``known``, with the nearest of them."""
    question = did_you_mean(nearest(given, known))
    return f"{given!r} is unknown; {f'{question} Choose' if question else 'choose'} from {', '.join(known)}"
