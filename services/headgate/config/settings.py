"""How one process is set up: environment variables ``HEADGATE_…``, and flags that override them.

``load_settings`` is the only reader of the environment. A nested option uses two underscores
(``HEADGATE_HTTP__PORT``). Any librdkafka property is ``HEADGATE_KAFKA__`` and its own name with ``_`` for each dot. Any
variable may be given as a file instead (``HEADGATE_KAFKA__SASL_PASSWORD_FILE=/run/secrets/kafka``), so that secrets
need not be in an environment. An unknown name is refused with the nearest known one: a setting that is
silently ignored is a setting that an operator relies on.
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial, reduce
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import NODEFAULT, Meta
from msgspec.structs import FieldInfo, fields

from headgate.config.kafka_properties import KNOWN, property_problems
from headgate.config.plugs import SCHEDULERS
from headgate.config.secrets import SECRETS_DIR_DEFAULT, read_secret
from headgate.config.setting_values import value_of
from headgate.config.wording import did_you_mean, nearest
from headgate.eventlog.connection import FIXED_PROPERTIES
from headgate.records.names import check_name
from headgate.runtime.leases import LEASE_SECONDS_MAX, LEASE_SECONDS_MIN

PREFIX: Final = "HEADGATE_"
NESTED: Final = "__"
FILE_SUFFIX: Final = "_FILE"

OTHERS_VARIABLES: Final = ("HEADGATE_CACHE", "HEADGATE_TIME_SCALE")
"""Read elsewhere: where `headgate demo` keeps what it downloads, and how long it waits (provisioning/time_scale.py)."""

OTHERS_PREFIXES: Final = ("HEADGATE_TEST_",)
"""Read by the tests only."""

_SECRET_WORDS: Final = ("password", "secret", "key.pem", "token", "sasl.oauthbearer.config")


class SettingsError(ValueError):
    """A setting that cannot be used: names the variable or flag, what is wrong, and what is allowed."""


class _Section(msgspec.Struct, frozen=True, kw_only=True):
    """Options, or sections of them. Values are checked by ``load_settings``."""


class HttpSettings(_Section, frozen=True):
    """Where /livez, /readyz, /metrics and /version answer."""

    bind: Annotated[str, Meta(description="address to listen on; loopback by default, because it has no login")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65535, description="port; 0 chooses a free one and logs it")] = 8420


class ViewsSettings(_Section, frozen=True):
    """Where `headgate serve views` answers."""

    bind: Annotated[str, Meta(description="address of the views; loopback by default, because they have no login")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65535, description="port of the views; 0 chooses a free one and logs it")] = 8421
    groups: Annotated[
        bool, Meta(description="show each feed's positions as a consumer group, `<cluster>.feed.<feed>`")
    ] = True


class LogSettings(_Section, frozen=True):
    """What is logged and how."""

    format: Annotated[
        Literal["auto", "console", "json"], Meta(description="auto is console on a terminal, json otherwise")
    ] = "auto"
    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="lowest level to write")] = "info"


class SparkSettings(_Section, frozen=True):
    """The Spark session of an agent."""

    master: Annotated[
        str,
        Meta(
            description="any Spark master; executors on other machines get Headgate from the agent, and need "
            "its dependencies"
        ),
    ] = "local[*]"
    cores: Annotated[
        int, Meta(ge=0, description="tasks of one batch; 0 means n of local[n], otherwise this machine's cores")
    ] = 0
    memory: Annotated[str, Meta(pattern=r"^[1-9][0-9]*[kmgKMG]$", description="driver memory")] = "1g"
    jars: Annotated[
        str, Meta(description="the Kafka connector's jars: a directory, or files with commas; empty: the cache")
    ] = ""
    scratch: Annotated[str, Meta(description="folder for Spark's temporary files; empty: the system's")] = ""
    ui: Annotated[bool, Meta(description="serve Spark's web UI; the address is logged")] = False
    ui_port: Annotated[
        int, Meta(ge=0, le=65535, description="port of Spark's web UI, or the next free one; 0 chooses a free one")
    ] = 4040
    properties: Annotated[
        str,
        Meta(description="further Spark properties, one per line; best as a file in the form of spark-defaults.conf"),
    ] = ""


class AgentSettings(_Section, frozen=True):
    """One agent."""

    name: Annotated[
        str, Meta(description="the agent's name, which must stay the same after a restart; default the host's name")
    ] = msgspec.field(default_factory=socket.gethostname)
    capacity_spans: Annotated[int, Meta(ge=1, description="the most spans that the agent runs")] = 1000


class MigrationSettings(_Section, frozen=True):
    """Programs that an owner of schema changes may start."""

    pt_osc: Annotated[str, Meta(description="path of Percona's program, or its name on the PATH")] = (
        "pt-online-schema-change"
    )
    gh_ost: Annotated[str, Meta(description="path of GitHub's program, or its name on the PATH")] = "gh-ost"


class Settings(_Section, frozen=True):
    """All settings of one process. Made by ``load_settings``; flags override the environment."""

    bootstrap: Annotated[str, Meta(description="host:port of one or more brokers, with commas")] = "localhost:9092"
    cluster: Annotated[str, Meta(description="prefix of the control topics; one per Headgate cluster")] = "headgate"
    shards: Annotated[
        int, Meta(ge=1, le=256, description="partitions of the control topics, fixed when they are created")
    ] = 8
    replication_factor: Annotated[
        int, Meta(ge=1, le=32, description="copies of each control topic, when it is created")
    ] = 3
    kafka: Annotated[
        dict[str, str], Meta(description="any librdkafka property, except those that a guarantee depends on")
    ] = msgspec.field(default_factory=dict)
    cloudevents: Annotated[
        bool, Meta(description="give records of the control topics the headers of CloudEvents 1.0 (`ce_…`)")
    ] = False
    lease_seconds: Annotated[
        float,
        Meta(
            gt=LEASE_SECONDS_MIN,
            le=LEASE_SECONDS_MAX,
            description="seconds without a heartbeat after which an owner or a session counts as lost; each "
            "announces its own value",
        ),
    ] = 5.0
    schedulers: Annotated[
        str, Meta(description="a coordinator's schedulers, in the order in which they are called (docs/extending.md)")
    ] = "basic,drain,rebalance,even,split,balance"
    shutdown_seconds: Annotated[
        float, Meta(gt=0, le=300, description="the longest time for a clean stop after SIGTERM")
    ] = 10.0
    secrets_dir: Annotated[
        str, Meta(description="the one folder from which feeds may name secrets (`password_file`, private keys)")
    ] = SECRETS_DIR_DEFAULT
    allowed_hosts: Annotated[
        str, Meta(description="hosts of sinks and registries that feeds may name, with commas; empty: any")
    ] = ""
    allowed_folders: Annotated[
        str,
        Meta(
            description="folders, and places in object stores (s3://bucket/prefix), below which sinks of type delta "
            "and iceberg may write, with commas; empty: none"
        ),
    ] = ""
    connections: Annotated[
        str, Meta(description="file with named connections to databases (docs/configuration.md); empty: none")
    ] = ""
    values_in_errors: Annotated[
        bool,
        Meta(
            description="whether errors, and the output of pt-osc and gh-ost, quote a column's value; they are stored "
            "on topics, logged and shown by the views"
        ),
    ] = False
    http: HttpSettings = HttpSettings()
    views: ViewsSettings = ViewsSettings()
    log: LogSettings = LogSettings()
    spark: SparkSettings = SparkSettings()
    agent: AgentSettings = msgspec.field(default_factory=AgentSettings)
    migration: MigrationSettings = msgspec.field(default_factory=MigrationSettings)

    @property
    def prefix(self) -> str:
        """The prefix of every control topic, dot included."""
        return f"{self.cluster}."


SettingT = TypeVar("SettingT", bound=_Section)

Given = Mapping[str, Any]
"""What was given, nested like the settings: texts of variables, values of flags. Not checked yet."""


def _schedulers(text: str) -> str:
    names = [name.strip() for name in text.split(",")]
    unknown = sorted(set(names) - set(SCHEDULERS.names()))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a scheduler. Choose from {', '.join(SCHEDULERS.names())}")
    if len(set(names)) < len(names):
        raise ValueError("the list names a scheduler twice. Remove one of them")
    return ",".join(names)


OPTIONS: Final[Mapping[tuple[str, ...], str]] = {
    ("bootstrap",): "--bootstrap",
    ("cluster",): "--cluster",
    ("kafka",): "--kafka-property",
    ("shards",): "--shards",
    ("replication_factor",): "--replication-factor",
    ("lease_seconds",): "--lease-seconds",
    ("http", "port"): "--http-port",
    ("http", "bind"): "--http-bind",
    ("log", "format"): "--log-format",
    ("log", "level"): "--log-level",
    ("agent", "name"): "--name",
}
"""Options of commands that set the same as a variable. An error names the one that was used."""


_SAID_DEFAULT: Final[Mapping[tuple[str, ...], str]] = {("agent", "name"): "the host's name"}
"""Defaults that are another value on each machine."""


def with_variable(text: str, *path: str) -> str:
    """The help of an option that sets the same as a variable: ``text`` with the variable, and the default of both."""
    default = _SAID_DEFAULT.get(path) or reduce(getattr, path, Settings())
    shown = f"{default:g}" if isinstance(default, float) else str(default)
    return f"{text} [{_variable(path)}, else {shown}]"


def kafka_property(name: str) -> str:
    """What errors call a property of librdkafka, which is set by a variable or an option."""
    variable = _variable(("kafka", name.replace(".", "_")))
    return f"Kafka property {name} ({variable} or {OPTIONS[('kafka',)]})"


def _kafka_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {name.lower().replace("_", "."): value for name, value in properties.items()}


def _property_problems(given: Mapping[str, str], names: "Names") -> Iterator[str]:
    """Errors about properties that a guarantee depends on, or that librdkafka refuses, with where they were given."""
    places = {key.lower().replace("_", "."): _name(("kafka", key), names) for key in given}
    fixed = [name for name in sorted(places) if name in FIXED_PROPERTIES]
    for name in fixed:
        yield f"{places[name]}: {name} cannot be chosen: {FIXED_PROPERTIES[name]}"
    if not fixed:
        yield from property_problems(_kafka_properties(given), lambda name: places[name])


_CHECKS: Final[Mapping[tuple[str, ...], Callable[[Any], object]]] = {
    ("cluster",): partial(check_name, "cluster"),
    ("schedulers",): _schedulers,
    ("kafka",): _kafka_properties,
    ("agent", "name"): partial(check_name, "agent"),
}
"""What is checked beside an option's type. Each returns the value, and raises ValueError."""


