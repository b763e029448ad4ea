"""An Iceberg REST catalog whose commits are made on exactly the snapshot that was read.

A server checks the requirements of the protocol only: the table's id, its newest snapshot, its schema. It does not see
a change of properties. So each commit of Headgate has a snapshot, if need be one without files (transaction.py), and a
commit is refused unless the newest snapshot is the one that was read.

Nothing that a server answers may change where requests and files go, which keys are used, or which code runs: of its
configuration only the prefix of its paths, the separator of namespaces in them, and which requests it knows are taken.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote

from pydantic import ValidationError
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    UnauthorizedError,
    ValidationException,
)
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)
from requests.exceptions import HTTPError, RequestException, SSLError, TooManyRedirects

from headgate.databases.address import Target
from headgate.databases.iceberg.address import CATALOG, CatalogLocation
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.iceberg.exact_table import ExactTable
from headgate.sinks.iceberg.files import listed_files
from headgate.sinks.iceberg.rest_session import CatalogSession, leaves_its_folder
from headgate.sinks.lake.files import ERROR_LENGTH_MAX, Files

__all__ = ["ExactRestCatalog", "rest_errors", "token_option"]

_PREFIX: Final = "prefix"


class ExactRestCatalog(RestCatalog):
    """See the module. ``files``: the warehouse."""

    is_moved_by_snapshots: Final = True

    def __init__(self, find: Callable[[], Target], place: CatalogLocation, files: Files) -> None:
        assert place.rest is not None  # noqa: S101 - the caller has checked it
        self.files = files
        self.database_name = place.rest
        self._find = find
        self._token_option = token_option(find, place)
        named = {} if place.catalog is None else {"warehouse": place.catalog}
        super().__init__(place.catalog or CATALOG, uri=place.rest, **named)

    def _create_session(self) -> CatalogSession:
        return CatalogSession(self._find, self.database_name)

    def _refresh_token(self) -> None:
        """Nothing: each request reads the token's file."""

    def _fetch_config(self) -> None:
        given = dict(self.properties)
        try:
            super()._fetch_config()
        except (RequestException, ValidationError):  # both may be ValueError too
            raise
        except (AttributeError, ValueError) as error:
            raise BadRequestError(f"its configuration cannot be read: {error}") from error
        told = self.properties.get(_PREFIX)
        _check_path(str(told or ""), self._namespace_separator)
        self.properties = given if told is None else {**given, _PREFIX: str(told)}
        self.uri = given["uri"]

    def _load_file_io(self, properties: Any = None, location: str | None = None) -> FileIO:  # noqa: ARG002
        # A table's own properties, and the server's, could name another class, server or keys.
        return listed_files(tuple(self.files.iceberg_properties().items()))

    def load(self, identifier: tuple[str, ...]) -> ExactTable | None:
        """A table at its newest version, whose commits are tried once; None if it does not exist."""
        try:
            found = self.load_table(identifier)
        except NoSuchTableError:
            return None
        return ExactTable(found, is_moved_by_snapshots=self.is_moved_by_snapshots)

    def create_namespace_if_not_exists(self, namespace: Any, properties: Any = None) -> None:
        """See Catalog. Servers want those above it first."""
        parts = self.identifier_to_tuple(namespace)
        for number in range(1, len(parts) + 1):
            if not self.namespace_exists(parts[:number]):
                try:
                    self.create_namespace(parts[:number], properties or {})
                except NamespaceAlreadyExistsError:  # by another process, just now
                    continue

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """See Catalog."""
        assert isinstance(table, ExactTable)  # noqa: S101 - no others are committed to
        base = table.base
        exact: tuple[TableRequirement, ...] = (
            AssertTableUUID(uuid=base.table_uuid),
            AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": base.current_snapshot_id}),
            AssertCurrentSchemaId.model_validate({"current-schema-id": base.current_schema_id}),
            AssertDefaultSpecId.model_validate({"default-spec-id": base.default_spec_id}),
        )
        try:
            done: CommitTableResponse = super().commit_table(table, (*requirements, *exact), updates)
        except CommitFailedException as error:
            self._check_not_done(table, updates, error)
            raise
        return done

    def _check_not_done(self, table: Table, updates: tuple[TableUpdate, ...], refused: CommitFailedException) -> None:
        """Raise CommitStateUnknownException if the commit may have been made, because its files must stay then.

        A proxy that gets no answer may send the request again, and that one is refused for what the first has changed.
        """
        made = {each.snapshot.snapshot_id for each in updates if isinstance(each, AddSnapshotUpdate)}
        try:
            found = {each.snapshot_id for each in self.load_table(table.name()).metadata.snapshots}
        except (RequestException, RESTError, ValidationError, NoSuchTableError, SinkError) as error:
            raise CommitStateUnknownException(f"{refused}, and the table cannot be read: {error}") from error
        if made & found:
            raise CommitStateUnknownException(f"{refused}, and the table has the commit") from refused

    @contextmanager
    def as_sink_errors(self, doing: str) -> Iterator[None]:
        """Raise errors of the library, of the server and of files as the SinkError that means the same."""
        with rest_errors(self.database_name, self._token_option, doing):
            try:
                yield
            except RequestException:
                raise
            except OSError as error:
                raise self.files.sink_error(error, doing) from (None if self.files.hides_causes else error)


def _check_path(prefix: str, separator: str) -> None:
    """Raise BadRequestError for what would have requests leave the path of the address, or end it."""
    if leaves_its_folder(prefix) or re.search(r"[?#\\\x00-\x20]", unquote(prefix)):
        raise BadRequestError(f"the prefix {prefix!r} of its paths leaves the path of the address")
    if not separator or re.search(r"[/\\?#]", separator):
        raise BadRequestError(f"its separator of namespaces, {separator!r}, cannot be part of a name in a path")


def token_option(find: Callable[[], Target], place: CatalogLocation) -> str:
    """What people correct where a catalog does not take a token, for people."""
    option = find().options.password_file
    return f"the token in {option}" if place.client is None else f"the secret of client {place.client.id} in {option}"


@contextmanager
def rest_errors(url: str, token: str, doing: str) -> Iterator[None]:
    """Raise errors of a REST catalog as the SinkError that means the same. ``token``: see token_option."""
    try:
        yield
    except (
        RequestException,
        RESTError,
        ValidationError,
        ValidationException,
        NotImplementedError,
        NoSuchNamespaceError,
    ) as error:
        raise _sink_error(error, f"{doing}: the Iceberg catalog at {url}", token) from error


def _sink_error(error: Exception, at: str, token: str) -> SinkError:
    text = str(error)[:ERROR_LENGTH_MAX]
    if isinstance(error, (UnauthorizedError, ForbiddenError)):
        return SinkRefusedError(
            f"{at} has refused a request: {text}. Correct {token}, which is read again for each request, or give its "
            "user the right to create, read and write the tables"
        )
    if isinstance(error, TooManyRedirects):
        return SinkRefusedError(f"{at} redirects to another address. Give that one")
    if isinstance(error, SSLError):
        return SinkRefusedError(f"{at} has a certificate that is not trusted: {text}. Name the CA's file in ca_file")
    if isinstance(error, (BadRequestError, ValidationError, NotImplementedError)):
        return SinkRefusedError(f"{at} does not do what a REST catalog does: {text}. Correct the address")
    if isinstance(error, RequestException) and not isinstance(error, HTTPError):
        return SinkSilentError(f"{at} does not answer: {text}. It is retried")
    return SinkUnavailableError(f"{at} has not done a request: {text}. It is retried")
