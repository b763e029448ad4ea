"""Which columns of two tables are compared with each other, how, and by which of them rows are found."""

from collections.abc import Iterable

import msgspec

from headgate.verify.contract import ComparedShape, KeyKind, Side, UncomparableError
from headgate.verify.forms import Forms, forms_of, has_other_texts, is_comparable

__all__ = ["ComparedColumns", "paired"]


class ComparedColumns(msgspec.Struct, frozen=True):
    """Columns that both tables have, by the target's names: those of the key, then the others.

    ``order`` are the columns that rows are ordered by, ``values`` the rest: without a key the whole row is one.
    ``ranged`` are the first columns of both primary keys, as far as both databases order them alike. ``natives``: of
    each column of ``order``, whether rows are found by it with the help of an index.
    """

    own: dict[str, str]
    """The target's name of each column → the source's."""
    order: tuple[str, ...]
    values: tuple[str, ...]
    forms: tuple[Forms | None, ...]
    ranged: tuple[str, ...]
    natives: tuple[bool, ...]
    missing: tuple[str, ...]
    surplus: tuple[str, ...]
    unlike: dict[str, str]
    """Columns that both have, with types that have no texts in common → these types, the source's first."""
    is_keyless: bool
    has_other_texts: bool
    """Whether equal texts of a column, which is one of ``values``, may be of two values."""

    @property
    def all(self) -> tuple[str, ...]:
        """As rows have them."""
        return (*self.order, *self.values)

    def of_source(self, names: Iterable[str]) -> tuple[str, ...]:
        """The source's names of these columns."""
        return tuple(self.own[name] for name in names)


def paired(source: Side, target: Side, source_table: str, target_table: str) -> ComparedColumns:
    """The columns of the two tables. Rows are found by the target's primary key, or by the source's.

    Raises UncomparableError.
    """
    ours, theirs = _shape(source, source_table, "source"), _shape(target, target_table, "target")
    own = _same_names(ours.columns, theirs.columns, is_caseless=target.kind == "mysql")
    target_names = {name: column for column, name in own.items()}
    key = theirs.key or tuple(target_names.get(name, name) for name in ours.key)
    lacking = sorted(set(key) - own.keys())
    if lacking:
        raise UncomparableError(f"{source_table} lacks the target's key column {', '.join(lacking)}")
    pairs = {column: (ours.columns[name], theirs.columns[column]) for column, name in own.items()}
    found_by = key or tuple(own)
    unlike = {
        column: f"{ours.types.get(own[column], 'a computed value')} and {theirs.types[column]}"
        for column, pair in pairs.items()
        if not is_comparable(*pair) or (column in found_by and has_other_texts(*pair))
    }
    if found := [column for column in key if column in unlike]:
        raise UncomparableError(
            f"key column {found[0]} is {unlike[found[0]]}, whose values cannot be compared as texts. Give it the "
            "source's type in the target"
        )
    others = tuple(column for column in own if column not in key and column not in unlike)
    order, values = (key, others) if key else (others, ())
    same_kind = source.kind == target.kind
    kinds = {
        column: kind
        for column, name in own.items()
        if (kind := theirs.kinds.get(column)) is not None and ours.kinds.get(name) is kind
    }
    ranged = []
    for mine, other in zip(ours.key, theirs.key, strict=False):
        kind = kinds.get(other)
        is_ordered_alike = kind is KeyKind.INTEGER or (kind is KeyKind.UUID and same_kind)
        if own.get(other) != mine or not is_ordered_alike:
            break
        ranged.append(other)
    return ComparedColumns(
        own=own,
        order=order,
        values=values,
        forms=tuple(forms_of(*pairs[column], same_kind=same_kind) for column in (*order, *values)),
        ranged=tuple(ranged),
        natives=tuple(column in kinds for column in order),
        missing=tuple(column for column in ours.columns if column not in target_names),
        surplus=tuple(column for column in theirs.columns if column not in own),
        unlike=unlike,
        is_keyless=not key,
        has_other_texts=any(has_other_texts(*pairs[column]) for column in values),
    )


def _same_names(ours: Iterable[str], theirs: Iterable[str], *, is_caseless: bool) -> dict[str, str]:
    """The target's name of each column that both sides have → the source's, in the target's order.

    ``is_caseless``: the target's columns are found whatever the case of their names, as the sink finds them.
    """
    exact = set(ours)
    folded = {name.lower(): name for name in exact} if is_caseless else {}
    found = {column: column if column in exact else folded.get(column.lower()) for column in theirs}
    return {column: name for column, name in found.items() if name is not None}


def _shape(side: Side, table: str, role: str) -> ComparedShape:
    shape = side.shape(table)
    if shape is None:
        raise UncomparableError(
            f"table {table} does not exist in the {role} ({side.name}), or this user may not see it. Create it, or "
            "grant SELECT on it and USAGE on its schema"
        )
    return shape
