"""``headgate chaos --migrations``: schema changes drawn from a seed, under writes, while services are killed.

A round changes a table of its own by the migration service. Its twin gets the same writes, and then the server's own
statement; both must be equal then. The statements are those of the test matrix (schema_changes), in another spelling,
one or several in one.
"""

import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Final

import msgspec
import psycopg
import pymysql

from headgate.migration.statements.clauses import CLAUSES, Support
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.migration import MigrationRecorded, MigrationState, MigrationStrategy
from headgate.records.migration_standing import ADDING_KEYS, AWAITING_CHANGE, AWAITING_TRANSACTIONS, STARTING_FEED
from headgate_lab.chaos.migration_parts import ChangedDatabase, changed_databases
from headgate_lab.chaos.migration_report import MigrationsReport, Round
from headgate_lab.chaos.migration_services import MigrationServices
from headgate_lab.demo.display import Display
from headgate_lab.demo.folder import scratch_parts
from headgate_lab.embedded.broker import EmbeddedKafka, session_within
from headgate_lab.parts.processes import ServiceError
from headgate_lab.schema_changes.case import Case
from headgate_lab.schema_changes.cases import drawn
from headgate_lab.schema_changes.load import ClientHistory
from headgate_lab.schema_changes.outcome import outcome_of

__all__ = ["MigrationsOptions", "run_migrations"]

PAUSE_SECONDS: Final = 0.05
"""Between two writes of a round."""

ROUND_SECONDS: Final = 30.0
"""No round is shorter, so that so many tables are enough."""

CUTOVER_SECONDS: Final = "20"
"""What the writer may wait for: a micro-batch beside a killed service takes longer than the default."""

WRITE_SECONDS_MAX: Final = 120.0
"""For the writer's last statements: they wait behind a cut-over at most, and six times as long on a busy machine."""

VICTIMS: Final = ("agent", "owner", "broker")
FAULTS_MAX: Final = 2
"""Of one round."""

STAGES: Final = (
    STARTING_FEED,
    AWAITING_CHANGE,
    AWAITING_TRANSACTIONS,
    "copying",
    "catching up",
    ADDING_KEYS,
    "comparing",
    "ready",
    "completing",
)
ENDED: Final = (MigrationState.COMPLETE, MigrationState.FAILED, MigrationState.CANCELLED)


class MigrationsOptions(msgspec.Struct, frozen=True):
    """``minutes``: no round begins later. None: one round at each database."""

    seed: int
    minutes: float | None
    lease_seconds: float
    keep: bool


class _Plan(msgspec.Struct, frozen=True):
    """A round, drawn. ``faults``: stage → what is killed when the migration comes there."""

    number: int
    database: ChangedDatabase
    case: Case
    strategy: MigrationStrategy
    faults: Mapping[str, str]

    @property
    def statement(self) -> str:
        """The case's, about the round's table: without a schema it would be found elsewhere."""
        return re.sub(r"[`\"]?items[`\"]?", f"r{self.number}.items", self.case.statement, count=1)

    @property
    def is_refused(self) -> bool:
        return CLAUSES[self.database.dialect][self.case.clause].support is Support.REFUSED


def run_migrations(options: MigrationsOptions, display: Display) -> MigrationsReport:
    """Start everything, run the rounds, compare. Raises ServiceError and what starting raises."""
    left_over: list[str] = []
    chance = random.Random(options.seed)  # noqa: S311 - chaos is its seed
    with scratch_parts("headgate-migrations-", display.say, left_over, keep=options.keep) as scratch:
        folder, parts = scratch.folder, scratch.parts
        display.say("starting a PostgreSQL, a MariaDB, a broker, a coordinator, an agent and two owners of migrations")
        databases = parts.enter_context(changed_databases(folder))
        kafka = EmbeddedKafka(folder / "kafka", settings=session_within(options.lease_seconds))
        parts.callback(kafka.stop)
        kafka.start()
        plans = _drawn(databases, chance, 1 if options.minutes is None else _rounds(options.minutes))
        campaign = _Campaign(kafka, databases, display)
        campaign.capture()
        services = MigrationServices(kafka.bootstrap, databases, folder, lease_seconds=options.lease_seconds)
        parts.callback(lambda: left_over.extend(services.stop()))
        services.start()
        rounds = campaign.run(services, plans, options)
        report = MigrationsReport(seed=options.seed, rounds=tuple(rounds))
        scratch.failed = not report.holds()
    return msgspec.structs.replace(report, left_over=tuple(left_over))


