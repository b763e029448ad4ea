"""How one process is set up: environment variables ``HEADGATE_…``, and flags that override them.

``load_settings`` is the only reader of the environment. A nested option uses two underscores
(``HEADGATE_HTTP__PORT``). Any librdkafka property is ``HEADGATE_KAFKA__`` and its own name with ``_`` for each dot. Any
variable may be given as a file instead (``HEADGATE_KAFKA__SASL_PASSWORD_FILE=/run/secrets/kafka``), so that secrets
need not stand in an environment. A name nobody knows is refused with the nearest known one: a setting that is
silently ignored is a setting somebody relies on.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from headgate.config.plugs import SCHEDULERS
from headgate.config.secrets import SECRETS_DIR_DEFAULT, read_secret
from headgate.config.wording import explained, nearest
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


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HttpSettings(_Section):
    """Where /livez, /readyz, /metrics and /version answer."""

    bind: str = Field(default="127.0.0.1", description="address; loopback unless you open it, for there is no login")
    port: int = Field(default=8420, ge=0, le=65535, description="port; 0 takes any free one and logs it")


class ViewsSettings(_Section):
    """Where `headgate serve views` answers."""

    bind: str = Field(default="127.0.0.1", description="address of the views; loopback unless you open it, as above")
    port: int = Field(default=8421, ge=0, le=65535, description="port of the views; 0 takes any free one and logs it")
    groups: bool = Field(
        default=True, description="show each feed's positions as a consumer group, `<cluster>.feed.<feed>`"
    )


class LogSettings(_Section):
    """What is logged and how."""

    format: Literal["auto", "console", "json"] = Field(
        default="auto", description="auto is console on a terminal, json otherwise"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least level written")


class SparkSettings(_Section):
    """The Spark session of an agent."""

    master: str = Field(
        default="local[*]",
        description="any Spark master; executors elsewhere are sent Headgate, and need what it depends on",
    )
    cores: int = Field(
        default=0, ge=0, description="tasks of one batch; 0 is what local[n] says, else this machine's cores"
    )
    memory: str = Field(default="1g", pattern=r"^[1-9][0-9]*[kmgKMG]$", description="driver memory")
    jars: str = Field(
        default="", description="the Kafka connector's jars: a directory, or files with commas; empty: the cache"
    )
    scratch: str = Field(default="", description="folder for Spark's temporary files; empty: the system's")
    ui: bool = Field(default=False, description="serve Spark's own web pages; the log says the address")
    ui_port: int = Field(
        default=4040, ge=0, le=65535, description="port of these pages, or the next free one; 0 takes any free one"
    )
    properties: str = Field(
        default="",
        description="further Spark properties, one per line; best as a file in the form of spark-defaults.conf",
    )


class AgentSettings(_Section):
    """One agent."""

    name: str = Field(
        default_factory=socket.gethostname,
        description="who the agent is, the same after a restart; default the host's name",
    )
    capacity_spans: int = Field(default=1000, ge=1, description="most spans the agent takes")

    @field_validator("name")
    @classmethod
    def _usable(cls, name: str) -> str:
        return check_name("agent", name)


class MigrationSettings(_Section):
    """Programs that an owner of schema changes may start."""

    pt_osc: str = Field(
        default="pt-online-schema-change", description="Percona's program, by its name on the PATH or by its path"
    )
    gh_ost: str = Field(default="gh-ost", description="GitHub's program, by its name on the PATH or by its path")


def _property_name(text: str) -> str:
    return text.lower().replace("_", ".")


class Settings(BaseSettings):
    """Everything one process can be told. Made by ``load_settings``; flags override the environment."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    bootstrap: str = Field(default="localhost:9092", description="host:port of one or more brokers, with commas")
    cluster: str = Field(default="headgate", description="prefix of the control topics; one per Headgate cluster")
    shards: int = Field(
        default=8, ge=1, le=256, description="partitions of the control topics, fixed when they are created"
    )
    replication_factor: int = Field(
        default=3, ge=1, le=32, description="copies of each control topic, when it is created"
    )
    kafka: dict[str, str] = Field(
        default_factory=dict, description="any librdkafka property that no guarantee rests on"
    )
    cloudevents: bool = Field(
        default=False, description="give records of the control topics the headers of CloudEvents 1.0 (`ce_…`)"
    )
    lease_seconds: float = Field(
        default=5.0,
        gt=LEASE_SECONDS_MIN,
        le=LEASE_SECONDS_MAX,
        description="silence after which an owner or a session is taken for lost; each announces its own",
    )
    schedulers: str = Field(
        default="basic,drain,rebalance,even,split,balance",
        description="a coordinator's schedulers, in the order in which they are asked (docs/extending.md)",
    )
    shutdown_seconds: float = Field(default=10.0, gt=0, le=300, description="longest clean stop after SIGTERM")
    secrets_dir: str = Field(
        default=SECRETS_DIR_DEFAULT,
        description="the one folder from which feeds may name secrets (`password_file`, private keys)",
    )
    allowed_hosts: str = Field(
        default="", description="hosts of sinks and registries that feeds may name, with commas; empty: any"
    )
    connections: str = Field(
        default="",
        description="file with named connections to databases (docs/configuration.md); empty: none",
    )
    values_in_errors: bool = Field(
        default=False,
        description="whether errors, and the output of pt-osc and gh-ost, quote a column's value; they are stored on "
        "topics, logged and shown by the views",
    )
    http: HttpSettings = HttpSettings()
    views: ViewsSettings = ViewsSettings()
    log: LogSettings = LogSettings()
    spark: SparkSettings = SparkSettings()
    agent: AgentSettings = Field(default_factory=AgentSettings)
    migration: MigrationSettings = Field(default_factory=MigrationSettings)

    @field_validator("cluster")
    @classmethod
    def _cluster_name(cls, name: str) -> str:
        return check_name("cluster", name)

    @field_validator("schedulers")
    @classmethod
    def _known_schedulers(cls, text: str) -> str:
        names = [name.strip() for name in text.split(",")]
        unknown = sorted(set(names) - set(SCHEDULERS.names()))
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no scheduler; there are: {', '.join(SCHEDULERS.names())}")
        if len(set(names)) < len(names):
            raise ValueError("a scheduler is named twice")
        return ",".join(names)

    @field_validator("kafka", mode="before")
    @classmethod
    def _properties(cls, properties: Any) -> Any:
        if not isinstance(properties, Mapping):
            return properties
        named = {_property_name(str(name)): value for name, value in properties.items()}
        for name in sorted(named):
            if name in FIXED_PROPERTIES:
                raise ValueError(f"{name} cannot be chosen: {FIXED_PROPERTIES[name]}")
        return named

    @property
    def prefix(self) -> str:
        """What stands before the name of every control topic, dot included."""
        return f"{self.cluster}."

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then our environment; pydantic's own reader would ignore names it does not know."""
        return (init_settings, _Environment(settings_cls))


