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
from headgate.capture.tables import topic_part
from headgate.cli.source import target_at
from headgate.databases.address import Options, Target
from headgate.databases.connections import Use
from headgate.records.names import check_name
from headgate_lab.demo.display import Display
from headgate_lab.demo.evaluation.checks import SINK_PASSWORD, SOURCE_PASSWORD, Databases, checked
from headgate_lab.demo.evaluation.passwords import password_of, secrets_in, write_secret
from headgate_lab.demo.evaluation.removal import leftovers, remove
from headgate_lab.demo.evaluation.running import ENVIRONMENT_FILE, Evaluation, Plan, running

__all__ = ["OwnDatabases", "evaluation", "left_behind", "remove_evaluation", "shown"]

_SOURCE: Final = Options("--source", "--source-password-file", "source")
_SINK: Final = Options("--sink", "--sink-password-file", "sink")


class OwnDatabases(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command, as they were given."""

    source: str
    sink: str
    source_password_file: Path | None = None
    sink_password_file: Path | None = None
    tables: tuple[str, ...] = ()
    publication: str
    slot: str
    feed: str | None = None
    folder: Path | None = None
    agents: int


@contextmanager
def evaluation(given: OwnDatabases, display: Display) -> Iterator[tuple[Evaluation, Plan]]:
    """Everything up for the two databases, once they are fit for it. See ``checked`` and ``running``."""
    from_target = target_at(given.source, given.source_password_file, _SOURCE, Use.SOURCE)
    to_target = target_at(given.sink, given.sink_password_file, _SINK, Use.SINK)
    passwords = {SOURCE_PASSWORD: password_of(from_target), SINK_PASSWORD: password_of(to_target)}
    with display.stage("checking the two databases"):
        databases = _checked(given, from_target, to_target, passwords)
    name = check_name("feed", given.feed or topic_part(place_of(from_target).database))
    plan = Plan(
        feed=name,
        databases=databases,
        passwords=passwords,
        folder=given.folder or Path(f"headgate-{name}"),
        publication=given.publication,
        slot=given.slot,
        agents=given.agents,
    )
    with running(plan, display) as up:
        yield up, plan


def _checked(given: OwnDatabases, source: Target, sink: Target, passwords: dict[str, str]) -> Databases:
    with _written(passwords):
        return checked(
            Target(source.dsn, Path(SOURCE_PASSWORD), source.options),
            Target(sink.dsn, Path(SINK_PASSWORD), sink.options),
            given.tables,
            publication=given.publication,
            slot=given.slot,
        )


@contextmanager
def _written(passwords: dict[str, str]) -> Iterator[None]:
    """Within, the passwords are files of this process's folder for secrets."""
    with tempfile.TemporaryDirectory(prefix="headgate-up-") as private:
        for name, password in passwords.items():
            write_secret(Path(private, name), password)
        with secrets_in(Path(private)):
            yield


def remove_evaluation(given: OwnDatabases, display: Display) -> None:
    """Remove what ``evaluation`` left at the source, and its folder; say what is left at the sink."""
    target = target_at(given.source, given.source_password_file, _SOURCE, Use.SOURCE)
    name = check_name("feed", given.feed or topic_part(place_of(target).database))
    folder = given.folder or Path(f"headgate-{name}")
    with _written({SOURCE_PASSWORD: password_of(target)}):
        target = Target(target.dsn, Path(SOURCE_PASSWORD), target.options)
        captured = read_source(target, [])
        done = remove(captured, target, folder, publication=given.publication, slot=given.slot)
    for line in done or ["nothing was left"]:
        display.say(line)


def shown(up: Evaluation, plan: Plan) -> list[str]:
    """What to read and to type next."""
    *_, last = up.services.agents
    kill = f"  kill -9 $(cat {plan.folder / last}.pid)    # another agent takes over"
    return [
        f"Kafka             {up.kafka.bootstrap}",
        f"Kafka Connect     {up.connect.url}",
        f"connector, feeds  {plan.folder}",
        f"logs              {up.services.log_folder}",
        *(
            f"{service.name:<17} {up.services.address(service.name)}/readyz, /metrics; process {service.pid}"
            for service in up.services.all
        ),
        "",
        "Try, in another terminal:",
        f"  . {plan.folder / ENVIRONMENT_FILE}",
        f"  headgate table list {up.feeds[0]}",
        f"  headgate why {up.feeds[0]}",
        *([kill] if plan.agents > 1 else []),
        "",
        "Ctrl-C stops everything. The same command continues from there.",
    ]


def left_behind(plan: Plan) -> list[str]:
    """What is said at the end."""
    databases = plan.databases
    return [
        f"The same command continues from {plan.folder}. To remove everything instead, run it with --remove, or type",
        *leftovers(databases.captured, databases.there, publication=plan.publication, slot=plan.slot),
        f"and remove the folder: rm -r {quote(str(plan.folder))}",
    ]
