"""A feed as its owner writes it: source topics, sink, and the few things that can be chosen.

The YAML (or the JSON on the changefeed topic) is checked here and nowhere else; an unknown option is refused with
the nearest known name.
"""

from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

__all__ = ["FeedSpec", "FeedSpecError", "SinkSpec", "SourceSpec", "load_feed", "parse_feed"]


class FeedSpecError(ValueError):
    """A feed description that cannot be used: names the option, what is wrong, and what is allowed."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _nearest_name(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for name in sorted(set(data) - set(cls.model_fields)):
            near = get_close_matches(str(name), list(cls.model_fields), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(cls.model_fields)}"
            raise ValueError(f"unknown option {name!r}{hint}")
        return data


class SourceSpec(_Strict):
    """Where changes come from. Either ``topics`` or ``topic_pattern`` (a full-match regular expression)."""

    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    format: Literal["debezium-json"] = "debezium-json"
    start: Literal["earliest", "latest"] = "earliest"
    unavailable_value: str = "__debezium_unavailable_value"

    @model_validator(mode="after")
    def _one_way_of_naming(self) -> "SourceSpec":
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("give either source.topics or source.topic_pattern")
        return self


class SinkSpec(_Strict):
    """Where changes go. ``dsn`` is libpq's; a password comes from ``password_file``, never from the log."""

    type: Literal["postgresql"]
    dsn: str
    password_file: Path | None = None
    table: str = "{schema}.{table}"
    """Target table; ``{schema}`` and ``{table}`` are the last two parts of the topic's name."""


class FeedSpec(_Strict):
    """A changefeed as its owner wants it."""

    feed: str
    source: SourceSpec
    sink: SinkSpec
    batch_rows_max: int = Field(default=200_000, ge=1, le=2_000_000)
    """Most changes of one micro-batch; large when behind is what makes reducing pay."""

    def to_json(self) -> str:
        """The spec as it stands on the changefeed topic."""
        return self.model_dump_json(exclude_defaults=True)


def parse_feed(text: str) -> FeedSpec:
    """A feed from YAML or JSON text; FeedSpecError says what is wrong."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FeedSpecError(f"not YAML: {error}") from error
    if not isinstance(data, dict):
        raise FeedSpecError("a feed is a mapping with the options feed, source and sink")
    try:
        return FeedSpec.model_validate(data)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'feed'}: {e['msg']}" for e in error.errors()]
        raise FeedSpecError("; ".join(lines)) from error


def load_feed(path: Path) -> FeedSpec:
    """A feed from a file; FeedSpecError names the file."""
    try:
        return parse_feed(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FeedSpecError(f"{path}: {error.strerror}") from error
    except FeedSpecError as error:
        raise FeedSpecError(f"{path}: {error}") from error
