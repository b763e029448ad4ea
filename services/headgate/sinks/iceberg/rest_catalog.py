"""An Iceberg REST catalog whose commits are made on exactly the snapshot that was read.

A server checks the requirements of the protocol only: the table's id, its newest snapshot, its schema. It does not see
a change of properties. So each commit of Headgate has a snapshot, if need be one without files (transaction.py), and a
commit is refused unless the newest snapshot is the one that was read.

Nothing that a server answers may change where requests and files go, or which keys are used: of its configuration only
the prefix of its paths is taken.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pydantic import ValidationError
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    RESTError,
    UnauthorizedError,
    ValidationException,
)
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)
from requests.exceptions import HTTPError, RequestException, SSLError, TooManyRedirects

from headgate.databases.address import Target
from headgate.databases.iceberg.address import CATALOG, Place
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.iceberg.exact_table import ExactTable
from headgate.sinks.iceberg.files import listed_files
from headgate.sinks.iceberg.rest_session import CatalogSession
from headgate.sinks.lake.files import ERROR_LENGTH_MAX, Files

__all__ = ["ExactRestCatalog", "rest_errors"]

_PREFIX: Final = "prefix"


class ExactRestCatalog(RestCatalog):
    """See the module. ``files``: the warehouse."""

    def __init__(self, find: Callable[[], Target], place: Place, files: Files) -> None:
        assert place.rest is not None  # noqa: S101 - the caller has checked it
        self.files = files
        self.database_name = place.rest
        self._find = find
        self._token_option = find().options.password_file
        named = {} if place.catalog == CATALOG else {"warehouse": place.catalog}
        super().__init__(place.catalog, uri=place.rest, **named)

    def _create_session(self) -> CatalogSession:
        return CatalogSession(self._find)

    def _refresh_token(self) -> None:
        """Nothing: each request reads the token's file."""

    def _fetch_config(self) -> None:
        given = dict(self.properties)
        super()._fetch_config()
        told = self.properties.get(_PREFIX)
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
        return ExactTable(found, is_moved_by_snapshots=True)

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
        done: CommitTableResponse = super().commit_table(table, (*requirements, *exact), updates)
        return done

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


@contextmanager
def rest_errors(url: str, token: str, doing: str) -> Iterator[None]:
    """Raise errors of a REST catalog as the SinkError that means the same. ``token``: the option with its file."""
    try:
        yield
    except (RequestException, RESTError, ValidationError, ValidationException, NotImplementedError) as error:
        raise _sink_error(error, f"{doing}: the Iceberg catalog at {url}", token) from error


def _sink_error(error: Exception, at: str, token: str) -> SinkError:
    text = str(error)[:ERROR_LENGTH_MAX]
    if isinstance(error, (UnauthorizedError, ForbiddenError)):
        return SinkRefusedError(
            f"{at} has refused a request: {text}. Correct the token in {token}, which is read again for each "
            "request, or give its user the right to create, read and write the tables"
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
