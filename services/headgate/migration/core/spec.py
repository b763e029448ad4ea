"""A migration as its operator describes it: the JSON of a submit request, and the fields that the scheduler uses.

Only names and types are checked here. Whether the statement can be done is looked up at the database
(``ExamineMigration``), before the migration is accepted.
"""

import re
from typing import Any, Final

import msgspec

from headgate.records.migration import OFFERED, MigrationStrategy

THRESHOLD_SECONDS_MIN: Final = 1.0
THRESHOLD_SECONDS_MAX: Final = 30.0
"""Writers of the table may wait this long for a cut-over; Vitess allows 5 to 30 s, ours takes less than one."""

RETAIN_SECONDS_DEFAULT: Final = 86_400.0
"""A day to notice that the change was a mistake, as in Vitess."""

CHUNK_ROWS_DEFAULT: Final = 1_000
"""As gh-ost and pt-osc: clients wait for the rows of one chunk, so it is some ten milliseconds long."""


TOOLS: Final = frozenset({MigrationStrategy.PT_OSC, MigrationStrategy.GH_OST})
"""Third-party programs."""


_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")
"""Names of connections: an address, in the form in which one is given, always has other characters too."""


Lossy = tuple[str, ...] | bool
"""Columns whose values may be lost, as the table writes their names. ``True`` is every column: records of earlier
versions have it."""


class MigrationSpecError(ValueError):
    """A description that cannot be used; the message names the option and what is allowed."""


class StrategyRemovedError(MigrationSpecError):
    """A strategy that earlier versions had."""

    def __init__(self, strategy: MigrationStrategy) -> None:
        super().__init__(
            f"strategy {strategy} was removed in this version. Use online, or pt-osc at MariaDB, and submit the change "
            "as a new migration"
        )


class MigrationSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What must be done, where, and how.

    ``database``, ``replicas`` and ``registry`` are names of the owner's connections file (HEADGATE_CONNECTIONS): no
    request carries an address, a file name or a TLS option. ``context`` groups migrations. ``threads_running_max`` and
    ``lag_seconds_max``: beyond that load of the database, and lag of its replicas, the copy waits. ``replicas`` are
    MariaDB servers that are asked for their lag. ``feed_lags_max``: feed → seconds that it may be behind, or the copy
    waits. ``reverts`` is the id of the migration that this one undoes. ``tool_options`` are passed to pt-osc and gh-ost
    as they are. ``topic`` has the table's changes, for ``online``, and ``registry`` its schemas, if it is in Avro.
    ``keep_way_back``: the old table is kept up to date after the change, so that a revert takes no longer than a
    cut-over. ``must_be_revertible``: a change that could not be reverted is refused, because its author has not agreed.
    ``declarative``: the statement is the CREATE TABLE of the wanted table; the owner adds ``found``, the ALTER that
    leads there.
    """

    statement: str
    database: str
    strategy: MigrationStrategy
    context: str = ""
    allow_concurrent: bool = False
    postpone_launch: bool = False
    postpone_completion: bool = False
    in_order_completion: bool = False
    singleton: bool = False
    singleton_context: bool = False
    declarative: bool = False
    allow_lossy: Lossy = ()
    prefer_instant: bool = False
    retain_artifacts_seconds: float = RETAIN_SECONDS_DEFAULT
    cutover_threshold_seconds: float = 3.0
    force_cutover_after_seconds: float | None = None
    chunk_rows: int = CHUNK_ROWS_DEFAULT
    threads_running_max: int | None = None
    lag_seconds_max: float | None = None
    replicas: tuple[str, ...] = ()
    feed_lags_max: dict[str, float] = {}
    reverts: str | None = None
    tool_options: tuple[str, ...] = ()
    topic: str | None = None
    registry: str | None = None
    keep_way_back: bool = False
    must_be_revertible: bool = False
    found: str = ""


_OLD_FIELDS: Final = frozenset({"password_file", "connection", "replicas", "registry"})
"""Fields of a spec by address: names of files, and addresses."""

_REMOVED_FIELDS: Final = frozenset({"copy_workers"})
"""Fields that earlier versions wrote and that nothing reads any more."""

_BY_ADDRESS: Final = (
    "it has an address, as earlier versions of Headgate wrote it. Submit it again with --database and the name of a "
    "connection"
)


def may_lose(allowed: Lossy, column: str) -> bool:
    """Whether the operator has accepted that values of this column may be lost."""
    return allowed if isinstance(allowed, bool) else column in allowed


def parse_request(text: str | None) -> MigrationSpec:
    """The migration that a request describes. Raises MigrationSpecError, StrategyRemovedError."""
    if _by_address(text) is not None:
        raise MigrationSpecError(
            "--database takes the name of a connection, not an address. Describe the database in a file, set "
            "HEADGATE_CONNECTIONS to the file's path, here and on the owners, and give the name that it has there"
        )
    spec = parse_spec(text)
    if spec.allow_lossy is True:
        raise MigrationSpecError(
            "allow_lossy takes the names of the columns whose values may be lost. Give --allow-lossy COLUMN for each"
        )
    _check_names(spec)
    if spec.chunk_rows != CHUNK_ROWS_DEFAULT and spec.strategy not in TOOLS:
        raise MigrationSpecError(
            f"strategy {spec.strategy} chooses by itself how many rows it copies at a time: --chunk-rows is for pt-osc "
            "and gh-ost. Remove it"
        )
    if spec.strategy not in OFFERED and spec.reverts is None:  # the examination of a revert explains the refusal
        raise StrategyRemovedError(spec.strategy)
    return spec


def parse_spec(text: str | None) -> MigrationSpec:
    """The migration that ``text`` (JSON), a record's spec, describes. Raises MigrationSpecError.

    What an earlier version accepted has an address. If it named a connection as well, that is its ``database``;
    otherwise it has none. Nothing is guessed, because the connection of an address is not known (see ``check_named``).
    """
    by_address = _by_address(text)
    try:
        if by_address is not None:
            rest = {name: value for name, value in by_address.items() if name not in _OLD_FIELDS | _REMOVED_FIELDS}
            return msgspec.convert(rest | {"database": by_address.get("connection") or ""}, MigrationSpec)
        fields = msgspec.json.decode(text or "", type=dict[str, msgspec.Raw])
        kept = {name: value for name, value in fields.items() if name not in _REMOVED_FIELDS}
        spec = msgspec.json.decode(msgspec.json.encode(kept), type=MigrationSpec)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise MigrationSpecError(f"the migration cannot be read: {error}") from error
    _check_options(spec)
    return spec


def check_named(spec: MigrationSpec) -> None:
    """Raise MigrationSpecError for a spec by address: its database is not opened any more."""
    if not spec.database:
        raise MigrationSpecError(_BY_ADDRESS)


def _by_address(text: str | None) -> dict[str, Any] | None:
    """The spec as JSON if its database is an address; None for one by name, and for what cannot be read."""
    try:
        found = msgspec.json.decode(text or "")
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    if not isinstance(found, dict):
        return None
    database = found.get("database")
    is_address = isinstance(database, str) and database != "" and _NAME.match(database) is None
    return found if is_address or found.keys() & {"password_file", "connection"} else None


def _check_names(spec: MigrationSpec) -> None:
    names = [("--database", spec.database), *(("--replica", name) for name in spec.replicas)]
    if spec.registry is not None:
        names.append(("--registry", spec.registry))
    for option, name in names:
        if not _NAME.match(name):
            raise MigrationSpecError(
                f"{option} {name!r} is not the name of a connection. Give a name that the migration service's "
                "HEADGATE_CONNECTIONS file describes: requests carry no addresses"
            )


def _check_options(spec: MigrationSpec) -> None:
    if not THRESHOLD_SECONDS_MIN <= spec.cutover_threshold_seconds <= THRESHOLD_SECONDS_MAX:
        raise MigrationSpecError(
            f"cutover_threshold_seconds is {spec.cutover_threshold_seconds:g}: give {THRESHOLD_SECONDS_MIN:g} to "
            f"{THRESHOLD_SECONDS_MAX:g}"
        )
    if spec.singleton_context and not spec.context:
        raise MigrationSpecError("singleton_context compares contexts: give one with --context")
    if spec.in_order_completion and not spec.context:
        raise MigrationSpecError("in_order_completion is an order within a context: give one with --context")
    if spec.retain_artifacts_seconds < 0 or spec.chunk_rows < 1:
        raise MigrationSpecError("retain_artifacts_seconds cannot be negative, and chunk_rows must be at least 1")
    _check_limits(spec)
    _check_tool(spec)
    if spec.declarative and spec.reverts is not None:
        raise MigrationSpecError("--declarative describes a table, and a revert does not: leave it out")
    if spec.prefer_instant and not _copies(spec):
        raise MigrationSpecError(f"strategy {spec.strategy} tries nothing first: --prefer-instant is for online")
    if spec.topic is not None and spec.strategy is not MigrationStrategy.ONLINE:
        raise MigrationSpecError(f"strategy {spec.strategy} reads no topic: --topic is for online")
    if spec.registry is not None and spec.topic is None:
        raise MigrationSpecError("--registry has the schemas of a topic: name the topic with --topic")
    if spec.keep_way_back and (spec.strategy is not MigrationStrategy.ONLINE or spec.prefer_instant):
        raise MigrationSpecError(
            "--keep-revertible is for strategy online, without --prefer-instant: only that keeps the old table up to "
            "date. Remove --keep-revertible, or choose --strategy online"
        )


def _copies(spec: MigrationSpec) -> bool:
    """Whether Headgate copies the table row by row. Records of strategy triggers have the same options."""
    return spec.strategy in (MigrationStrategy.ONLINE, MigrationStrategy.TRIGGERS)


def _check_limits(spec: MigrationSpec) -> None:
    if spec.threads_running_max is not None and spec.threads_running_max < 1:
        raise MigrationSpecError(f"--max-threads-running must be at least 1, got {spec.threads_running_max}")
    if spec.lag_seconds_max is not None and spec.lag_seconds_max < 0:
        raise MigrationSpecError(f"--max-lag must not be negative, got {spec.lag_seconds_max:g}")
    if not all(seconds >= 0 for seconds in spec.feed_lags_max.values()):
        raise MigrationSpecError("--max-feed-lag must not be negative")
    if spec.replicas and spec.lag_seconds_max is None:
        raise MigrationSpecError("replicas are asked for their lag: give a limit with --max-lag")
    throttles = spec.threads_running_max is not None or spec.lag_seconds_max is not None or spec.feed_lags_max
    if throttles and not _copies(spec):
        raise MigrationSpecError(
            f"strategy {spec.strategy} cannot be slowed down: limits of load and lag are for online"
            + ("; this one takes them as --tool-option" if spec.strategy in TOOLS else "")
        )


def _check_tool(spec: MigrationSpec) -> None:
    if spec.tool_options and spec.strategy not in TOOLS:
        raise MigrationSpecError(f"strategy {spec.strategy} runs no program: --tool-option is for pt-osc and gh-ost")
    if spec.strategy in TOOLS and spec.force_cutover_after_seconds is not None:
        raise MigrationSpecError(f"strategy {spec.strategy} cuts over by itself: --force-cutover-after is not for it")
    if spec.strategy is MigrationStrategy.PT_OSC and (spec.postpone_completion or spec.in_order_completion):
        raise MigrationSpecError(
            "strategy pt-osc renames as soon as it has copied: its completion cannot be postponed, nor ordered"
        )


def written(spec: MigrationSpec) -> str:
    """The spec as it is stored in a record."""
    return msgspec.json.encode(spec).decode()
