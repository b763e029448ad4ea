"""``headgate feed skip``: set aside single records that stop a table."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from headgate.cli.changes import ChangeOptions, permitted
from headgate.cli.lookup import find_feed
from headgate.cli.names import FeedName
from headgate.cli.options import ClusterOptions, connected
from headgate.cli.output import note
from headgate.cli.requests import OutcomeOptions, ask_while_paused, operation, show_settled
from headgate.cli.snapshots import read_snapshot
from headgate.cli.source_topics import positions_of
from headgate.config.feed import FeedSpec, SkippedRecord, parse_feed
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import FeedRecorded, OperationKind, SpanPlan
from headgate.records.places import LogPosition, PlaceError
from headgate.sources.skips import with_topic_ids

Places = Annotated[
    list[str], typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="records, as the table's error names them")
]


def skip(
    feed: FeedName,
    places: Places,
    *,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Set aside single records that stop a table, and resume the feed.

    The feed is paused, updated (option skip of its YAML) and resumed; a feed that was paused before stays paused. If a
    named record still cannot be applied, it goes to the deadletter topic with its bytes and the table continues behind
    it: see `headgate deadletter list FEED`. A record that can be applied is applied. Later changes of the same row are
    applied as well, so compare the row with its source afterwards. A record that the feed has read already is not
    read again, so naming it changes nothing: a warning shows where the feed is.

    Example: headgate feed skip shop shop.public.orders/0/4711
    """
    try:
        named = [SkippedRecord(record=str(LogPosition.parse(text))) for text in places]
    except PlaceError as error:
        raise typer.BadParameter(str(error), param_hint="TOPIC/PARTITION/OFFSET") from error
    with connected(cluster) as (_, log):
        snapshot = read_snapshot(log)
        record = find_feed(snapshot, feed)
        spec = _skipping(parse_feed(record.spec), named, record.spans)
        records = [each.record for each in named]
        read = dict(already_read(snapshot, feed, record, named))
        for place, position in read.items():
            note(
                f"warning: feed {feed} has read {place} already, so skipping it changes nothing. It continues at "
                f"offset {position} of that partition: is the offset right? To read a record again, see "
                "`headgate feed resume --help`"
            )
        facts = {"feed": feed, "operation": "skip", "records": records, "already_read": list(read)}
        permit = permitted(change, f"skip {', '.join(records)} of feed {feed}", outcome.output, facts)
        if permit is None:
            return
        update = operation(OperationKind.UPDATE_FEED, feed, spec=spec.to_json())
        settled = ask_while_paused(log, record, update, outcome.timeout, permit)
        show_settled(feed, facts, settled, outcome.output)


def already_read(
    snapshot: Snapshot, feed: str, record: FeedRecorded, named: Sequence[SkippedRecord]
) -> Iterator[tuple[str, int]]:
    """Those of ``named`` that every table of their topic has read, each with the offset at which the feed continues."""
    for each in named:
        topic, partition = each.place.topic, each.place.partition
        plans = [plan for plan in record.spans if plan.topic == topic and partition in plan.start]
        position = min((positions_of(snapshot, feed, record, plan)[partition] for plan in plans), default=0)
        if each.place.offset < position:
            yield each.record, position


def _skipping(spec: FeedSpec, named: Sequence[SkippedRecord], plans: Sequence[SpanPlan]) -> FeedSpec:
    """``spec`` with more records to skip, without those of topics that were re-created or left since.

    Raises FeedSpecError for a record that the feed does not read, before anything is changed.
    """
    ids = {plan.topic: plan.topic_id for plan in plans}
    kept = [
        each
        for each in spec.skip
        if each.place.topic in ids
        and (None in (each.topic_id, ids[each.place.topic]) or each.topic_id == ids[each.place.topic])
    ]
    more = [each for each in named if each.record not in {old.record for old in kept}]
    changed = spec.model_copy(update={"skip": (*kept, *more)})
    return parse_feed(with_topic_ids(changed, plans).to_json())