Names: TypeAlias = Mapping[tuple[str, ...], str]
"""Places in the settings → the variable or option that has set it."""


def _made(kind: type[SettingT], given: Given, path: tuple[str, ...], names: Names, errors: list[str]) -> SettingT:
    """Settings of one section, and the sections below it. What is wrong is added to ``errors``."""
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name not in given:
            continue
        place, value = (*path, field.name), given[field.name]
        try:
            if _is_section(field.type):
                values[field.name] = _made(field.type, value, place, names, errors)
            else:
                values[field.name] = _CHECKS.get(place, _unchanged)(_filled(value_of(value, field.type), field))
        except ValueError as error:
            errors.append(f"{_name(place, names)}: {error}")
    errors += [
        f"{_name((*path, name), names)}: this setting does not exist"
        for name in given
        if name not in kind.__struct_fields__
    ]
    return kind(**values)


def _filled(value: object, field: FieldInfo) -> object:
    """The value, which may be an empty text only where the default is one. Raises ValueError."""
    default = field.default if field.default_factory is NODEFAULT else field.default_factory()
    if isinstance(value, str) and isinstance(default, str) and default and not value.strip():
        raise ValueError(f"the value is empty. Set one, or remove the setting to use the default, {default}")
    return value


def _unchanged(value: object) -> object:
    return value


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, _Section)


