"""Named connections: databases, Kafka clusters and Iceberg catalogs that an operator describes in a file, used by name.

A feed or a migration is stored on a topic. With ``sink.connection: shop`` it holds no address and names no file: those
are in the file that HEADGATE_CONNECTIONS names, on each machine that connects. The file is read again when it changes.
"""

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from pydantic import Field, ValidationError, field_validator, model_validator

from headgate.config.registry_spec import RegistryOptions, RegistrySpec, registry_options
from headgate.config.secrets import CONNECTIONS, NotPermittedError, secret, setting
from headgate.config.store_options import StoreOptions
from headgate.config.strict import Strict
from headgate.config.wording import explained, one_of
from headgate.config.yaml_text import YamlError, load_yaml
from headgate.databases.address import FORMS, AddressOptions, Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.kinds import CONNECTED, KINDS, kind_of


class Use(StrEnum):
    """What a connection may be used for."""

    SINK = "sink"
    """Feeds write to it."""
    SOURCE = "source"
    """``headgate verify`` reads it."""
    MIGRATION = "migration"
    """Schema changes are done there."""


class Approval(StrEnum):
    """Whether a user must approve a schema change before it is done there."""

    NONE = "none"
    REQUIRED = "required"
    """Another user than the one who has submitted it."""


class TlsFiles(Strict):
    """TLS to a server. With ``ca_file`` the server must prove its name by a certificate that this CA has signed."""

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    """The client's private key: a name in the folder for secrets, or a whole path in it."""

    @model_validator(mode="after")
    def _fit_together(self) -> "TlsFiles":
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file: give both or neither")
        if self.ca_file is None:
            raise ValueError("ca_file is missing: without it nothing proves who the server is")
        return self


class Connection(Strict):
    """One database, Kafka cluster or Iceberg catalog: its kind, its address without a password, and its uses."""

    kind: str
    address: str
    password_file: Path | None = None
    """In the folder for secrets, read for each new session."""
    tls: TlsFiles | None = None
    use: frozenset[Use]
    approval: Approval = Approval.NONE
    store: StoreOptions = Field(default_factory=StoreOptions)
    """Of an Iceberg catalog whose warehouse is in an object store."""

    @field_validator("kind")
    @classmethod
    def _known(cls, given: str) -> str:
        if given not in CONNECTED:
            raise ValueError(one_of(given, tuple(CONNECTED)))
        return given

    @model_validator(mode="after")
    def _address_of_its_kind(self) -> "Connection":
        if self.approval is Approval.REQUIRED and Use.MIGRATION not in self.use:
            raise ValueError("approval is about schema changes: add migration to use, or leave it out")
        if self.kind not in KINDS and (others := self.use - {Use.SINK}):
            raise ValueError(f"a connection of kind {self.kind} can be a sink only: remove {', '.join(sorted(others))}")
        try:
            kind = CONNECTED[self.kind]
            is_its = self.address.startswith(kind.schemes) or (
                kind_of(self.address, _options("", Use.SINK), CONNECTED).name == self.kind
            )
            if is_its and kind.address(self.dsn(), _options("", Use.SINK)).has_password:
                raise ValueError("address has a password in it: write it into a file, and name that in password_file")
        except DatabaseRefusedError as error:
            raise ValueError(str(error)) from error
        if not is_its:
            raise ValueError(f"address is not one of kind {self.kind}")
        if self.store != StoreOptions() and self.kind != "iceberg":
            raise ValueError(f"store is for Iceberg catalogs with a warehouse in an object store, not for {self.kind}")
        return self

    def dsn(self) -> str:
        """The address with its TLS options. Raises DatabaseRefusedError."""
        if self.tls is None:
            return self.address
        files = {name: str(file) for name, file in self.tls if file is not None}
        if self.tls.key_file is not None:
            try:
                files["key_file"] = str(secret(self.tls.key_file, "tls.key_file"))
            except NotPermittedError as error:
                raise DatabaseRefusedError(str(error)) from error
        return CONNECTED[self.kind].with_tls(self.address, files, _options("", Use.SINK))


class _File(Strict):
    connections: dict[str, Connection]
    registries: dict[str, RegistrySpec] = Field(default_factory=dict)


