"""The tables of a lake in an object store that speaks S3's protocol (docs/adr/0138).

Nothing that libraries read from the environment may change which server is used, or how a file is created: all of that
is given to them. Only keys may come from there, where the feed names no files.
"""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec

from headgate.config.ca_files import why_not_ca
from headgate.config.secrets import NotPermittedError, read_secret
from headgate.databases.address import Target
from headgate.databases.buckets import bucket_of
from headgate.databases.errors import DatabaseRefusedError
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkUnavailableError
from headgate.sinks.lake.files import LostFileError
from headgate.sinks.lake.names import LEDGERS
from headgate.sinks.lake.store_errors import Told, code_in, is_certain, store_error
from headgate.sinks.lake.store_trials import PassedTrials, Trial
from headgate.supervision.threads import BackgroundPool

__all__ = ["CA_FILE", "Access", "StoreFiles"]

REGION: Final = "us-east-1"
"""Where a server other than AWS's names no region, it takes this one."""

CONNECT_SECONDS: Final = 5
ANSWER_SECONDS: Final = 60
"""For one request: a part of a file of some megabytes, on a slow line."""

SMALL_SECONDS: Final = 5
"""For one request of a ledger. delta-rs lets no other thread of the process run while it writes a table's properties,
and an agent's lease must not run out in front of a server that has fallen silent."""

RETRIES: Final = 3
RETRY_SECONDS: Final = 20
"""For all attempts of one request. Then the table is retried as at any sink that does not answer."""

CA_FILE: Final = "headgate.ca-file"
"""The property by which ``iceberg/files.py`` learns of the CA. pyiceberg has none for it."""

_TOKEN: Final = "AWS_SESSION_TOKEN"  # noqa: S105 - its name

_PASSED: Final = PassedTrials()

CONTENDERS: Final = 8
"""Of one name at once, in the trial: a server that first looks and then writes lets more than one of them win."""


