"""Names as Debezium writes them in a topic's name: an underscore for each character that Kafka does not allow."""

import re
from typing import Final

__all__ = ["topic_part"]

_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]")


def topic_part(name: str) -> str:
    """A schema's or a table's name, or several names separated by dots, as it is in the topic's name."""
    return _NOT_IN_TOPICS.sub("_", name)