def named(
    name: str, use: Use, option: str, *, also: Iterable[Use] = (), or_address: bool = False
) -> tuple[Connection, Target]:
    """The connection of that name, and the database itself, for that use.

    ``option`` is where the name was given, ``also``: other uses that the caller needs it for, ``or_address``: where an
    address may be given as well. Raises DatabaseRefusedError: no file, an unknown name, or not for all these uses.
    """
    address = f"Write an address like {FORMS}, or " if or_address else ""
    add = f"{address}add" if or_address else "Add"
    file, given = _file(name, option, address)
    known = given.connections
    found = known.get(name)
    if found is None:
        raise DatabaseRefusedError(f"{option}: connection {one_of(name, sorted(known))}. {add} it to {file}")
    needed = {use, *also}
    if lacking := sorted(needed - found.use):
        for_it = sorted(other for other, connection in known.items() if needed <= connection.use)
        raise DatabaseRefusedError(
            f"{option}: connection {name} may be used as {', '.join(sorted(found.use)) or 'nothing'}, not as "
            f"{' or '.join(lacking)}. Use another one ({', '.join(for_it) or 'none exists'}), or add "
            f"{' and '.join(lacking)} to its `use` in {file}"
        )
    return found, Target(found.dsn(), found.password_file, _options(name, use), found.store)


def named_registry(name: str, option: str) -> RegistrySpec:
    """The schema registry of that name. ``option`` is where the name was given.

    Raises DatabaseRefusedError: no file, or an unknown name.
    """
    file, given = _file(name, option)
    found = given.registries.get(name)
    if found is None:
        raise DatabaseRefusedError(
            f"{option}: registry {one_of(name, sorted(given.registries))}. Add it to `registries` in {file}"
        )
    return found


def named_registry_options(name: str) -> RegistryOptions:
    """Where the registry of that name is described."""
    return registry_options(f"{CONNECTIONS}: registries.{name}")


def connection_names(use: Use) -> list[str]:
    """Names of the connections for that use, sorted; none if this process has no file. Raises DatabaseRefusedError."""
    known = _known()
    return [] if known is None else sorted(name for name, found in known.connections.items() if use in found.use)


def registry_names() -> list[str]:
    """Names of the schema registries, sorted; none if this process has no file. Raises DatabaseRefusedError."""
    known = _known()
    return [] if known is None else sorted(known.registries)


def _known() -> _File | None:
    file = setting(CONNECTIONS)
    return _read(Path(file)) if file else None


def _file(name: str, option: str, before: str = "") -> tuple[Path, _File]:
    """``before``: another way out than such a file, which the error shows first."""
    file = setting(CONNECTIONS)
    if not file:
        raise DatabaseRefusedError(
            f"{option}: connection {name!r} is unknown, because {CONNECTIONS} is not set. "
            f"{before}{'s' if before else 'S'}et {CONNECTIONS} to the path of a file that describes the connection, "
            "here and on every machine that connects"
        )
    return Path(file), _read(Path(file))


def _options(name: str, use: Use) -> AddressOptions:
    where = f" of connection {name}" if name else ""
    return AddressOptions(f"address{where}", f"password_file{where}", use.value, f"store{where}")


def _read(file: Path) -> _File:
    try:
        stat = file.stat()
        return _parsed(file, stat.st_mtime_ns, stat.st_ino, stat.st_size)
    except OSError as error:
        raise DatabaseRefusedError(
            f"{CONNECTIONS}: cannot read {file}: {error.strerror}. Set it to a YAML file that this user can read"
        ) from error


@lru_cache(maxsize=1)
def _parsed(file: Path, *_version: int) -> _File:
    """The file's content; read again only when it has changed. Raises OSError, DatabaseRefusedError."""
    try:
        data = load_yaml(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise DatabaseRefusedError(f"{CONNECTIONS}: {file} is not UTF-8 text. Write the connections in YAML") from error
    except YamlError as error:
        raise DatabaseRefusedError(f"{CONNECTIONS}: {file}: {error}") from error
    if not isinstance(data, dict):
        found = "is empty" if data is None else "is not a mapping"
        raise DatabaseRefusedError(f"{CONNECTIONS}: {file} {found}. Write `connections:`, and each below it")
    try:
        return _File.model_validate(data)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'file'}: {explained(e)}" for e in error.errors()]
        raise DatabaseRefusedError(f"{CONNECTIONS}: {file}: {'; '.join(lines)}") from error
