"""A coordinator put together from the settings."""

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.app.process import Part, Surroundings
from headgate.config.plugs import PlugError
from headgate.config.settings import Settings
from headgate.coordinator.schedulers.contract import Scheduler
from headgate.coordinator.shell.effect_runner import FeedWork
from headgate.coordinator.shell.retention import DeadLetterRetention
from headgate.coordinator.shell.service import CoordinatorService, load_schedulers
from headgate.eventlog.topics import why_not_removable
from headgate.generation.changelog.shell.feeds import FeedChangeLogs
from headgate.runtime.role import RoleState
from headgate.runtime.service import ServiceSettings
from headgate.supervision.threads import BackgroundThread


def coordinator_part(around: Surroundings, owner: ServiceSettings) -> Part:
    """The service of this process, not started. Raises CommandError for a scheduler that cannot be loaded."""
    settings, log = around.settings, around.log
    service = CoordinatorService(
        owner,
        log,
        FeedWork(
            log.connection,
            cluster_id=log.cluster_id,
            own_prefix=settings.prefix,
            change_logs=FeedChangeLogs(log),
            now_ms=log.clock.now_ms,
        ),
        probes=around.probes,
        registry=around.registry,
        schedulers=_schedulers(settings),
        now_ms=log.clock.now_ms,
    )
    retention = DeadLetterRetention(
        log,
        lambda: [shard for shard, role in service.roles.items() if role.status.state is RoleState.SERVING],
        lambda: why_not_removable(log.connection, settings.cluster),
        log.clock.now_ms,
    )

    def run() -> bool:
        # It is not waited for, as it may wait for a broker.
        BackgroundThread(retention.run, name="deadletter-retention").start()
        try:
            return service.run()
        finally:
            retention.stop()

    return Part("coordinator", run, service.stop)


def _schedulers(settings: Settings) -> tuple[Scheduler, ...]:
    try:
        return load_schedulers(settings.schedulers.split(","))
    except PlugError as error:
        raise CommandError(ExitCode.SETTING, f"HEADGATE_SCHEDULERS: {error}") from error
