"""The hosts, files and folders that a database address makes a process use, for every kind of database."""

from pathlib import Path
from typing import Final

import msgspec

from headgate.config.secrets import NotPermittedError, check_folder, check_hosts, read_secret, secret
from headgate.databases.errors import DatabaseRefusedError


class Address(msgspec.Struct, frozen=True):
    """An address, taken apart: its one spelling, without a password, and all that it makes a process use.

    ``hosts`` are what it connects to: ``""`` where nothing is named and it is not clear what will be, none if it
    connects to nothing. ``key_file`` is a private key. ``server`` is what all databases on one server have in common,
    such as host and port; empty if the hosts identify it. ``folders`` are local ones that are written to.
    """

    text: str
    hosts: tuple[str, ...]
    key_file: str | None = None
    has_password: bool = False
    server: str = ""
    folders: tuple[Path, ...] = ()


class Options(msgspec.Struct, frozen=True):
    """The options that an address and its password's file were given in, so that errors can name them."""

    address: str
    password_file: str
    place: str
    """What the database is to the user, such as "sink"."""

    @property
    def way_of_secrets(self) -> str:
        """What to do with a secret that was written into an address."""
        return f"Put it into a file on the machines that connect, and name that file in {self.password_file}"


SINK: Final = Options("sink.dsn", "sink.password_file", "sink")


def tls_refused(options: Options, given: list[str]) -> DatabaseRefusedError:
    """That an address has TLS options of its own beside those of a connection."""
    return DatabaseRefusedError(f"{options.address} has {', '.join(given)} beside tls: give them in one of the two")


class Target(msgspec.Struct, frozen=True):
    """A database that a process is asked to open: an address, and the file that has the password.

    ``password_file`` is a name in the folder for secrets, or a whole path in it.
    """

    dsn: str
    password_file: Path | None = None
    options: Options = SINK

    def check(self, address: Address) -> Path | None:
        """The password's file, once all that ``address`` (this one's) names is permitted to this process.

        Raises DatabaseRefusedError for a host or a folder that is not allowed, and for a file that is not in the folder
        for secrets.
        """
        try:
            check_hosts(address.hosts, self.options.address)
            for folder in address.folders:
                check_folder(folder, self.options.address)
            if address.key_file is not None:
                secret(Path(address.key_file).absolute(), f"the private key of {self.options.address},")
            return None if self.password_file is None else secret(self.password_file, self.options.password_file)
        except NotPermittedError as error:
            raise DatabaseRefusedError(str(error)) from error

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
                f"{self.options.password_file} {self.password_file}: cannot read {file}: {why}"
            ) from error
