"""CloudEvents 1.0 around flat records, in the binary mode of its Kafka binding: attributes are headers.

Source and id name an event: by the feed, and by the place of the change in the source topic. So a change that is read
again, by another process or after ``headgate feed resume --from``, has the same id. A record of the source topic may
have several changes (Canal's rows of a statement, Maxwell's change of a key), so the later ones are numbered.
"""

from typing import Final
from urllib.parse import quote

from headgate.eventlog.headers import TYPE_PREFIX, binary_headers, time_text
from headgate.formats.change import Change, Operation
from headgate.sinks.contract import Claim

__all__ = ["Attributes", "Headers"]

Headers = dict[str, bytes]

CONTENT_TYPE: Final = {"content-type": b"application/json"}


class Attributes:
    """The attributes of a claim's changes. What all changes have in common is encoded once."""

    def __init__(self, claim: Claim) -> None:
        identity = claim.identity
        source = f"/headgate/{quote(identity.cluster_id.removesuffix('.'))}/{quote(identity.feed)}"
        self._fixed = {
            operation: dict(binary_headers({"source": source, "type": f"{TYPE_PREFIX}{operation.value}"}, None))
            for operation in Operation
        }
        self._topic = claim.topic.encode()

    def of(self, change: Change, key: bytes, number: int = 0) -> Headers:
        """The headers of a record whose key is ``key``. A deletion has no data, so no type of data either.

        ``number``: how many changes of the source topic's record are before this one.
        """
        id_ = b"%b/%d/%d" % (self._topic, change.partition, change.offset)
        headers = {
            **self._fixed[change.operation],
            "ce_id": b"%b/%d" % (id_, number) if number else id_,
            "ce_subject": key,
        }
        if change.source_ms is not None:
            headers["ce_time"] = time_text(change.source_ms).encode()
        return headers if change.row is None else headers | CONTENT_TYPE
