"""Parts of a world as numbers: what a process knows, frozen, so that a state of the world is a handful of integers.

Most steps of a world change one of its parts and leave the others as they are, and most pairs of a part and an input
come up in thousands of worlds. So a part is kept once, under a number found by the digest of what it holds (in
canonical order, whatever order it was built in), and taken out as a copy that may be changed.
"""

import pickle
from collections import deque
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any, Final, Generic, TypeVar

import msgspec

from headgate.coordinator.core.ranking import Ranking

PartT = TypeVar("PartT")

_ATOMS: Final = frozenset((int, str, bool, float, bytes, type(None)))

_NAMES: Final[dict[tuple[type, frozenset[str]], list[str]]] = {}
"""Of each kind with declared attributes: those that count. Nearly half of a search's time is spent in ``freeze``."""


def freeze(value: Any, without: frozenset[str] = frozenset()) -> Any:
    """``value`` as nested tuples, equal for equal contents; attributes named in ``without`` are left out."""
    kind = type(value)
    if kind in _ATOMS or isinstance(value, Enum):
        return value
    if kind is dict:
        return tuple([(freeze(key), freeze(item, without)) for key, item in sorted(value.items(), key=_first)])
    if kind in (tuple, list, deque):
        return tuple([item if type(item) in _ATOMS else freeze(item, without) for item in value])
    if kind in (set, frozenset):
        return tuple([freeze(item) for item in sorted(value)])
    if isinstance(value, Ranking):
        return tuple(sorted([(freeze(value.rank(member)), freeze(member)) for member in value.in_order()]))
    items = [getattr(value, name) for name in _names(value, without)]
    return (kind.__name__, *[item if type(item) in _ATOMS else freeze(item, without) for item in items])


def _names(value: Any, without: frozenset[str]) -> list[str]:
    known = _NAMES.get((type(value), without))
    if known is not None:
        return known
    is_declared = True
    if isinstance(value, msgspec.Struct):
        names: Any = value.__struct_fields__
    elif is_dataclass(value):
        names = [field.name for field in fields(value)]
    else:
        names, is_declared = sorted(vars(value)), False
    counting = [name for name in names if name not in without]
    if is_declared:
        _NAMES[type(value), without] = counting
    return counting


def _first(item: tuple[Any, Any]) -> Any:
    return item[0]


class Numbers:
    """Hashable values and their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.values: list[Any] = []

    def of(self, value: Any) -> int:
        """The value's number; ``values[number]`` is the value."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class Pool(Generic[PartT]):
    """Parts of one kind and their numbers."""

    def __init__(self, without: frozenset[str]) -> None:
        """``without`` names attributes without meaning: counters of work done, links to surroundings, what follows."""
        self._without = without
        self._numbers: dict[bytes, int] = {}
        self._frozen: list[bytes] = []

    def __len__(self) -> int:
        return len(self._frozen)

    def keep(self, part: PartT) -> int:
        """The number of what ``part`` holds now."""
        digest = blake2b(repr(freeze(part, self._without)).encode(), digest_size=16).digest()
        number = self._numbers.setdefault(digest, len(self._frozen))
        if number == len(self._frozen):
            self._frozen.append(pickle.dumps(part, pickle.HIGHEST_PROTOCOL))
        return number

    def copy(self, number: int) -> PartT:
        """A copy of the part, to be changed and kept again."""
        part: PartT = pickle.loads(self._frozen[number])  # noqa: S301 - written by ``keep`` a moment ago
        return part