def _name(path: tuple[str, ...], names: Names) -> str:
    return names.get(path) or _variable(path)


def _variable(path: tuple[str, ...]) -> str:
    return PREFIX + NESTED.join(path).upper()


def _environment() -> tuple[dict[str, Any], dict[tuple[str, ...], str]]:
    """``HEADGATE_…`` as nested options, and their names. Raises SettingsError for a name that no option has."""
    nested: dict[str, Any] = {}
    names: dict[tuple[str, ...], str] = {}
    for name, value in sorted(_ours(os.environ)):
        path = _path(name)
        from_file = path is None and name.endswith(FILE_SUFFIX)
        if from_file:
            path = _path(name.removesuffix(FILE_SUFFIX))
        if path is None:
            raise SettingsError(_unknown(name))
        section = nested
        for step in path[:-1]:
            section = section.setdefault(step, {})
        if path[-1] in section:
            raise SettingsError(f"{name} is given both as a value and as a file. Keep one of them")
        section[path[-1]] = _content(name, value) if from_file else value
        names[path] = name
    return nested, names


def _ours(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith(PREFIX) and name not in OTHERS_VARIABLES and not name.startswith(OTHERS_PREFIXES):
            yield name, value


class Option(NamedTuple):
    """An option that a variable sets. ``default`` is None where it is computed."""

    kind: type
    default: object
    description: str


def _leaves(kind: type[_Section], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Option]]:
    for field in fields(kind):
        place = (*path, field.name)
        if _is_section(field.type):
            yield from _leaves(field.type, place)
        else:
            plain, meta = get_args(field.type)
            yield place, Option(plain, None if field.default is NODEFAULT else field.default, meta.description or "")


