"""Options that shape a table's columns on their way to the sink: which ones go there, under which names, masked or not.

Columns are named as the source names them. What the options do to a change is in formats/shaping.py.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, StrictBool, StrictInt, StrictStr, field_validator, model_validator

from headgate.config.expressions import Computed, columns_of, parse_expression
from headgate.config.strict import Strict
from headgate.records.name_lists import shown_names

__all__ = ["KEPT_CHARACTERS_MAX", "ColumnOptions", "Mask"]

KEPT_CHARACTERS_MAX: Final = 64
"""Of ``keep_last``. A mask that keeps more of a text hides nothing that people would recognise it by."""

_FORMS: Final = "null, {constant: …}, {sha256: FILE} or {keep_last: N}"


class Mask(Strict):
    """What replaces a column's values: exactly one of these. In a feed's file, ``null`` stands for ``{null: true}``."""

    null: StrictBool = False
    constant: StrictStr | StrictInt | StrictBool | None = None
    """Also in the place of NULL."""
    sha256: Path | None = None
    """A file in the folder for secrets: its text, the salt, is put before the value's before both are hashed."""
    keep_last: Annotated[int, Field(ge=1, le=KEPT_CHARACTERS_MAX)] | None = None
    """So many characters of a text are kept, and the others become ``*``; all of them in one that is not longer."""

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, data: Any) -> Any:
        if data is None or data == "null":
            return {"null": True}
        if not isinstance(data, dict | Mask):
            raise ValueError(f"{data!r} is not a mask. Write {_FORMS}")  # noqa: TRY004 - pydantic reports ValueError
        return data

    @model_validator(mode="after")
    def _exactly_one(self) -> "Mask":
        given = [self.null, self.constant is not None, self.sha256 is not None, self.keep_last is not None]
        if given.count(True) != 1:
            raise ValueError(f"a mask has exactly one form. Write {_FORMS}")
        return self

    @property
    def needs_text(self) -> bool:
        """Whether it is computed from a value, which must then be a text (or, for a hash, an integer)."""
        return self.sha256 is not None or self.keep_last is not None


