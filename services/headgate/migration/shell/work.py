"""Executes the scheduler's effects: each goes to its migration's strategy, and every error becomes a result.

A strategy lives for one migration and one term: what another term has started in this process is closed first, so that
nothing of it works on. Effects of one migration come one after the other (the machine ensures that); those of several
come on several threads.
"""

import threading
from contextlib import closing
from functools import partial
from typing import Any, Final

import msgspec

from headgate.databases.address import Target
from headgate.databases.connections import Approval, Use, named
from headgate.databases.errors import DatabaseRefusedError
from headgate.migration.core import effects as fx
from headgate.migration.core.spec import TOOLS, MigrationSpec, MigrationSpecError, check_named, parse_spec
from headgate.migration.shell.feeds import ChangeFeeds
from headgate.migration.statements.statement import StatementError
from headgate.migration.strategies.contract import (
    DatabaseUnavailableError,
    LockUnavailableError,
    RefusedError,
    SupersededError,
)
from headgate.migration.strategies.declared import Declared
from headgate.migration.strategies.direct import DirectStrategy
from headgate.migration.strategies.instant import InstantFirst
from headgate.migration.strategies.mariadb.cutover import MariadbOnline
from headgate.migration.strategies.mariadb.server import MariadbServer
from headgate.migration.strategies.online.marked import Copier
from headgate.migration.strategies.online.strategy import OnlineStrategy
from headgate.migration.strategies.postgresql.cutover import PostgresOnline
from headgate.migration.strategies.postgresql.server import PostgresServer
from headgate.migration.strategies.removed import RemovedStrategy
from headgate.migration.strategies.target import refusing
from headgate.migration.strategies.tools.gh_ost import GhOstStrategy
from headgate.migration.strategies.tools.pt_osc import PtOscStrategy
from headgate.migration.strategies.tools.tool import Tools
from headgate.records.migration import MigrationStrategy
from headgate.runtime.machine import EffectFailed

__all__ = ["MigrationWork", "open_strategy"]

_SERVERS: Final[dict[str, type[MariadbServer] | type[PostgresServer]]] = {
    "mysql": MariadbServer,
    "postgresql": PostgresServer,
}


def open_strategy(
    migration: str,
    spec: MigrationSpec,
    feeds: ChangeFeeds | None = None,
    copier: Copier | None = None,
    tools: Tools | None = None,
    *,
    cluster_id: str,
    reads_only: bool = False,
) -> Any:
    """The strategy that a spec names, at the database that it names. Raises RefusedError; opens nothing yet.

    Without ``feeds`` and ``copier`` strategy online can only examine; pt-osc and gh-ost without ``tools``.
    ``reads_only``: it can only plan, in sessions that cannot write. ``cluster_id`` distinguishes what it keeps at the
    database from what other clusters keep there; NO_CLUSTER for a caller that only examines.
    """
    server = _server(migration, spec, cluster_id, reads_only=reads_only)
    if spec.replicas:
        server.watch_replicas({name: _replica(name) for name in spec.replicas})
    beneath = partial(
        open_strategy,
        migration,
        feeds=feeds,
        copier=copier,
        tools=tools,
        cluster_id=cluster_id,
        reads_only=reads_only,
    )
    if spec.declarative:
        return Declared(server, beneath(msgspec.structs.replace(spec, declarative=False)))
    if spec.prefer_instant:
        return InstantFirst(server, beneath(msgspec.structs.replace(spec, prefer_instant=False)))
    if spec.strategy in TOOLS:
        if not isinstance(server, MariadbServer):
            raise RefusedError(f"strategy {spec.strategy} knows MariaDB only: use online")
        program = PtOscStrategy if spec.strategy is MigrationStrategy.PT_OSC else GhOstStrategy
        return program(server, migration, tools)
    if spec.strategy is MigrationStrategy.ONLINE:
        lane = PostgresOnline(server) if isinstance(server, PostgresServer) else MariadbOnline(server)
        return OnlineStrategy(server, lane, feeds, copier, migration, reverts=spec.reverts)
    return DirectStrategy(server) if spec.strategy is MigrationStrategy.DIRECT else RemovedStrategy(server)


def _server(
    migration: str, spec: MigrationSpec, cluster_id: str, *, reads_only: bool = False
) -> MariadbServer | PostgresServer:
    """The database that a spec names. Raises RefusedError."""
    try:
        check_named(spec)
    except MigrationSpecError as error:
        raise RefusedError(str(error)) from error
    with refusing():
        connection, target = named(spec.database, Use.MIGRATION, "--database")
    return _SERVERS[connection.kind](migration, target, cluster_id=cluster_id, reads_only=reads_only)


def _needs_approval(spec: MigrationSpec) -> bool:
    """Whether the connection that a spec names requires an approval. Raises RefusedError."""
    with refusing():
        return named(spec.database, Use.MIGRATION, "--database")[0].approval is Approval.REQUIRED


