"""``headgate deadletter``: list dead letters, show their bytes, replay and purge them."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.ages import age
from headgate.cli.changes import Destruction, Permit, agreed
from headgate.cli.deadletter_choice import (
    Code,
    Place,
    Places,
    Table,
    Topic,
    chosen_of,
    is_chosen,
    one_letter,
    read_letters,
)
from headgate.cli.deadletter_purge import purge
from headgate.cli.groups import HelpfulGroup
from headgate.cli.lookup import find_feed, place_of
from headgate.cli.names import FeedName, complete_feeds
from headgate.cli.options import ClusterOptions, CommandGroup, Format, connected
from headgate.cli.output import Output, note, show_object, show_rows
from headgate.cli.snapshots import read_snapshot
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.snapshot import all_partitions
from headgate.generation.changelog.shell.feeds import FeedChangeLogs
from headgate.generation.changelog.shell.wire import WRITER
from headgate.records.control import WITHHELD_HEADER, ChangeQuarantined, FeedRecorded
from headgate.records.keys import DeadLetterKey
from headgate.records.name_lists import number_of
from headgate.records.stored_names import table_today
from headgate.replication.feed_parts import FeedParts
from headgate.sources.resend import Original, Verdict, look, resend, why_not_alone
from headgate.sources.topics import source_tables


class _Order(HelpfulGroup):
    order = (
        "list",
        "show",
        "replay",
        "purge",
    )


app = CommandGroup(cls=_Order, help="Inspect, replay and purge changes that were set aside.", no_args_is_help=True)

VALUE_SHOWN_MAX: Final = 80
"""Characters of a reason in a table; show has all of it."""

app.command("purge")(purge)


@app.command("list")
def list_letters(
    feed: Annotated[
        str | None, typer.Argument(metavar="FEED", help="default all feeds", autocompletion=complete_feeds)
    ] = None,
    *,
    table: Table = None,
    topic: Topic = None,
    code: Code = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """List changes that were set aside, oldest first within a table.

    A change that was set aside twice is listed once.

    Example: headgate deadletter list shop
    """
    with connected(cluster) as (_, log):
        letters = read_letters(log, feed)
        if feed is not None and not letters:
            find_feed(read_snapshot(log, all_partitions(log, ("changefeed",))), feed)
    now_ms = wall_ms()
    rows = [
        {
            "feed": key.feed,
            "table": key.table,
            "place": place_of(key),
            "code": letter.error_code,
            "since": age(now_ms, letter.quarantined_ms),
            "reason": letter.error if output is not Output.TABLE else letter.error[:VALUE_SHOWN_MAX],
            "feed_id": letter.feed_id,
            "epoch": str(letter.epoch),
            "key": _decoded(letter.key),
            "bytes": len(letter.value or b""),
            "append_ms": letter.append_ms,
            "quarantined_ms": letter.quarantined_ms,
        }
        for key, letter in sorted(letters.items())
        if is_chosen(key, letter, table, topic, code)
    ]
    show_rows(("feed", "table", "place", "code", "since", "reason"), rows, output)


@app.command()
def show(
    feed: FeedName,
    place: Place,
    *,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Show one change: why it was set aside, its content, and its raw bytes.

    Bytes that are not text are shown in hex.

    Example: headgate deadletter show shop shop.public.orders/0/4711
    """
    with connected(cluster) as (_, log):
        key, letter = one_letter(read_letters(log, feed), feed, place)
    facts: dict[str, Any] = {
        "feed": key.feed,
        "feed_id": letter.feed_id,
        "table": key.table,
        "topic": key.source_topic,
        "partition": key.partition,
        "offset": key.offset,
        "code": letter.error_code,
        "reason": letter.error,
        "epoch": str(letter.epoch),
        "topic_id": letter.topic_id,
        "incarnation": letter.incarnation,
        "append_ms": letter.append_ms,
        "quarantined_ms": letter.quarantined_ms,
        "key": _decoded(letter.key),
        "value": _decoded(letter.value),
        "key_bytes": _text(letter.key),
        "value_bytes": _text(letter.value),
        "headers": [{"name": header.name, "bytes": _text(header.value)} for header in letter.headers],
    }
    show_object(facts, output)


