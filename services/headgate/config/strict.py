"""Options that people write: an unknown one is refused."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from headgate.config.wording import unknown_option

__all__ = ["Strict"]


class Strict(BaseModel):
    """Options that people write. An unknown one is refused with the nearest known name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _nearest_name(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for name in sorted(set(data) - set(cls.model_fields)):
            raise ValueError(unknown_option(name, cls.model_fields))
        return data
