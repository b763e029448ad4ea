"""The services, run in the foreground until SIGTERM or Ctrl-C.

Each service is built by a module of its own, which is imported for that service alone: Spark, for example, takes more
than a second to import, and only agents need it.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.app.extras import has_faust
from headgate.app.process import Part, Surroundings, run_parts, surrounded
from headgate.config.settings import Settings
from headgate.provisioning.installing import installing
from headgate.runtime.service import ServiceSettings

Flags = Mapping[str, Any]
"""Options of the command line as nested settings."""


def run_coordinator(flags: Flags, shards: Sequence[int] | None, *, create: bool) -> None:
    """An owner of spans, for ``shards`` or all. ``create`` the control topics that are missing."""
    with surrounded("coordinator", flags, create=create) as around:
        run_parts([_coordinator_part(around, shards)], _stop_seconds(around.settings))


def run_agent(flags: Flags) -> None:
    """An agent with its own Spark."""
    with surrounded("agent", flags, create=False) as around, _scratch(around) as scratch:
        run_parts([_agent_part(around, scratch)], _stop_seconds(around.settings))


def run_node(flags: Flags, shards: Sequence[int] | None, *, create: bool) -> None:
    """A coordinator and an agent in one process."""
    with surrounded("node", flags, create=create) as around, _scratch(around) as scratch:
        parts = [_agent_part(around, scratch), _coordinator_part(around, shards)]
        run_parts(parts, _stop_seconds(around.settings))


def run_generation(flags: Flags, shards: Sequence[int] | None, *, create: bool) -> None:
    """An owner of change logs and timestamp sets."""
    with surrounded("generation", flags, create=create) as around:
        module = import_module("headgate.app.generation")
        run_parts([module.generation_part(around, _service_settings(around, shards))], _stop_seconds(around.settings))


def run_ingest(flags: Flags, log_name: str, topics: Sequence[str], name: str, skip: Sequence[str]) -> None:
    """A copier of keyed topics into a change log."""
    with surrounded("ingest", flags, create=False) as around:
        module = import_module("headgate.app.ingest")
        run_parts([module.ingest_part(around, log_name, topics, name, skip)], _stop_seconds(around.settings))


def run_migration(flags: Flags, *, create: bool) -> None:
    """The owner of schema changes."""
    reports = import_module("headgate.migration.shell.reports").ToolReports()
    with (
        surrounded("migration", flags, create=create, routes=reports.routes()) as around,
        _scratch(around) as scratch,
    ):
        module = import_module("headgate.app.migration")
        settings = _service_settings(around, (0,))  # the topic has one partition: schema changes are few
        run_parts([module.migration_part(around, settings, Path(scratch), reports)], _stop_seconds(around.settings))


def run_views(flags: Flags) -> None:
    """The read-only HTTP view of the control topics. Raises CommandError without Faust."""
    if not has_faust():
        raise CommandError(ExitCode.SETTING, f"the views need faust-streaming: {installing('views')}")
    _temporary("", "TMPDIR").cleanup()  # Faust keeps its tables in files
    with surrounded("views", flags, create=False) as around:
        service = import_module("headgate.views.service").ViewsService(
            around.settings, around.log, probes=around.probes, registry=around.registry
        )
        run_parts([Part("views", service.run, service.stop)], _stop_seconds(around.settings))


def _scratch(around: Surroundings) -> tempfile.TemporaryDirectory[str]:
    """A folder for Spark's temporary files. Files that a killed JVM still writes there do not fail our clean-up."""
    return _temporary(around.settings.spark.scratch, "HEADGATE_SPARK__SCRATCH")


def _temporary(folder: str, setting: str) -> tempfile.TemporaryDirectory[str]:
    """A new folder in ``folder``, or where the system has such. Raises CommandError."""
    try:
        return tempfile.TemporaryDirectory(prefix="headgate-", dir=folder or None, ignore_cleanup_errors=True)
    except OSError as error:
        where = folder or "the system's folder for temporary files"
        raise CommandError(
            ExitCode.SETTING,
            f"{setting}: user {os.geteuid()} cannot write to {where}: {error.strerror}. Name a folder that this user "
            "may write to; in a container, a volume of its own or a tmpfs (docs/containers.md)",
        ) from error


def _stop_seconds(settings: Settings) -> float:
    """A part keeps the limit itself; the process waits a little longer for it."""
    return settings.shutdown_seconds + 1.0


def _service_settings(around: Surroundings, shards: Sequence[int] | None) -> ServiceSettings:
    """Of an owner of these shards, or of all. Raises CommandError for a shard that the cluster does not have."""
    settings, log = around.settings, around.log
    unknown = sorted(set(shards or ()) - set(range(log.shards)))
    if unknown:
        raise CommandError(
            ExitCode.SETTING, f"--shard {unknown[0]}: cluster {settings.cluster} has shards 0 to {log.shards - 1}"
        )
    return ServiceSettings(
        cluster=settings.cluster,
        shards=tuple(sorted(set(shards))) if shards else tuple(range(log.shards)),
        lease_seconds=settings.lease_seconds,
        holder_lease_seconds=settings.lease_seconds,
        shutdown_seconds=settings.shutdown_seconds,
    )


def _coordinator_part(around: Surroundings, shards: Sequence[int] | None) -> Part:
    part = import_module("headgate.app.coordinator")
    return part.coordinator_part(around, _service_settings(around, shards))  # type: ignore[no-any-return]


def _agent_part(around: Surroundings, scratch: str) -> Part:
    return import_module("headgate.app.agent").agent_part(around, Path(scratch))  # type: ignore[no-any-return]
