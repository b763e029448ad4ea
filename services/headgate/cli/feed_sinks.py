"""Whether a feed's sink can do what a command asks for."""

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import FeedRecorded
from headgate.records.keys import FeedKey

__all__ = ["check_sink_takes"]


def check_sink_takes(snapshot: Snapshot, feed: str, option: str, otherwise: str) -> None:
    """Raise CommandError if sinks of the feed's type do not take ``option``. The owner refuses a feed that is unknown.

    ``otherwise``: the error, with {feed} and {type} of the sink.
    """
    from headgate.config.feed import parse_feed  # noqa: PLC0415 - `table list` must not wait for its imports

    record = snapshot.get(FeedKey(feed), FeedRecorded)
    if record is None:
        return
    sink = parse_feed(record.spec).sink
    try:
        sink.check_takes(option, f"sink.{option}")
    except ValueError as error:
        raise CommandError(ExitCode.REQUEST_REFUSED, otherwise.format(feed=repr(feed), type=sink.type)) from error
