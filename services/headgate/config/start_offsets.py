"""Offsets that a person gives as a feed's start: ``source.start_offsets`` and the file of ``feed resume --from``.

An offset means something only in the topic that it was read from. A topic that is deleted and re-created keeps its name
but gets another id and other records, so the id can be given beside the offsets. It is compared before they are used
(sources/topic_ids.py).
"""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_serializer, model_validator

from headgate.config.wording import explained

Offset = Annotated[int, Field(ge=0)]

_NAMES: Final = frozenset({"topic_id", "offsets"})


class StartOffsetsError(ValueError):
    """Start offsets that cannot be read: names the topic and what is wrong."""


class StartOffsets(BaseModel):
    """Partition → first offset to apply, and optionally Kafka's id of the topic that these offsets belong to.

    Written as ``{0: 17}``, or with the id as ``{topic_id: 3fYk…, offsets: {0: 17}}``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    offsets: dict[Offset, Offset]
    topic_id: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_id(cls, given: Any) -> Any:
        return {"offsets": given} if isinstance(given, dict) and not _NAMES & given.keys() else given

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        """Plain offsets stay plain: an update compares texts, and versions before the id read them."""
        plain = {str(partition): offset for partition, offset in sorted(self.offsets.items())}
        return plain if self.topic_id is None else {"topic_id": self.topic_id, "offsets": plain}


_BY_TOPIC: Final = TypeAdapter(dict[str, StartOffsets])


def parse_start_offsets(data: bytes | str) -> dict[str, StartOffsets]:
    """Topic → start offsets, from JSON. Raises StartOffsetsError."""
    try:
        return _BY_TOPIC.validate_json(data)
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'offsets'}: {explained(e)}" for e in error.errors())
        raise StartOffsetsError(said) from error


def as_json(starts: dict[str, StartOffsets]) -> str:
    """What ``parse_start_offsets`` reads."""
    return _BY_TOPIC.dump_json(starts).decode()