@app.command()
def replay(
    feed: FeedName,
    places: Places = None,
    *,
    table: Table = None,
    topic: Topic = None,
    code: Code = None,
    change: Destruction,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Send changes to the end of their source partitions again, where every reader of the topics sees them.

    --dry-run lists which changes can be replayed. A change is refused if it would undo a later change of its row, or if
    that cannot be ruled out: it has no key, has several rows or cannot be read, its topic was re-created, the feed was
    rewound since, or the topic belongs to a change log. Exit 0 only if no change that was asked for is refused.

    Example: headgate deadletter replay shop shop.public.orders/0/4711 --dry-run
    """
    with connected(cluster) as (_, log):
        record = find_feed(read_snapshot(log, all_partitions(log, ("changefeed",))), feed)
        letters = chosen_of(read_letters(log, feed), feed, places, table=table, topic=topic, code=code)
        in_order = sorted(letters.items(), key=_by_log)
        replaying = _Replaying(log, record, FeedParts(record.spec), FeedChangeLogs(log).names_by_topic())
        judged = [_judged(replaying, key, letter) for key, letter in in_order]
        free = sum(found.verdict is Verdict.FREE for _, found in judged)
        permit = (
            agreed(change, f"send {number_of(free, 'change')} of feed {feed} to their source topics again")
            if free
            else None
        )
        if permit is not None:
            judged = [(original, _sent(log, original, found, permit)) for original, found in judged]
    rows = [_row(key, found) for (key, _), (_, found) in zip(in_order, judged, strict=True)]
    show_rows(("table", "place", "verdict", "detail"), rows, output)
    if change.dry_run and free:
        note(f"would send {number_of(free, 'change')}; nothing was sent")
    refused = sum(row["verdict"] in (Verdict.TOUCHED, Verdict.UNKNOWN) for row in rows)
    if refused:
        raise CommandError(
            ExitCode.REQUEST_REFUSED,
            f"{refused} of {len(rows)} changes cannot be replayed; the list above has the reasons",
        )


class _Replaying(NamedTuple):
    """What a change is compared with. ``change_logs``: topic → name of each change log."""

    log: KafkaLog
    feed: FeedRecorded
    parts: FeedParts
    change_logs: Mapping[str, str]


class _Found(NamedTuple):
    """What is known of one change. ``end``: up to which offset its topic was read. ``sent_as``: its new offset."""

    verdict: Verdict
    detail: str
    end: int = 0
    sent_as: int | None = None


def _judged(replaying: _Replaying, key: DeadLetterKey, letter: ChangeQuarantined) -> tuple[Original, _Found]:
    headers = tuple((header.name, header.value) for header in letter.headers)
    original = Original(key.source_topic, key.partition, key.offset, letter.key, letter.value, headers, letter.topic_id)
    reason = _why_not_of(replaying, letter) or why_not_alone(
        _parts_of(replaying.parts, key).decoder(key.source_topic, topic_id=letter.topic_id), original
    )
    if reason is not None:
        return original, _Found(Verdict.UNKNOWN, reason)
    found = look(replaying.log.connection, original, replaying.change_logs)
    return original, _Found(found.verdict, found.detail, found.end)


def _parts_of(parts: FeedParts, key: DeadLetterKey) -> FeedParts:
    """Those of the letter's table, whose options may differ from the feed's."""
    return parts.of_table(key.source_topic, source_tables(parts.spec).get(table_today(parts.spec.to_json(), key.table)))


def _sent(log: KafkaLog, original: Original, found: _Found, _permit: Permit) -> _Found:
    """Send a change that is free. It is searched again: another one may have been sent since."""
    if found.verdict is not Verdict.FREE:
        return found
    offset = resend(log.connection, original, found.end)
    return _Found(Verdict.RESENT, f"sent, as offset {offset}", found.end, offset)


def _row(key: DeadLetterKey, found: _Found) -> dict[str, Any]:
    return {
        "table": key.table,
        "place": place_of(key),
        "sent_as": found.sent_as,
        "verdict": found.verdict.value,
        "detail": found.detail,
    }


def _why_not_of(replaying: _Replaying, letter: ChangeQuarantined) -> str | None:
    """Why a change is not this feed's to replay, whatever its topic holds. None if it is."""
    feed = replaying.feed
    if letter.feed_id != feed.feed_id:
        return f"it belongs to an earlier feed of that name ({letter.feed_id}; this one is {feed.feed_id})"
    if letter.incarnation != feed.incarnation:
        return (
            f"the feed was rewound since: the change was set aside in incarnation {letter.incarnation}, this is "
            f"incarnation {feed.incarnation}, which has read the change again or skipped it on purpose"
        )
    if any(header.name == WITHHELD_HEADER for header in letter.headers):
        return (
            "its content was not kept, because the feed excludes or masks columns of the table. Write the row at the "
            "source again"
        )
    if replaying.parts.spec.source.change_log is not None or any(header.name == WRITER for header in letter.headers):
        return "it belongs to a change log, which only a ChangeWriter may write. Write the row at the source again"
    return None


def _by_log(item: tuple[DeadLetterKey, ChangeQuarantined]) -> tuple[Any, ...]:
    """In the order of the log: of two changes of one row the older one is refused, the newer one sent."""
    key = item[0]
    return key.source_topic, key.partition, key.offset


def _text(data: bytes | None) -> Any:
    """Bytes as they were: as text, or in hex where they are none."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}
    return text if all(sign.isprintable() or sign in "\n\t\r" for sign in text) else {"hex": data.hex()}


def _decoded(data: bytes | None) -> Any:
    """The decoded bytes, if they are JSON."""
    try:
        return json.loads(data or b"null")
    except (ValueError, RecursionError):
        return None
