"""What a table is in its server's catalogue, with everything that hangs on it, as facts that can be compared.

After a change the table must be what it was before, and what its statement makes of it: not a fact more or less. What
the statement makes of it is learned from the server: an empty copy of the table is described, altered, and described
again. Pure; each kind of database has a module that reads the facts.
"""

from collections.abc import Iterable, Mapping

import msgspec

from headgate.migration.strategies.contract import RefusedError
from headgate.records.name_lists import shown_names


class CatalogueFact(msgspec.Struct, frozen=True, order=True):
    """``aspect`` is what it is about (column, grant, …), ``subject`` a name within it, ``text`` what holds of it.

    ``column``: it is about this column only, and follows it if it is renamed or dropped.
    """

    aspect: str
    subject: str
    text: str
    column: str = ""


Facts = frozenset[CatalogueFact]


class Named(msgspec.Struct, frozen=True, array_like=True):
    """What an object that belongs to a table is called; ``definition`` is the same for those that are built alike."""

    kind: str
    definition: str
    name: str


class FormChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a statement does: facts that hold no more, and facts that hold from then on.

    ``names`` are those that the server's own ALTER would leave, ``names_before`` those of the table before.
    ``restarted``: columns whose sequence the statement puts somewhere else. ``knows_sequences``: rights on sequences
    are among the facts; an earlier version has stored a change without them.
    """

    removed: tuple[CatalogueFact, ...] = ()
    added: tuple[CatalogueFact, ...] = ()
    names: tuple[Named, ...] = ()
    names_before: tuple[Named, ...] = ()
    restarted: tuple[str, ...] = ()
    knows_sequences: bool = False


def change_between(before: Facts, after: Facts) -> FormChange:
    """What makes ``after`` of ``before``."""
    return FormChange(tuple(sorted(before - after)), tuple(sorted(after - before)))


def check_form(change: FormChange, aspects: frozenset[str]) -> None:
    """Raise RefusedError for a statement that changes something else than these aspects, which a copy has of itself."""
    others = sorted({fact.aspect for fact in (*change.removed, *change.added)} - aspects)
    if others:
        raise RefusedError(f"the statement changes {', '.join(others)} of the table: use strategy direct")


def check_carried(before: Facts, copy: Facts, aspects: frozenset[str], table: str) -> None:
    """Raise RefusedError unless an empty copy of the table is what the table is, in these aspects."""
    lost, more = (sorted(fact for fact in facts if fact.aspect in aspects) for facts in (before - copy, copy - before))
    if lost or more:
        raise RefusedError(f"table {table}: a copy would not have {_shown([*lost, *more])}: use strategy direct")


def wanted(before: Facts, change: FormChange | None, pairs: Mapping[str, str], formed: frozenset[str]) -> Facts:
    """The facts after a change. ``pairs``: column before → after; ``formed``: aspects that the statement may change.

    Without a ``change`` it is not known what becomes of these, and they are left out.
    """
    kept = {_renamed(fact, pairs) for fact in before if not fact.column or fact.column in pairs}
    if change is None:
        return frozenset(fact for fact in kept if fact.aspect not in formed)
    return frozenset(kept - set(change.removed)) | frozenset(change.added)


def check_became(expected: Facts, after: Facts, left_out: frozenset[str] = frozenset()) -> None:
    """Raise RefusedError unless the table is what it is expected to be."""
    found = frozenset(fact for fact in after if fact.aspect not in left_out)
    if missing := sorted(expected - found):
        raise RefusedError(f"the table would lack {_shown(missing)} after the change, so nothing was changed")
    if more := sorted(found - expected):
        raise RefusedError(f"the table would have {_shown(more)}, which was not requested, so nothing was changed")


def _renamed(fact: CatalogueFact, pairs: Mapping[str, str]) -> CatalogueFact:
    if not fact.column or pairs[fact.column] == fact.column:
        return fact
    return msgspec.structs.replace(fact, column=pairs[fact.column])


def _shown(facts: Iterable[CatalogueFact]) -> str:
    names = [" ".join(filter(None, (f.aspect, f.subject, f.column and f"({f.column})", f.text))) for f in facts]
    return shown_names(names, "; ")
