"""CloudEvents 1.0 around flat records, in the binary mode of its Kafka binding: attributes are headers.

Source and id name an event: by the feed, and by the place of the change in the source topic. So a change that is read
again, by another process or after ``headgate feed resume --from``, has the same id.
"""

from typing import Final
from urllib.parse import quote

from headgate.eventlog.headers import TYPE_PREFIX, Header, binary_headers
from headgate.formats.change import Change
from headgate.sinks.contract import Claim

__all__ = ["Attributes", "Headers"]

Headers = list[Header]

JSON: Final = "application/json"


class Attributes:
    """The attributes of a claim's changes."""

    def __init__(self, claim: Claim) -> None:
        identity = claim.identity
        self._source = f"/headgate/{quote(identity.cluster_id.removesuffix('.'))}/{quote(identity.feed)}"
        self._topic = claim.topic

    def of(self, change: Change, key: bytes) -> Headers:
        """The headers of a record whose key is ``key``. A deletion has no data, so no type of data either."""
        attributes = {
            "id": f"{self._topic}/{change.partition}/{change.offset}",
            "source": self._source,
            "type": f"{TYPE_PREFIX}{change.operation.value}",
            "subject": key.decode(),
        }
        headers = binary_headers(attributes, change.source_ms)
        return headers if change.row is None else [*headers, ("content-type", JSON.encode())]
