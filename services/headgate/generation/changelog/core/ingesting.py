"""What a service that copies keyed topics into a change log has to know of them: whose writer, and what it refuses.

A partition of an input topic is one source, so it is one writer of the change log, whichever process reads it.
"""

from headgate.records.places import LogPosition


def writer_of(name: str, topic: str, partition: int, topic_id: str | None) -> str:
    """The id of the writer of one input partition. A topic that was deleted and made again is another source."""
    return ".".join((name, topic, str(partition), topic_id or "unknown"))


def keyless(place: LogPosition) -> str:
    """The error message for a record without a key."""
    return (
        f"topic {place.topic}, partition {place.partition}, offset {place.offset}: the record has no key, so no order "
        f"can be kept for it; nothing behind it was written. Let its producer give a key; to leave this record out, "
        f"start with --skip {place}"
    )
