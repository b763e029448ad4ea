"""Which feeds have tables that ``headgate table optimize`` can maintain."""

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import FeedRecorded
from headgate.records.keys import FeedKey

__all__ = ["check_is_lake"]


def check_is_lake(snapshot: Snapshot, feed: str) -> None:
    """Raise CommandError if the feed's sink is not a lake. A feed that does not exist is refused elsewhere."""
    from headgate.config.feed import parse_feed  # noqa: PLC0415 - `table list` must not wait for its imports

    record = snapshot.get(FeedKey(feed), FeedRecorded)
    if record is None:
        return
    sink = parse_feed(record.spec).sink
    try:
        sink.check_takes("maintenance", "table optimize")
    except ValueError as error:
        text = f"tables of feed {feed!r} have no files to compact: sinks of type {sink.type} are not lakes"
        raise CommandError(ExitCode.REQUEST_REFUSED, text) from error
