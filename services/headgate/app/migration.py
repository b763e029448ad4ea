"""The owner of schema changes put together from the settings."""

import os
import tempfile
from pathlib import Path
from typing import Final

from headgate.app.late_copier import LateCopier
from headgate.app.process import Part, Surroundings
from headgate.migration.shell.reports import PATH, ToolReports
from headgate.migration.shell.service import MigrationService
from headgate.migration.strategies.tools.tool import Tools
from headgate.runtime.service import ServiceSettings

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