def _rounds(minutes: float) -> int:
    """At each database, at most."""
    return int(minutes * 60 / ROUND_SECONDS / 2) + 1


def _drawn(databases: Sequence[ChangedDatabase], chance: random.Random, count: int) -> list[_Plan]:
    plans = []
    for number in range(count * len(databases)):
        database = databases[number % len(databases)]
        case, strategy = drawn(database.dialect, chance, database.error_of)
        struck = chance.sample(STAGES, chance.randint(0, FAULTS_MAX))
        faults = {stage: chance.choice(VICTIMS) for stage in struck}
        plans.append(_Plan(number, database, case, strategy, faults))
        database.make(number, case)
    return plans


class _Campaign:
    """The rounds of one seed."""

    def __init__(self, kafka: EmbeddedKafka, databases: Sequence[ChangedDatabase], display: Display) -> None:
        self._kafka, self._databases, self._display = kafka, databases, display

    def capture(self) -> None:
        """Connect runs in the broker's process, and is gone with it."""
        worker = self._kafka.start_connect("debezium-postgres", "debezium-mariadb")
        for database in self._databases:
            database.capture(worker, self._kafka.bootstrap)

    def run(self, services: MigrationServices, plans: Sequence[_Plan], options: MigrationsOptions) -> list[Round]:
        """One after the other, as the seed has drawn them."""
        begun, rounds = time.monotonic(), []
        for plan in plans:
            if options.minutes is not None and time.monotonic() - begun > options.minutes * 60:
                break
            found = _Round(plan, services, self.strike).run()
            rounds.append(found)
            said = "; ".join(found.findings) or "holds"
            self._display.say(
                f"round {plan.number}, {found.database}, {found.strategy}: {' '.join(found.statement.split())}: "
                f"{found.state}, {', '.join(found.faults) or 'no fault'}: {said}"
            )
        return rounds

    def strike(self, services: MigrationServices, victim: str) -> None:
        """Kill it, and start another one."""
        if victim == "broker":
            self._kafka.kill()
            self._kafka.start()
            self.capture()
        elif victim == "agent":
            services.kill_agent()
        else:
            services.kill_owner()


