"""``headgate serve ingest``: what is checked before topics are copied into a change log."""

from collections.abc import Sequence
from contextlib import closing

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.app.process import Part, Surroundings
from headgate.generation.changelog.shell.feeds import FeedChangeLogs
from headgate.generation.changelog.shell.ingest import IngestService
from headgate.generation.shell.tail import GenerationTail
from headgate.records.names import InvalidNameError, check_name
from headgate.records.places import LogPosition, PlaceError


def ingest_part(around: Surroundings, log_name: str, topics: Sequence[str], name: str, skip: Sequence[str]) -> Part:
    """The service. Raises CommandError, LogError, ChangeLogUnavailableError."""
    try:
        check_name("ingest", name)
        skipped = [LogPosition.parse(text) for text in skip]
    except InvalidNameError as error:
        raise CommandError(ExitCode.SETTING, f"--name: {error}") from error
    except PlaceError as error:
        raise CommandError(ExitCode.SETTING, f"--skip: {error}") from error
    strangers = sorted({place.topic for place in skipped} - set(topics))
    if strangers:
        raise CommandError(ExitCode.SETTING, f"--skip: topic {strangers[0]} is not among those of --topic")
    _check_log(around, log_name)
    _check_topics(around, topics)
    service = IngestService(
        around.log, log_name, topics, name=name, skip=skipped, probes=around.probes, registry=around.registry
    )
    return Part("ingest", service.run, service.stop)


def _check_log(around: Surroundings, log_name: str) -> None:
    with closing(GenerationTail(around.log, log_name, "headgate-ingest")) as tail:
        tail.read_to_end()
        if log_name not in tail.state.sets:
            known = ", ".join(sorted(set(FeedChangeLogs(around.log).names_by_topic().values()))) or "none"
            raise CommandError(
                ExitCode.NOT_FOUND,
                f"change log {log_name!r} does not exist. Create it with `headgate generation create`. "
                f"Known are: {known}",
            )


def _check_topics(around: Surroundings, topics: Sequence[str]) -> None:
    """A change log that is read as a plain topic has its keys out of order, and one that is copied to itself no end."""
    theirs = FeedChangeLogs(around.log).names_by_topic()
    for topic in topics:
        if topic in theirs:
            raise CommandError(
                ExitCode.SETTING, f"--topic {topic} is of the change log {theirs[topic]!r}, which cannot be copied"
            )
        if topic.startswith(around.settings.prefix):
            raise CommandError(
                ExitCode.SETTING, f"--topic {topic} is a control topic of Headgate, which cannot be copied"
            )
