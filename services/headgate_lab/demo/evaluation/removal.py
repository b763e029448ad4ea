"""What an evaluation leaves behind, and how to remove it."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.source import Capture, Mysql, Postgres
from headgate.databases.address import Target
from headgate.databases.postgresql.errors import PostgresError, message
from headgate.databases.postgresql.session import PostgresSession, open_connection
from headgate.databases.postgresql.sql import quoted

__all__ = ["leftovers", "present", "remove"]

_LOCK_SECONDS: Final = 10
"""For the session of a connector that is just ending to let go of its slot."""


def leftovers(captured: Capture, to: Capture, *, publication: str, slot: str) -> list[str]:
    """Lines for people: statements that remove what stays in the two databases."""
    lines = []
    if isinstance(captured, Postgres):
        lines += [
            "at the source, where the replication slot keeps WAL until it is dropped:",
            f"  {_drop_slot(slot)}",
            f"  {_drop_publication(publication)}",
        ]
    what = "DROP DATABASE headgate;" if isinstance(to, Mysql) else "DROP SCHEMA headgate CASCADE;"
    return [*lines, "at the sink, where Headgate keeps the positions of its feeds:", f"  {what}"]


def _drop_slot(slot: str) -> str:
    return f"SELECT pg_drop_replication_slot('{slot}');"


def _drop_publication(publication: str) -> str:
    return f"DROP PUBLICATION IF EXISTS {quoted(publication)};"


def present(captured: Capture, folder: Path, *, publication: str, slot: str) -> list[str]:
    """What there is to remove, in words."""
    found = [str(folder)] if folder.exists() else []
    if isinstance(captured, Postgres):
        found += [f"replication slot {slot}"] if slot in {each.name for each in captured.facts.slots} else []
        published = {each.name for each in captured.facts.publications}
        found += [f"publication {publication}"] if publication in published else []
    return found


def remove(captured: Capture, source: Target, folder: Path, *, publication: str, slot: str) -> Sequence[str]:
    """Drop slot and publication, and remove the folder; what was done, a line each. Raises CommandError.

    The connector's user may drop the slot, but not a publication that an administrator has created.
    """
    done: list[str] = []
    if isinstance(captured, Postgres):
        with closing(
            PostgresSession(open_connection(source, application_name="headgate up", lock_seconds=_LOCK_SECONDS))
        ) as session:
            done += _dropped(session, captured, publication=publication, slot=slot)
    if folder.exists():
        shutil.rmtree(folder)
        done.append(f"removed {folder}")
    return done


def _dropped(session: PostgresSession, captured: Postgres, *, publication: str, slot: str) -> Iterator[str]:
    if slot in {each.name for each in captured.facts.slots}:
        try:
            session.execute(_drop_slot(slot))
        except PostgresError as error:
            raise CommandError(
                ExitCode.DATABASE, f"the source refused {_drop_slot(slot)} {message(error)}. Stop its reader first"
            ) from error
        yield f"dropped replication slot {slot}"
    if publication in {each.name for each in captured.facts.publications}:
        try:
            session.execute(_drop_publication(publication))
        except PostgresError as error:
            yield f"left: {message(error)}. As an administrator, type {_drop_publication(publication)}"
        else:
            yield f"dropped publication {publication}"