class _Environment(PydanticBaseSettingsSource):
    """``HEADGATE_…`` as nested options; refuses what no option is called."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Unused: the whole environment is read at once, to see names that belong to no field."""
        raise NotImplementedError(field_name)

    def __call__(self) -> dict[str, Any]:
        nested: dict[str, Any] = {}
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
                raise SettingsError(f"{name}: given twice, as a value and as a file: keep one")
            section[path[-1]] = _content(name, value) if from_file else value
        return nested


def _ours(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith(PREFIX) and name not in OTHERS_VARIABLES and not name.startswith(OTHERS_PREFIXES):
            yield name, value


def _leaves(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _leaves(kind, (*path, name))
        else:
            yield (*path, name), field


def known_variables() -> dict[str, FieldInfo]:
    """Every variable there is → the option it sets, in the order of the settings."""
    return {PREFIX + NESTED.join(path).upper(): field for path, field in _leaves(Settings)}


_KAFKA: Final = f"{PREFIX}KAFKA{NESTED}"

_PROPERTIES_ENDING_IN_FILE: Final = "SASL_OAUTHBEARER_ASSERTION_"
"""librdkafka's only properties whose own names end in ".file"."""


def _path(variable: str) -> tuple[str, ...] | None:
    """Where in the settings a variable stands, None if nowhere (or if its value is in a file)."""
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
    near = nearest(name.removeprefix(PREFIX), endings, cutoff=_NEAR_ENOUGH)
    hint = (
        f"did you mean {PREFIX}{near}?" if near else f"known are {', '.join(known)} and {_KAFKA}<LIBRDKAFKA_PROPERTY>"
    )
    return f"{name}: no such setting; {hint}"


def _content(name: str, path: str) -> str:
    try:
        return read_secret(Path(path))
    except OSError as error:
        raise SettingsError(f"{name}: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{name}: {path} is not UTF-8 text") from error


def load_settings(flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of this process. ``flags`` are nested like the settings; None means "not given".

    Raises SettingsError.
    """
    try:
        return Settings(**_given(flags or {}))
    except ValidationError as error:
        raise SettingsError("; ".join(_explained(detail) for detail in error.errors())) from error


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in flags.items():
        if name == "kafka":
            # The environment's spelling, so that a flag replaces the variable of the same property.
            given[name] = {str(key).lower().replace(".", "_"): text for key, text in value.items()}
        elif isinstance(value, Mapping):
            given[name] = _given(value)
        elif value is not None:
            given[name] = value
    return given


def _explained(detail: Any) -> str:
    path = tuple(map(str, detail["loc"]))
    variable = PREFIX + NESTED.join(path).upper() if path else "settings"
    return f"{variable}: {explained(detail)}"


def redacted(settings: Settings) -> dict[str, Any]:
    """The settings as nested plain values for people and logs, with every secret hidden."""
    shown = settings.model_dump(mode="json")
    for name in shown["kafka"]:
        if any(word in name for word in _SECRET_WORDS):
            shown["kafka"][name] = "(hidden)"
    # A name and a value per line; which of them are secrets Spark alone knows.
    lines = settings.spark.properties.replace("=", " ").splitlines()
    shown["spark"]["properties"] = [line.split()[0] for line in lines if line.strip()]
    return shown
