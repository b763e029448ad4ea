"""Whether a table's rows are copied from the source's database when it joins a feed, and how (docs/adr/0116)."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from headgate.config.strict import Strict

__all__ = ["SnapshotOptions"]

_OF_INITIAL: Final = ("max_rows_per_second", "existing_rows")


class SnapshotOptions(Strict):
    """A feed's or a table's ``snapshot``. In a feed's file, a mode alone stands for ``{mode: …}``.

    ``initial``: the table starts at the end of its topic, and all of its rows are copied. ``never``: rows come from the
    topic only. ``existing_rows``: what happens to rows that the target table has before: the feed is refused, they are
    kept, or those that the source does not have are deleted.
    """

    mode: Literal["never", "initial"] = "never"
    max_rows_per_second: Annotated[int, Field(ge=1)] | None = None
    """Of each table."""
    existing_rows: Literal["refuse", "keep", "delete"] = "refuse"

    @model_validator(mode="before")
    @classmethod
    def _mode_alone(cls, given: Any) -> Any:
        return {"mode": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _of_a_copy(self) -> "SnapshotOptions":
        for option in _OF_INITIAL:
            if not self.is_initial and option in self.model_fields_set:
                raise ValueError(f"{option} needs mode: initial, because nothing is copied without it")
        return self

    @property
    def is_initial(self) -> bool:
        """Whether rows are copied."""
        return self.mode == "initial"
