"""How topics are created that a feed writes to and that do not exist."""

from typing import Annotated

from pydantic import Field, field_validator

from headgate.config.strict import Strict

__all__ = ["TopicOptions"]


class TopicOptions(Strict):
    """A feed's ``sink.topic``. What is left out: the source topic's partitions, and else what the brokers have."""

    partitions: Annotated[int, Field(ge=1)] | None = None
    replication_factor: Annotated[int, Field(ge=1, le=32_767)] | None = None
    config: dict[str, str] = Field(default_factory=dict)
    """Kafka's settings of topics by their own names, such as ``retention.ms``."""

    @field_validator("config", mode="before")
    @classmethod
    def _as_texts(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        return {str(name): _text(str(name), value) for name, value in given.items()}


def _text(name: str, value: object) -> str:
    """A setting as Kafka takes it. Raises ValueError."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"{name} must be a text, a number, true or false")