class Access(msgspec.Struct, frozen=True):
    """How the store is used now. ``keys``: id, key and, if there is one, the token; none if the machine has them.

    ``ca_file``: whose signature the server's certificate may have; None for those that the libraries trust.
    """

    endpoint: str
    region: str
    keys: tuple[str, ...]
    ca_file: Path | None = None

    def __repr__(self) -> str:
        """Without keys."""
        return f"Access({self.endpoint}, {self.region})"

    def __rich_repr__(self) -> Any:
        """The same for tracebacks with local values."""
        yield self.endpoint

    @property
    def named_keys(self) -> dict[str, str]:
        """By AWS's names of them."""
        return dict(zip(("access_key_id", "secret_access_key", "session_token"), self.keys, strict=False))

    @property
    def is_plain(self) -> bool:
        """Whether it is used over http."""
        return self.endpoint.startswith("http:")

    def delta_options(self, *, is_small: bool) -> dict[str, str]:
        """As delta-rs takes it. ``is_small``: for files of a ledger."""
        return {
            "aws_endpoint": self.endpoint,
            "aws_endpoint_url_s3": self.endpoint,  # a variable of this name would win otherwise
            "aws_region": self.region,
            "aws_virtual_hosted_style_request": "false",
            "aws_allow_http": str(self.is_plain).lower(),
            "aws_conditional_put": "etag",  # a commit creates its file, or fails
            "aws_skip_signature": "false",
            "connect_timeout": f"{CONNECT_SECONDS}s",
            "timeout": f"{SMALL_SECONDS if is_small else ANSWER_SECONDS}s",
            "max_retries": str(1 if is_small else RETRIES),
            "retry_timeout": f"{SMALL_SECONDS if is_small else RETRY_SECONDS}s",
            **({} if self.ca_file is None else {"certificate_path": str(self.ca_file)}),
            **{f"aws_{name}": value for name, value in self.named_keys.items()},
        }

    def iceberg_properties(self) -> dict[str, str]:
        """As pyiceberg takes it."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": self.region,
            "s3.connect-timeout": str(CONNECT_SECONDS),
            **({} if self.ca_file is None else {CA_FILE: str(self.ca_file)}),
            **{f"s3.{name.replace('_', '-')}": value for name, value in self.named_keys.items()},
        }


class StoreFiles:
    """A place in a store. ``find`` is asked for each use, because keys may be replaced at any time.

    ``is_exclusive``: whether tables are fenced by files that are created only where there is none.
    """

    hides_causes: Final = True

    def __init__(self, find: Callable[[], Target], place: str, *, is_exclusive: bool) -> None:
        self._find = find
        self._place = place
        self._is_exclusive = is_exclusive
        self._is_checked = False

    def where(self, path: Path) -> str:
        """See Files. delta-rs looks for some files of a table under another name if that has a space."""
        if " " in path.as_posix():
            raise SinkRefusedError(
                f"table {'.'.join(path.parts)}: names of tables in an object store must not have spaces. Choose "
                "another name in sink.table"
            )
        return f"{self._place}/{path.as_posix()}"

    def access(self) -> Access:
        """How the store is used now, once it is permitted. Raises SinkRefusedError."""
        target = self._find()
        try:
            target.check_store((self._place,))
            keys = tuple(_key(file, target.options.store) for file in target.key_files)
        except (NotPermittedError, DatabaseRefusedError) as error:
            raise SinkRefusedError(str(error)) from error
        if keys and target.store.session_token_file is None and os.environ.get(_TOKEN):
            raise SinkRefusedError(
                f"{target.options.store} names an access key without a token, and this process has the variable "
                f"{_TOKEN}, which libraries would send with it. Unset the variable, or give "
                f"{target.options.store}.session_token_file"
            )
        return Access(target.endpoint, target.store.region or REGION, keys, _ca_file(target))

    def delta_options(self, *, is_small: bool) -> dict[str, str]:
        """See Files."""
        return self.access().delta_options(is_small=is_small)

    def iceberg_properties(self) -> dict[str, str]:
        """See Files."""
        return self.access().iceberg_properties()

    def may_have(self, path: Path) -> bool:  # noqa: ARG002
        """See Files. A store has no folders."""
        return True

    def make_room(self, path: Path) -> None:
        """See Files. A store has no folders."""

    def read(self, path: Path) -> bytes | None:
        """See Files."""
        import obstore  # noqa: PLC0415 - only lakes in object stores need it
        from obstore.exceptions import BaseError, NotFoundError  # noqa: PLC0415

        try:
            return obstore.get(self._store(), path.as_posix()).bytes().to_bytes()
        except (NotFoundError, FileNotFoundError) as error:
            if code_in(str(error)) == "NoSuchBucket":
                raise self.sink_error(error, f"reading {self.where(path)}") from None
            return None
        except (BaseError, OSError) as error:
            raise self.sink_error(error, f"reading {self.where(path)}") from None

    def remove(self, paths: Sequence[Path]) -> None:
        """See Files. A file that was removed by another program is removed."""
        import obstore  # noqa: PLC0415 - see above
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            obstore.delete(self._store(), [path.as_posix() for path in paths])
        except (BaseError, OSError) as error:
            raise self.sink_error(error, f"removing files of {self._place}") from None

    def check(self, *, again: bool) -> None:
        """See Files. The store is tried once for as long as this object lives, or, unless ``again``, this process."""
        if self._is_checked:
            return
        trial = Trial(self.access().endpoint, self._place, self._is_exclusive)
        if not again and trial in _PASSED:
            return
        import obstore  # noqa: PLC0415 - see above
        from obstore.exceptions import BaseError, NotFoundError  # noqa: PLC0415

        doing = f"trying {self._place}"
        store, name = self._store(), f"{LEDGERS}/trial-{uuid4().hex}"
        try:
            _list(store)
            try:
                winners = _create(store, name) if self._is_exclusive else _write(store, name)
            finally:
                with suppress(NotFoundError, FileNotFoundError):  # nothing was written
                    obstore.delete(store, name)
        except (BaseError, OSError) as error:
            raise self.sink_error(error, doing) from None
        if not winners:
            raise SinkUnavailableError(f"{doing}: the answer to the writer of a file was lost. It is retried")
        if winners > 1:
            raise SinkRefusedError(
                f"{doing}: the object store at {self._find().endpoint} has let {winners} writers create one file, so "
                "it ignores the condition If-None-Match, or does not check it in one step with the write. Two agents "
                "could overwrite each other's commits there. Use a store that honours it (S3, MinIO, Ceph since its "
                "release of 2024), or upgrade this one"
            )
        self._is_checked = True
        _PASSED.add(trial)

    def sink_error(self, error: Exception, doing: str) -> SinkError:
        """See Files. Where the answer to a HEAD did not contain a reason, the store is asked once more."""
        target = self._find()
        told = Told(
            endpoint=target.endpoint,
            place=self._place,
            bucket=bucket_of(self._place)[0],
            store=target.options.store,
            address=target.options.address,
            has_files=target.store.access_key_id_file is not None,
        )
        text = str(error)
        if not is_certain(text) or isinstance(error, FileNotFoundError):
            why = self._why()  # the bucket may not exist
            if isinstance(error, LostFileError) and why is None:
                return error.sink_error(doing)
            text = why or text
        return store_error(text, doing, told)

    def _why(self) -> str | None:
        """What the store answers to a listing, if that is an error."""
        from obstore.exceptions import BaseError  # noqa: PLC0415 - see above

        try:
            _list(self._store())
        except (BaseError, OSError) as error:
            return str(error)
        return None

    def _store(self) -> Any:
        from obstore.store import S3Store  # noqa: PLC0415 - see above

        access, (bucket, prefix) = self.access(), bucket_of(self._place)
        keys: dict[str, Any] = dict(access.named_keys)
        return S3Store(
            bucket,
            prefix=prefix or None,
            endpoint=access.endpoint,
            aws_endpoint_url_s3=access.endpoint,  # see Access.delta_options
            region=access.region,
            virtual_hosted_style_request=False,
            conditional_put="etag",
            skip_signature=False,
            client_options={
                "allow_http": access.is_plain,
                "connect_timeout": f"{CONNECT_SECONDS}s",
                "timeout": f"{ANSWER_SECONDS}s",
                **({} if access.ca_file is None else {"root_certificate": access.ca_file.read_bytes()}),
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
            **keys,
        )


def _list(store: Any) -> None:
    """One answer to a listing."""
    import obstore  # noqa: PLC0415 - see above

    next(iter(obstore.list(store, LEDGERS)), None)


def _create(store: Any, name: str) -> int:
    """How many of the writers that create one file at once, and of one after them, get the answer that they have."""
    import obstore  # noqa: PLC0415 - see above
    from obstore.exceptions import AlreadyExistsError, BaseError  # noqa: PLC0415

    def creates(number: int) -> bool | Exception:
        try:
            obstore.put(store, name, str(number).encode(), mode="create")
        except AlreadyExistsError:
            return False
        except (BaseError, OSError) as error:
            return error
        return True

    pool = BackgroundPool(CONTENDERS, "store-trial")
    try:
        futures = [pool.submit(creates, number) for number in range(CONTENDERS)]
        outcomes = [each.result() for each in futures]
    finally:
        pool.shutdown()
    outcomes.append(creates(CONTENDERS))
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes.count(True)


def _write(store: Any, name: str) -> int:
    import obstore  # noqa: PLC0415 - see above

    obstore.put(store, name, b"")
    return 1


def _ca_file(target: Target) -> Path | None:
    """The file with the CA's certificates. Raises SinkRefusedError for one that a library would fail at, or ignore."""
    file = target.store.ca_file
    if file is None:
        return None
    why = why_not_ca(file)
    if why is not None:
        raise SinkRefusedError(
            f"{target.options.store}.ca_file: {why}. Put the file with the CA's certificate wherever coordinators and "
            "agents run, readable for them, or correct the option"
        )
    return file


def _key(file: Path, store: str) -> str:
    try:
        found = read_secret(file)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DatabaseRefusedError(f"{store}: cannot read {file}: {why}") from error
    if not found or re.search(r"\s", found):  # not quoted: it may be a key
        raise DatabaseRefusedError(f"{store}: {file} must contain one word, without spaces and other lines")
    return found
