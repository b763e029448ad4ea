"""The hosts, files and folders that a database address makes a process use, for every kind of database."""

import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from headgate.config.secrets import NotPermittedError, check_bucket, check_folder, check_hosts, read_secret, secret
from headgate.config.store_options import StoreOptions
from headgate.databases.errors import DatabaseRefusedError


class Address(msgspec.Struct, frozen=True):
    """An address, taken apart: its one spelling, without a password, and all that it makes a process use.

    ``hosts`` are what it connects to: ``""`` where nothing is named and it is not clear what will be, none if it
    connects to nothing. ``key_file`` is a private key. ``server`` is what all databases on one server have in common,
    such as host and port; empty if the hosts identify it. ``database`` and ``user`` are those that a server's
    address names. ``folders`` are local ones that are written to, ``buckets``
    places in object stores, ``s3://bucket/prefix``.
    """

    text: str
    hosts: tuple[str, ...]
    key_file: str | None = None
    has_password: bool = False
    server: str = ""
    folders: tuple[Path, ...] = ()
    buckets: tuple[str, ...] = ()
    database: str = ""
    user: str = ""


class AddressOptions(msgspec.Struct, frozen=True):
    """The options that an address and its password's file were given in, so that errors can name them."""

    address: str
    password_file: str
    place: str
    """What the database is to the user, such as "sink"."""
    store: str = "store"
    """The option with the server of an object store and the files of its keys."""

    @property
    def way_of_secrets(self) -> str:
        """What to do with a secret that was written into an address."""
        return f"Put it into a file on the machines that connect, and name that file in {self.password_file}"


THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts of addresses that do not leave the machine."""

SINK: Final = AddressOptions("sink.dsn", "sink.password_file", "sink", "sink.store")


FORMS: Final = "postgresql://user@host:5432/database or mysql://user@host:3306/database"
"""What an address of a database looks like. Every error about text that is not one shows it."""

_BEHIND_THE_HOST: Final = re.compile("[/?#]")


def check_password(dsn: str, options: AddressOptions) -> None:
    """Raise DatabaseRefusedError for a URL whose password has a character that must be percent-encoded.

    Parsers take such a password for a host, a port, a database or an option, and errors name those.
    """
    authority, *behind = _BEHIND_THE_HOST.split(dsn.partition("://")[2], maxsplit=1)
    if authority.count("@") > 1 or any("@" in each for each in behind):
        raise DatabaseRefusedError(
            f"{options.address} has an @ that does not end a user. Percent-encode user, password and values "
            f"(%40 for @, %2F for /, %3F for ?, %23 for #). {options.way_of_secrets}"
        )


def tls_refused(options: AddressOptions, given: list[str]) -> DatabaseRefusedError:
    """That an address has TLS options of its own beside those of a connection."""
    return DatabaseRefusedError(f"{options.address} has {', '.join(given)} beside tls: give them in one of the two")


class Target(msgspec.Struct, frozen=True):
    """A database that a process is asked to open: an address, and the file that has the password.

    ``password_file`` is a name in the folder for secrets, or a whole path in it. ``store`` is of the buckets that the
    address names.
    """

    dsn: str
    password_file: Path | None = None
    options: AddressOptions = SINK
    store: StoreOptions = StoreOptions()

    def check(self, address: Address) -> Path | None:
        """The password's file, once all that ``address`` (this one's) names is permitted to this process.

        Raises DatabaseRefusedError for a host, a folder or a bucket that is not allowed, and for a file that is not in
        the folder for secrets.
        """
        try:
            check_hosts(address.hosts, self.options.address)
            for folder in address.folders:
                check_folder(folder, self.options.address)
            self.check_store(address.buckets)
            if address.key_file is not None:
                secret(Path(address.key_file).absolute(), f"the private key of {self.options.address},")
            return None if self.password_file is None else secret(self.password_file, self.options.password_file)
        except NotPermittedError as error:
            raise DatabaseRefusedError(str(error)) from error

    @property
    def endpoint(self) -> str:
        """The URL of the object store's server: AWS's, where none is given. Raises DatabaseRefusedError."""
        if self.store.endpoint is not None:
            return self.store.endpoint
        if self.store.region is None:
            raise DatabaseRefusedError(
                f"{self.options.address} names a bucket, and {self.options.store} neither a region of AWS nor the "
                f"server of another store. Give {self.options.store}.region or {self.options.store}.endpoint"
            )
        return f"https://s3.{self.store.region}.amazonaws.com"

    @property
    def key_files(self) -> tuple[Path, ...]:
        """The files with the keys to the object store: id, key and, if there is one, the token. None if none is given.

        Raises NotPermittedError for a file that is not in the folder for secrets.
        """
        given = {
            "access_key_id_file": self.store.access_key_id_file,
            "secret_access_key_file": self.store.secret_access_key_file,
            "session_token_file": self.store.session_token_file,
        }
        return tuple(secret(file, f"{self.options.store}.{name}") for name, file in given.items() if file is not None)

    def check_store(self, buckets: tuple[str, ...]) -> None:
        """Raise NotPermittedError, and DatabaseRefusedError for a store that is not there or is not needed."""
        if not buckets:
            if self.store != StoreOptions():
                raise DatabaseRefusedError(
                    f"{self.options.store} is for tables in an object store, and {self.options.address} names a "
                    f"folder. Remove {self.options.store}, or write the place of the tables as s3://bucket/prefix"
                )
            return
        for bucket in buckets:
            check_bucket(bucket, self.options.address)
        given = "region" if self.store.endpoint is None else "endpoint"
        check_hosts([urlsplit(self.endpoint).hostname or ""], f"{self.options.store}.{given}")
        _ = self.key_files  # each is permitted

    def password(self, address: Address) -> str | None:
        """What the password's file contains now, None without a file. Every session that is opened begins here.

        ``address`` is this one's. Raises DatabaseRefusedError for what ``check`` refuses, and for a file that cannot be
        read.
        """
        file = self.check(address)
        if file is None:
            return None
        try:
            return read_secret(file)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise DatabaseRefusedError(
                f"{self.options.password_file} {self.password_file}: cannot read {file}: {why}. Write the password "
                "into this file, or correct the name"
            ) from error
