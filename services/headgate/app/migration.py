"""The owner of schema changes, built from the settings.

Its Spark starts with the first copy that needs it, because most owners only stand by.
"""

import os
import tempfile
import threading
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from headgate.app.process import Part, Surroundings
from headgate.config.settings import SettingsError
from headgate.migration.shell.reports import PATH, ToolReports
from headgate.migration.shell.service import MigrationService
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.tools.tool import Tools
from headgate.provisioning.errors import EmbeddedError
from headgate.runtime.service import ServiceSettings


class LateCopier:
    """See headgate.migration.strategies.online.strategy.Copier. ``scratch`` is for Spark's temporary files."""

    def __init__(self, around: Surroundings, scratch: Path) -> None:
        self._around = around
        self._scratch = scratch
        self._lock = threading.Lock()
        self._made: Any = None

    def copy(self, *given: Any) -> None:
        """See Copier. RefusedError also where Java or a jar is missing, or a setting is wrong: it would not pass."""
        with self._lock:
            if self._made is None:
                part = import_module("headgate.app.spark")
                try:
                    self._made = part.new_copier(self._around.settings, self._scratch)
                except (SettingsError, EmbeddedError) as error:
                    raise RefusedError(f"Spark cannot be started on the owner's machine: {error}") from error
        self._made.copy(*given)

    def stop(self) -> None:
        """End Spark, if it was started."""
        with self._lock:
            if self._made is not None:
                self._made.stop()


LOOPBACKS: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - addresses that listen everywhere
"""Where a program on this machine finds who listens on all addresses."""


def migration_part(around: Surroundings, owner: ServiceSettings, scratch: Path, reports: ToolReports) -> Part:
    """The service of this process, not started. ``scratch`` is for Spark's temporary files; ``reports`` is served."""
    copier = LateCopier(around, scratch)
    service = MigrationService(
        owner,
        around.log,
        copier=copier,
        reports=reports,
        tools=_tools(around, reports),
        probes=around.probes,
        registry=around.registry,
    )

    def run() -> None:
        try:
            service.run()
        finally:
            copier.stop()

    return Part("migration", run, service.stop)


def _tools(around: Surroundings, reports: ToolReports) -> Tools:
    """Where programs report, and where they keep their files: one folder for this cluster's owners on this machine."""
    settings, bind = around.settings, around.settings.http.bind
    host = LOOPBACKS.get(bind, f"[{bind}]" if ":" in bind else bind)
    return Tools(
        issue_token=reports.issue,
        report_url=f"http://{host}:{around.http_port}{PATH}",
        folder=Path(tempfile.gettempdir(), f"headgate-tools-{os.geteuid()}", settings.cluster),
        pt_osc=settings.migration.pt_osc,
        gh_ost=settings.migration.gh_ost,
    )