class ColumnOptions(Strict):
    """How the columns of a table are shaped. Without any of them the sink's table has the source's columns."""

    include: tuple[str, ...] | None = None
    """The only columns that go to the sink."""
    exclude: tuple[str, ...] | None = None
    """Columns that do not go to the sink."""
    rename: dict[str, str] = Field(default_factory=dict)
    """Source column → its name at the sink."""
    mask: dict[str, Mask] = Field(default_factory=dict)
    """Source column → what its values become."""
    set: dict[str, Computed] = Field(default_factory=dict)
    """Column at the sink → the expression of the source's columns that it is computed by.

    A column of the source with that name is replaced, if the expression names it."""

    @field_validator("include", "exclude")
    @classmethod
    def _listed(cls, given: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if given is None:
            return None
        if not given:
            raise ValueError("the list is empty. Name at least one column, or remove the option")
        twice = [name for name, times in Counter(given).items() if times > 1]
        if twice:
            raise ValueError(f"it names {shown_names(twice)} more than once")
        if "" in given:
            raise ValueError("a column's name cannot be empty")
        return given

    @field_validator("rename", "mask", "set")
    @classmethod
    def _mapped(cls, given: dict[str, Any]) -> dict[str, Any]:
        if "" in given or "" in given.values():
            raise ValueError("a column's name cannot be empty")
        return given

    @model_validator(mode="after")
    def _fit_together(self) -> "ColumnOptions":
        if self.include is not None and self.exclude is not None:
            both = [name for name in self.include if name in self.exclude]
            named = f" (both name {shown_names(both)})" if both else ""
            raise ValueError(f"include and exclude cannot be used together{named}. Remove one of them")
        self._check_computed()
        for option, names in (("rename", self.rename), ("mask", self.mask)):
            gone = [name for name in names if not self.goes(name)]
            if gone:
                raise ValueError(
                    f"{option} names {shown_names(gone)}, which does not go to the sink. Remove it there, or let the "
                    "column go to the sink"
                )
        known = set(self.include or ()) | set(self.rename) | set(self.mask)
        clash = self.clash(known)
        if clash is not None:
            raise ValueError(clash)
        return self

    def _check_computed(self) -> None:
        masked = [name for name in self.set if name in self.mask and name not in self.rename]
        if masked:
            raise ValueError(f"set and mask both replace {shown_names(masked)}. Remove it from one of them")
        twice = [name for name in self.set if name in self.rename.values()]
        if twice:
            raise ValueError(f"set and rename both make a column {shown_names(twice)}. Give one of them another name")
        taken = [name for name in self.include or () if self._is_replaced(name) and not self.computes_from_itself(name)]
        if taken:
            raise ValueError(self.taken(taken[0]))

    def _is_replaced(self, column: str) -> bool:
        """Whether a column of the source has the name of a computed one."""
        return column in self.set and column not in self.rename

    def computes_from_itself(self, name: str) -> bool:
        """Whether the expression of a computed column names a column of that name."""
        return name in columns_of(parse_expression(self.set[name]))

    def taken(self, name: str) -> str:
        """Why a computed column cannot have the name of a column that the source has."""
        return (
            f"set makes a column {name}, and the source's table has a column of that name, which the expression does "
            f"not use. Give the new column another name, or exclude {name} (columns.exclude)"
        )

    @property
    def guarded(self) -> tuple[str, ...]:
        """Computed columns whose names the source's table must not have."""
        gone = {*(self.exclude or ()), *self.rename}
        if self.include is not None:
            return ()
        return tuple(name for name in self.set if name not in gone and not self.computes_from_itself(name))

    @property
    def shapes(self) -> bool:
        """Whether anything is changed."""
        return self.include is not None or self.exclude is not None or bool(self.rename or self.mask or self.set)

    @property
    def hides(self) -> bool:
        """Whether the sink must not get all values of the source."""
        replaces = any(self._is_replaced(name) and self.computes_from_itself(name) for name in self.set)
        return self.include is not None or self.exclude is not None or bool(self.mask) or replaces

    @property
    def named(self) -> frozenset[str]:
        """Every column of the source that an option names."""
        return frozenset({*(self.include or ()), *(self.exclude or ()), *self.rename, *self.mask})

    @property
    def salt_files(self) -> tuple[Path, ...]:
        """Files that masks name."""
        return tuple(dict.fromkeys(mask.sha256 for mask in self.mask.values() if mask.sha256 is not None))

    def is_untouched(self, name: str) -> bool:
        """Whether a source column goes to the sink under its own name, and with its own values."""
        return self.goes(name) and self.target(name) == name and name not in self.mask and name not in self.set

    def goes(self, column: str) -> bool:
        """Whether a column of the source goes to the sink, masked or not, and not replaced by a computed one."""
        if self._is_replaced(column):
            return False
        return column in self.include if self.include is not None else column not in (self.exclude or ())

    def target(self, column: str) -> str:
        """The name at the sink of a column that goes there."""
        return self.rename.get(column, column)

    def source(self, target: str) -> str:
        """The column of the source that has the name ``target`` at the sink."""
        return next((column for column, name in self.rename.items() if name == target), target)

    def clash(self, columns: Iterable[str]) -> str | None:
        """Why these columns of the source cannot go to one table, None if they can."""
        found: dict[str, str] = {}
        for column in sorted(filter(self.goes, columns)):
            other = found.setdefault(self.target(column), column)
            if other != column:
                return (
                    f"columns {other} and {column} both become {self.target(column)} at the sink. Rename one of them "
                    "to another name, or exclude it"
                )
        return None

    def hidden_key(self, key: Iterable[str]) -> str | None:
        """Why these columns of a key cannot be shaped like that, None if they can."""
        for column in key:
            if not self.goes(column) or column in self.mask:
                how = "excluded" if self.include is None else "not included"
                how = "masked" if column in self.mask else "computed" if self._is_replaced(column) else how
                return (
                    f"column {column} is part of the key and is {how}. Rows are found by their key at the sink, so "
                    "key columns must go there as they are"
                )
        return None
