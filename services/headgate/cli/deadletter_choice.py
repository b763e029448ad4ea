"""Which dead letters a command means: its options, and reading them."""

from typing import Annotated

import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.lookup import place_of
from headgate.cli.names import (
    complete_codes_set_aside,
    complete_places,
    complete_tables,
    complete_topics_set_aside,
)
from headgate.cli.snapshots import read_snapshot
from headgate.eventlog.log import Log, Partition
from headgate.eventlog.sharding import DEADLETTER, shard_of
from headgate.records.control import ChangeQuarantined
from headgate.records.keys import DeadLetterKey

Place = Annotated[
    str,
    typer.Argument(metavar="PLACE", help="topic/partition/offset, as `list` shows it", autocompletion=complete_places),
]
Places = Annotated[
    list[str] | None,
    typer.Argument(metavar="PLACE", help="topic/partition/offset; default all", autocompletion=complete_places),
]
Table = Annotated[str | None, typer.Option("--table", help="only this sink table", autocompletion=complete_tables)]
Topic = Annotated[
    str | None, typer.Option("--topic", help="only this source topic", autocompletion=complete_topics_set_aside)
]
Code = Annotated[
    str | None,
    typer.Option(
        "--code", help="only this error code, see docs/error-codes.md", autocompletion=complete_codes_set_aside
    ),
]

Letters = dict[DeadLetterKey, ChangeQuarantined]


def read_letters(log: Log, feed: str | None) -> Letters:
    """The dead letters of a feed, or of all feeds. Raises LogError."""
    shards = range(log.shards) if feed is None else [shard_of(feed, log.shards)]
    snapshot = read_snapshot(log, [Partition(DEADLETTER, shard) for shard in shards])
    letters = snapshot.each(DeadLetterKey, ChangeQuarantined)
    return {key: letter for key, letter in letters if feed in (None, key.feed)}


def is_chosen(
    key: DeadLetterKey, letter: ChangeQuarantined, table: str | None, topic: str | None, code: str | None
) -> bool:
    """Whether the options choose a dead letter."""
    return table in (None, key.table) and topic in (None, key.source_topic) and code in (None, letter.error_code)


def chosen_of(
    letters: Letters, feed: str, places: list[str] | None, *, table: str | None, topic: str | None, code: str | None
) -> Letters:
    """The dead letters of a feed that places and options choose. Raises CommandError for a place that has none."""
    chosen = {key: letter for key, letter in letters.items() if is_chosen(key, letter, table, topic, code)}
    return dict(one_letter(chosen, feed, place) for place in places) if places else chosen


def one_letter(letters: Letters, feed: str, place: str) -> tuple[DeadLetterKey, ChangeQuarantined]:
    """The dead letter at ``place``. Raises CommandError if it does not exist."""
    found = [(key, letter) for key, letter in sorted(letters.items()) if place_of(key) == place]
    if not found:
        raise CommandError(
            ExitCode.NOT_FOUND,
            f"feed {feed} has set nothing aside at {place!r}; write topic/partition/offset as in "
            f"`headgate deadletter list {feed}`",
        )
    return found[0]
