"""``headgate migration submit --dry-run``: examine a schema change at its database. Imports every strategy."""

import msgspec

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.output import Output, show_object
from headgate.cli.waiting import waiting
from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.shell.work import MigrationWork
from headgate.migration.strategies.target import NO_CLUSTER


def examine(spec: MigrationSpec, output: Output) -> None:
    """Show what an owner would do, or raise CommandError with the reason to refuse it."""
    with waiting("the database to examine the change"):
        result = MigrationWork(cluster_id=NO_CLUSTER).run(fx.ExamineMigration("plan", "plan", spec, reads_only=True))
    if isinstance(result, fx.Examined):
        show_object({"strategy": spec.strategy.value, **msgspec.to_builtins(result)}, output)
    elif isinstance(result, fx.ExamineRefused):
        raise CommandError(ExitCode.REQUEST_REFUSED, result.reason)
    else:
        raise CommandError(ExitCode.DATABASE, result.reason)