class _Round:
    """One migration and its twin."""

    def __init__(
        self, plan: _Plan, services: MigrationServices, strike: Callable[[MigrationServices, str], None]
    ) -> None:
        self._plan, self._services, self._strike = plan, services, strike
        self._name = f"round-{plan.number}"
        self._struck: list[str] = []
        self._refusal = ""
        self._seed = f"{plan.number}/{plan.statement}"

    def run(self) -> Round:
        """Migrate under writes, then compare."""
        plan = self._plan
        writer = _Writer(plan, self._seed)
        writer.start()
        try:
            state, message = self._refused() if plan.is_refused else self._migrated(writer)
        finally:
            writer.stop()
        findings = list(writer.errors)
        if not findings:
            findings = self._compare(state, message)
        return Round(
            database=plan.database.name,
            strategy=str(plan.strategy),
            statement=plan.statement,
            state=state,
            faults=tuple(self._struck),
            findings=tuple(findings),
        )

    # --- the migration ---

    def _submitted(self) -> tuple[str, ...]:
        plan = self._plan
        lossy = (word for column in plan.case.lossy for word in ("--allow-lossy", column))
        online = ("--topic", plan.database.topic(plan.number), "--postpone-completion", *lossy)
        return (
            *("submit", plan.statement, "--database", plan.database.name, "--id", self._name),
            *("--strategy", str(plan.strategy), "--cutover-threshold", CUTOVER_SECONDS, "--yes"),
            *(online if plan.strategy is MigrationStrategy.ONLINE else ()),
        )

    def _refused(self) -> tuple[str, str]:
        try:
            self._services.command(*self._submitted())
        except ServiceError as error:
            return "refused", str(error)
        return "accepted", "a clause that is refused was accepted"

    def _migrated(self, writer: "_Writer") -> tuple[str, str]:
        plan, services = self._plan, self._services
        if plan.strategy is MigrationStrategy.DIRECT:
            writer.narrow()
        try:
            services.insist(*self._submitted(), unless=self._is_refused_instead)
            if self._refusal:
                return "refused", self._refusal
            self._follow(lambda record: record.is_ready_to_complete or record.state in ENDED)
            if plan.strategy is MigrationStrategy.ONLINE:
                self._hit("ready")
                writer.narrow()
                services.insist("complete", self._name, unless=self._has_ended)
                self._hit("completing")
            self._follow(lambda record: record.state in ENDED)
        except ServiceError as error:
            return "stuck", str(error)
        record = services.record(self._name)
        return ("unknown", "") if record is None else (str(record.state), record.message)

    def _follow(self, is_so: Callable[[MigrationRecorded], bool]) -> None:
        shown = "nothing of it is on the log"

        def has_come() -> bool:
            nonlocal shown
            record = self._services.record(self._name)
            if record is None:
                return False
            shown = f"{record.state}, {record.stage}: {record.message}"
            self._hit(record.stage)
            return is_so(record)

        self._services.until(has_come, lambda: f"{self._name} continues ({shown})")

    def _is_refused_instead(self, error: str) -> bool:
        """A case may be one that only trying shows to be impossible."""
        case = self._plan.case
        if self._plan.strategy is MigrationStrategy.ONLINE and case.refusal and case.refusal in error:
            self._refusal = error
        return bool(self._refusal)

    def _has_ended(self, _error: str) -> bool:
        """A request whose answer was lost may have been heard."""
        record = self._services.record(self._name)
        return record is not None and record.state in ENDED

    def _hit(self, stage: str) -> None:
        """Strike if the round has a fault for this stage."""
        victim = self._plan.faults.get(stage)
        said = f"{victim} killed: {stage}"
        if victim is not None and said not in self._struck:
            self._struck.append(said)
            self._strike(self._services, victim)

    # --- the twin ---

    def _compare(self, state: str, message: str) -> list[str]:
        plan = self._plan
        if state not in ("complete", "failed", "refused"):
            return [f"{state}: {message}"]
        refused_by_server = None
        if state != "refused":
            try:
                plan.database.run(f"t{plan.number}", plan.case.statement)
            except (psycopg.Error, pymysql.Error) as error:
                refused_by_server = str(error)
        if (state == "failed") != (refused_by_server is not None):
            return [f"{state} ({message}), and the server reports: {refused_by_server or 'done'}"]
        here, twin = (self._outcome(f"{letter}{plan.number}") for letter in "rt")
        names = [name for name in here | twin if here.get(name) != twin.get(name)]
        return [f"{name}: {here.get(name)} and not {twin.get(name)}" for name in names]

    def _outcome(self, schema: str) -> dict[str, list[tuple[object, ...]]]:
        database = self._plan.database
        return outcome_of(lambda query: database.run(schema, query), database.dialect, schema)


class _Writer(threading.Thread):
    """Writes to the round's table and to its twin, in one order, until it is stopped."""

    def __init__(self, plan: _Plan, seed: str) -> None:
        super().__init__(name=f"writer-{plan.number}", daemon=True)
        self.errors: list[str] = []
        self._plan = plan
        self._load = ClientHistory(random.Random(seed))  # noqa: S311 - a load is its seed
        self._lock = threading.Lock()
        self._is_narrow = False
        self._over = threading.Event()
        self._write_both(self._load.first().statements)

    def narrow(self) -> None:
        """From now on write only what the table takes in both forms."""
        with self._lock:
            self._is_narrow = True

    def stop(self) -> None:
        """Return when the last write is at both tables."""
        self._over.set()
        seconds = scaled_seconds(WRITE_SECONDS_MAX)
        self.join(seconds)
        if self.is_alive():
            self.errors.append(f"a client's statement has not ended within {seconds:g} s after the round")

    def run(self) -> None:
        try:
            while not self._over.wait(PAUSE_SECONDS):
                with self._lock:
                    written = (self._load.lasting(),) if self._is_narrow else self._load.batch(5).statements
                    self._write_both(written)
        except (psycopg.Error, pymysql.Error) as error:
            self.errors.append(f"a client's statement has failed: {error}")

    def _write_both(self, statements: Sequence[str]) -> None:
        database = self._plan.database
        with closing(database.connect()) as session, closing(session.cursor()) as cursor:
            for schema in (f"r{self._plan.number}", f"t{self._plan.number}"):
                for statement in (database.into(schema), *statements):
                    cursor.execute(statement)