def _check_feed_sink(spec: MigrationSpec) -> None:
    """Raise RefusedError unless a feed may write to the connection that a spec names, if its strategy needs one.

    The error names every use that is missing, not only this one.
    """
    if spec.strategy is not MigrationStrategy.ONLINE:
        return
    try:
        named(spec.database, Use.MIGRATION, "--database", also=[Use.SINK])
    except DatabaseRefusedError as error:
        raise RefusedError(f"strategy online also writes to the connection as the sink of its feed. {error}") from error


def _check_place(effect: Any, cluster_id: str) -> None:
    """Raise RefusedError if the connection names another database now than when the migration was accepted."""
    record = effect.record
    if not record.server:
        return  # an earlier version accepted it
    with closing(_server(effect.migration, parse_spec(record.spec), cluster_id)) as server:
        if not server.is_at(record.server):
            raise RefusedError(
                f"connection {parse_spec(record.spec).database} is {server.where(None)} now, and was {record.server} "
                "when the migration was accepted. Change it back until the migration has ended"
            )


def _replica(name: str) -> Target:
    with refusing():
        return named(name, Use.MIGRATION, "--replica")[1]


class MigrationWork:
    """Runs effects; ``close`` ends everything that this process has under way."""

    def __init__(
        self,
        feeds: ChangeFeeds | None = None,
        copier: Copier | None = None,
        tools: Tools | None = None,
        *,
        cluster_id: str,
    ) -> None:
        self._open_strategy = partial(open_strategy, feeds=feeds, copier=copier, tools=tools, cluster_id=cluster_id)
        self._cluster_id = cluster_id
        self._lock = threading.Lock()
        self._open: dict[str, tuple[int, Any]] = {}

    def run(self, effect: Any) -> Any:
        """The result, of a type that the effect names."""
        try:
            if isinstance(effect, fx.ExamineMigration):
                return self._examine(effect)
            return self._run(effect)
        except (RefusedError, StatementError) as error:
            return (
                fx.ExamineRefused(str(error))
                if isinstance(effect, fx.ExamineMigration)
                else self._refused(effect, error)
            )
        except (DatabaseUnavailableError, LockUnavailableError, SupersededError) as error:
            return EffectFailed(str(error))

    def _refused(self, effect: Any, error: Exception) -> Any:
        """The database refuses this to every owner: the migration cannot continue; a stop is requested again."""
        if isinstance(effect, fx.StopMigration | fx.CleanUpMigration):
            return EffectFailed(str(error))
        if isinstance(effect, fx.CutOverMigration):
            return fx.CutOverFailed(str(error))
        if isinstance(effect, fx.StartMigration) and effect.migration not in self._open:
            return fx.Refused(str(error))  # its database could not be named: nothing was started
        return fx.Broke(str(error), effect.record.artifacts)

    def _examine(self, effect: fx.ExamineMigration) -> Any:
        if effect.is_known:
            with closing(_server(effect.migration, effect.spec, self._cluster_id)) as server:
                is_there = effect.known_server and server.is_at(effect.known_server)
                return fx.Identified(effect.known_server if is_there else server.where(None))
        _check_feed_sink(effect.spec)
        strategy = self._open_strategy(effect.migration, effect.spec, reads_only=effect.reads_only)
        with closing(strategy):
            found = strategy.plan(effect.spec) if effect.reads_only else strategy.examine(effect.spec, effect.reverted)
        if isinstance(found, fx.Examined):
            return msgspec.structs.replace(found, needs_approval=_needs_approval(effect.spec))
        return found

    def _run(self, effect: Any) -> Any:
        strategy = self._strategy(effect)
        match effect:
            case fx.StartMigration():
                result = strategy.start(effect)
            case fx.AdoptMigration():
                result = strategy.adopt(effect)
            case fx.WatchMigration():
                result = strategy.watch(effect)
            case fx.CutOverMigration():
                result = strategy.cut_over(effect)
            case fx.StopMigration():
                result = strategy.stop(effect)
            case fx.CleanUpMigration():
                result = strategy.clean_up(effect)
            case _:
                raise TypeError(f"no migration has an effect {type(effect).__name__}")
        if isinstance(result, fx.Completed | fx.Stopped | fx.Refused | fx.CleanedUp):
            self._close(effect.migration)
        return result

    def _strategy(self, effect: Any) -> Any:
        with self._lock:
            known = self._open.get(effect.migration)
        if known is not None and known[0] == effect.owner_rev:
            return known[1]
        self._close(effect.migration)
        _check_place(effect, self._cluster_id)
        strategy = self._open_strategy(effect.migration, parse_spec(effect.record.spec))
        with self._lock:
            self._open[effect.migration] = (effect.owner_rev, strategy)
        return strategy

    def _close(self, migration: str) -> None:
        with self._lock:
            known = self._open.pop(migration, None)
        if known is not None:
            known[1].close()

    def close(self) -> None:
        """End everything that is under way here; another owner continues it."""
        for migration in sorted(self._open):
            self._close(migration)
