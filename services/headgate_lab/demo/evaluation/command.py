"""What ``headgate up --source DSN --sink DSN`` does and prints."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec

from headgate.capture.place import place_of
from headgate.capture.source import read_source
from headgate.cli.changes import Destruction, permitted
from headgate.cli.output import Output
from headgate.cli.source import target_at
from headgate.databases.address import AddressOptions, Target
from headgate.databases.connections import Use
from headgate.formats.topic_names import topic_part
from headgate.records.names import check_name
from headgate_lab.demo.display import Display
from headgate_lab.demo.evaluation.checks import SINK_PASSWORD, SOURCE_PASSWORD, check_sink, checked, files_of
from headgate_lab.demo.evaluation.passwords import password_of, secrets_in, write_secret
from headgate_lab.demo.evaluation.removal import leftovers, present, remove
from headgate_lab.demo.evaluation.running import ENVIRONMENT_FILE, Evaluation, EvaluationPlan

__all__ = ["OwnDatabases", "left_behind", "prepared", "remove_evaluation", "shown"]

_SOURCE: Final = AddressOptions("--source", "--source-password-file", "source")
_SINK: Final = AddressOptions("--sink", "--sink-password-file", "sink")


_NO_BROKER: Final = "127.0.0.1:9092"
"""In the files that are only checked."""


class OwnDatabases(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command, as they were given."""

    source: str
    sink: str
    source_password_file: Path | None = None
    sink_password_file: Path | None = None
    tables: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    publication: str
    slot: str
    feed: str | None = None
    folder: Path | None = None
    agents: int


def prepared(given: OwnDatabases, display: Display) -> EvaluationPlan:
    """What to start for the two databases, once they are fit for it. Starts and writes nothing.

    Raises DatabaseError, SinkError, CommandError, NoTableError; typer.Exit once what is wrong is shown.
    """
    source = target_at(given.source, given.source_password_file, _SOURCE, Use.SOURCE)
    sink = target_at(given.sink, given.sink_password_file, _SINK, Use.SINK)
    passwords = {SOURCE_PASSWORD: password_of(source), SINK_PASSWORD: password_of(sink)}
    name = check_name("feed", given.feed or topic_part(place_of(source).database))
    names = {"publication": given.publication, "slot": given.slot}
    with display.stage("checking the two databases"), _written(passwords) as private:
        databases = checked(
            Target(source.dsn, Path(SOURCE_PASSWORD), source.options),
            Target(sink.dsn, Path(SINK_PASSWORD), sink.options),
            given.tables,
            given.types,
            **names,
        )
        check_sink(name, databases, files_of(databases, name, _NO_BROKER, private, **names))
    folder = given.folder or Path(f"headgate-{name}")
    return EvaluationPlan(
        feed=name, databases=databases, passwords=passwords, folder=folder, agents=given.agents, **names
    )


@contextmanager
def _written(passwords: dict[str, str]) -> Iterator[Path]:
    """Within, the passwords are files of this process's folder for secrets, which is given."""
    with tempfile.TemporaryDirectory(prefix="headgate-up-") as private:
        for name, password in passwords.items():
            write_secret(Path(private, name), password)
        with secrets_in(Path(private)):
            yield Path(private)


def remove_evaluation(given: OwnDatabases, change: Destruction, display: Display) -> None:
    """Remove what an evaluation left at the source, and its folder, once the user agrees."""
    target = target_at(given.source, given.source_password_file, _SOURCE, Use.SOURCE)
    name = check_name("feed", given.feed or topic_part(place_of(target).database))
    folder = given.folder or Path(f"headgate-{name}")
    with _written({SOURCE_PASSWORD: password_of(target)}):
        target = Target(target.dsn, Path(SOURCE_PASSWORD), target.options)
        captured = read_source(target, [])
        left = present(captured, folder, publication=given.publication, slot=given.slot)
        if not left:
            display.say("nothing was left")
        elif permitted(change, f"remove {', '.join(left)}", Output.TABLE) is not None:
            for line in remove(captured, target, folder, publication=given.publication, slot=given.slot):
                display.say(line)


def shown(up: Evaluation, plan: EvaluationPlan) -> list[str]:
    """What to read and to type next."""
    *_, last = up.services.agents
    kill = f"  kill -9 $(cat {plan.folder / last}.pid)    # another agent takes over"
    return [
        f"Kafka             {up.kafka.bootstrap}",
        f"Kafka Connect     {up.connect.url}",
        f"connector, feed   {plan.folder}",
        f"logs              {up.services.log_folder}",
        *(
            f"{service.name:<17} {up.services.address(service.name)}/readyz, /metrics; process {service.pid}"
            for service in up.services.all
        ),
        "",
        "Try, in another terminal:",
        f"  . {plan.folder / ENVIRONMENT_FILE}",
        f"  headgate table list {up.feed}",
        f"  headgate why {up.feed}",
        *([kill] if plan.agents > 1 else []),
        "",
        "Ctrl-C stops everything. The same command continues from there.",
    ]


def left_behind(plan: EvaluationPlan) -> list[str]:
    """The message shown at the end."""
    databases = plan.databases
    return [
        f"The same command continues from {plan.folder}. To remove everything instead, run it with --remove, or type",
        *leftovers(databases.captured, databases.there, publication=plan.publication, slot=plan.slot),
        f"and remove the folder: rm -r {quote(str(plan.folder))}",
    ]