@cache
def known_variables() -> Mapping[str, Option]:
    """Every variable there is → the option it sets, in the order of the settings."""
    return {_variable(path): option for path, option in _leaves(Settings)}


_KAFKA: Final = f"{PREFIX}KAFKA{NESTED}"

_PROPERTIES_ENDING_IN_FILE: Final = "SASL_OAUTHBEARER_ASSERTION_"
"""librdkafka's only properties whose own names end in ".file"."""


def _path(variable: str) -> tuple[str, ...] | None:
    """A variable's place in the settings, None if it has none (or if its value is in a file)."""
    if variable.startswith(_KAFKA) and len(variable) > len(_KAFKA):
        name = variable.removeprefix(_KAFKA)
        if name.endswith(FILE_SUFFIX) and not name.startswith(_PROPERTIES_ENDING_IN_FILE):
            return None
        return ("kafka", name.lower())
    if variable == f"{PREFIX}KAFKA" or variable not in known_variables():
        return None
    return tuple(variable.removeprefix(PREFIX).lower().split(NESTED))


_NEAR_ENOUGH: Final = 0.5
"""Half of the letters in common: catches a unit that was left out (LEASE for LEASE_SECONDS)."""


def _unknown(name: str) -> str:
    known = [known for known in known_variables() if known != f"{PREFIX}KAFKA"]
    endings = [variable.removeprefix(PREFIX) for variable in known]
    near = _property_of(name) or nearest(name.removeprefix(PREFIX), endings, cutoff=_NEAR_ENOUGH)
    all_known = f"choose from {', '.join(known)} and {_KAFKA}<LIBRDKAFKA_PROPERTY>"
    return f"{name}: this setting does not exist; {did_you_mean(near and f'{PREFIX}{near}') or all_known}"


def _property_of(name: str) -> str | None:
    """What a property of librdkafka is called whose variable lacks an underscore (HEADGATE_KAFKA_SASL_USERNAME)."""
    one, ending = f"{PREFIX}KAFKA_", name.removeprefix(f"{PREFIX}KAFKA_")
    is_meant = name.startswith(one) and ending.lower().replace("_", ".") in KNOWN
    return f"KAFKA{NESTED}{ending}" if is_meant else None


def _content(name: str, path: str) -> str:
    try:
        return read_secret(Path(path))
    except OSError as error:
        raise SettingsError(
            f"{name}: cannot read {path}: {error.strerror}. Name a file that this user can read"
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{name}: {path} is not UTF-8 text. Write the value in UTF-8") from error


def given_settings(flags: Given | None = None) -> Given:
    """What the environment and the flags give, which override it. None as a flag means "not given".

    Raises SettingsError.
    """
    environment, _ = _environment()
    return _over(environment, _flags(flags or {}))


def load_settings(flags: Given | None = None) -> Settings:
    """The settings of this process. ``flags`` are nested like the settings; None means "not given".

    Raises SettingsError.
    """
    environment, names = _environment()
    flagged = _flags(flags or {})
    given = _over(environment, flagged)
    names |= {place: OPTIONS.get(place) or OPTIONS.get(place[:-1], _variable(place)) for place in _places(flagged)}
    errors: list[str] = []
    settings = _made(Settings, given, (), names, errors)
    errors += _property_problems(given.get("kafka", {}), names)
    if errors:
        raise SettingsError("; ".join(errors))
    return settings


def _flags(flags: Given) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in flags.items():
        if name == "kafka":
            # The environment's spelling, so that a flag replaces the variable of the same property.
            given[name] = {str(key).lower().replace(".", "_"): text for key, text in value.items()}
        elif isinstance(value, Mapping):
            given[name] = _flags(value)
        elif value is not None:
            given[name] = value
    return given


def _places(given: Given, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places in the settings that ``given`` has a value for."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _places(value, (*path, name))
        else:
            yield (*path, name)


def _over(below: Given, above: Given) -> dict[str, Any]:
    """Both, nested; ``above`` wins."""
    both = dict(below)
    for name, value in above.items():
        under = both.get(name)
        both[name] = _over(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return both


def redacted(settings: Settings) -> dict[str, Any]:
    """The settings as nested plain values for people and logs, with every secret hidden."""
    shown: dict[str, Any] = msgspec.to_builtins(settings)
    for name in shown["kafka"]:
        if any(word in name for word in _SECRET_WORDS):
            shown["kafka"][name] = "(hidden)"
    # A name and a value per line; which of them are secrets Spark alone knows.
    lines = settings.spark.properties.replace("=", " ").splitlines()
    shown["spark"]["properties"] = [line.split()[0] for line in lines if line.strip()]
    return shown
