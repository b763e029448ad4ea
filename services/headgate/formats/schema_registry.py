"""Schemas by id, from a registry with Confluent's REST API: Confluent's, Karapace, Apicurio and others.

Feeds ask two questions: ``GET /schemas/ids/<id>``, and, when a feed is created, ``GET /schemas/types``, whose
answer shows that there is a registry, that it lets us in and that it has Avro. A decoder asks once per id and
remembers, so connections are not kept. A sink that writes Avro registers its schemas: ``POST
/subjects/<subject>/versions``, and asks ``POST /compatibility/subjects/<subject>/versions/latest`` when a feed is
created. app/schema_registration.py writes by ``send``.

A registry that does not answer, or answers anything but what a registry would, is unavailable: the events wait, they
are not bad. An answer about one schema or subject does not count for others. An id that the registry does not know
makes its event bad, but only once the registry has reported so for a while: a registry of several nodes may hear of a
new id after the first event of that schema has been read.

This client is hand-written instead of confluent-kafka's (2.16), because that reads an answer whole however long it is,
and needs twelve more packages on every executor. What it lacks is OAuth.
"""

import ssl
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypedDict
from urllib.parse import quote, urlsplit

import msgspec
import urllib3

from headgate.config.ca_files import why_not_ca
from headgate.config.registry_spec import RegistryOptions, RegistrySpec, registry_options
from headgate.config.secrets import NotPermittedError, check_hosts, read_secret, secret
from headgate.config.source_spec import SourceSpec
from headgate.formats.change import DATA_ERRORS, ChangeError
from headgate.formats.decoding import SchemasUnavailableError

CONNECT_SECONDS_MAX: Final = 2.0
ANSWER_SECONDS_MAX: Final = 4.0
"""A task waits in the meantime, and its other tables with it."""

PAUSE_SECONDS: Final = 1.0
"""After a failure nothing is asked for so long: a hundred tables must not wait in turn for one dead registry."""

SILENT_PAUSE_SECONDS: Final = 30.0
"""The same after a time-out, which has held up a task for seconds. Tables that need no schema must keep their pace."""

UNKNOWN_SECONDS: Final = 5.0
"""For so long an id that is not known may be one that is not known yet."""

UNKNOWN_MAX: Final = 1024
"""Unknown ids remembered; the oldest is let go first."""

ANSWER_BYTES_MAX: Final = 16 << 20
"""A table of 4 096 columns has a schema of about 2 MB."""

NOT_FOUND: Final = 404
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
INCOMPATIBLE: Final = 409
_OF_ONE_SCHEMA: Final = frozenset({400, INCOMPATIBLE, 413, 422})
"""Answers that are about one schema only: invalid, incompatible, too large, or against the subject's rules."""
OK: Final = 200

ID_MAX: Final = 2**31 - 1
"""An id is a Java int, and has four bytes in front of a record."""


_OF_CLIENT: Final = frozenset(
    {
        "TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED", "SSLV3_ALERT_CERTIFICATE_UNKNOWN", "TLSV1_ALERT_ACCESS_DENIED",
    }
)  # fmt: skip
"""Alerts by which a server refuses the client's certificate, in OpenSSL's words."""

REASON_CHARACTERS_MAX: Final = 600
"""Characters of a rejection that are shown. Some registries begin with the schema, others end with it."""


class RegistryRefusedError(SchemasUnavailableError):
    """The registry refuses access, or this process must not use what the feed names: an operator has to correct it."""


class AccessDeniedError(RegistryRefusedError):
    """The registry refuses access to one schema or subject. It may give access to others."""


class SchemaNotTakenError(Exception):
    """A registry rejects a schema. ``status`` is the answer's, the message is the registry's reason."""

    def __init__(self, status: int, reason: str) -> None:
        """``reason``: with the status in front."""
        super().__init__(reason)
        self.status = status


class SchemaAnswer(msgspec.Struct):
    """What a registry has under an id. ``schemaType`` is left out for Avro."""

    schema: str
    schemaType: str = "AVRO"  # noqa: N815 - the interface's name
    references: list[Any] = []


class _Problem(msgspec.Struct):
    error_code: int
    message: str = ""


class _Registered(msgspec.Struct):
    id: Annotated[int, msgspec.Meta(gt=0, le=ID_MAX)]


class _Compatibility(msgspec.Struct):
    is_compatible: bool
    messages: list[str] | None = None


class _Files(TypedDict, total=False):
    """Of a connection by TLS, under urllib3's names."""

    ca_certs: str
    cert_file: str
    key_file: str


class SchemaRegistry:
    """One feed's registry. Not for more than one thread."""

    def __init__(
        self, spec: RegistrySpec, options: RegistryOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """No connection is made yet; the password is read each time one is. ``options``: where ``spec`` is given."""
        self._spec = spec
        self._options = options
        self._clock = clock
        self._unknown_since: dict[int, float] = {}
        self._down: tuple[float, SchemasUnavailableError] | None = None

    def schema(self, schema_id: int) -> str:
        """The schema's JSON. Raises ChangeError if there is none of that id, SchemasUnavailableError."""
        status, body = self._ask(f"/schemas/ids/{schema_id}")
        if status == NOT_FOUND and decoded(body, _Problem) is not None:
            raise self._unknown(schema_id)
        if status != OK:
            raise self._refused(status, f"a request for schema {schema_id}", body)
        self._unknown_since.pop(schema_id, None)
        answer = decoded(body, SchemaAnswer)
        if answer is None:
            raise self._failed("the server there is not a schema registry", self._correct_url)
        if answer.schemaType != "AVRO" or answer.references:
            what = "refers to other schemas" if answer.references else f"is of type {answer.schemaType}, not AVRO"
            raise ChangeError(
                f"schema {schema_id} of the registry at {self._spec.url} {what}, which Headgate cannot read"
            )
        return str(answer.schema)

    def register(self, subject: str, schema: str) -> int:
        """The id of an Avro schema, which is registered under the subject unless it is already.

        Raises SchemaNotTakenError, AccessDeniedError, SchemasUnavailableError. The first two do not keep other
        schemas from being registered.
        """
        status, body = self._ask(f"/subjects/{quote(subject, safe='')}/versions", "POST", {"schema": schema})
        if status in _OF_ONE_SCHEMA or (status == NOT_FOUND and decoded(body, _Problem) is not None):
            raise SchemaNotTakenError(status, f"{status}{problem_said(status, body, REASON_CHARACTERS_MAX)}")
        if status != OK:
            raise self._refused(status, f"a schema of subject {subject}", body)
        given = decoded(body, _Registered)
        if given is None:
            raise self._failed("the server there is not a schema registry", self._correct_url)
        return int(given.id)

    def incompatibility(self, subject: str, schema: str) -> str | None:
        """Why the subject would not take an Avro schema, by its newest one; None if it would, or has none yet.

        Raises AccessDeniedError, SchemasUnavailableError. A registry that is read-only is not noticed.
        """
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        status, body = self._ask(path, "POST", {"schema": schema})
        if status == NOT_FOUND and decoded(body, _Problem) is not None:
            return None
        if status in _OF_ONE_SCHEMA:
            return f"{status}{problem_said(status, body, REASON_CHARACTERS_MAX)}"
        answer = decoded(body, _Compatibility) if status == OK else None
        if answer is None:
            raise self._refused(status, f"a question about subject {subject}", body)
        if answer.is_compatible:
            return None
        return _shortened("; ".join(answer.messages or ()), REASON_CHARACTERS_MAX) or "it gives no reason"

    def check(self) -> None:
        """Raise SchemasUnavailableError, unless a registry that has Avro answers and lets us in."""
        status, body = self._ask("/schemas/types")
        types = decoded(body, list[str]) if status == OK else None
        if types is None:
            raise self._refused(status, "a request for its schema types", body)
        if "AVRO" not in types:
            raise self._failed(f"it does not support Avro, only {', '.join(types)}", self._correct_url)

    def send(self, method: str, path: str, body: Mapping[str, object] | None = None) -> tuple[int, bytes]:
        """The status and the body of any other answer. Raises SchemasUnavailableError if there is none."""
        return self._ask(path, method, body)

    def _ask(self, path: str, method: str = "GET", body: Mapping[str, object] | None = None) -> tuple[int, bytes]:
        down = self._down
        if down is not None and self._clock() < down[0]:
            raise type(down[1])(str(down[1]))
        self._down = None
        try:
            return self._answer(method, self._spec.url.rstrip("/") + path, body)
        except AccessDeniedError:
            raise
        except RegistryRefusedError as error:
            self._pause(error, PAUSE_SECONDS)
            raise
        except urllib3.exceptions.HTTPError as error:
            is_silent = isinstance(error, urllib3.exceptions.TimeoutError)
            pause = SILENT_PAUSE_SECONDS if is_silent else PAUSE_SECONDS
            if _is_about_client(error):
                raise self._failed(_plain(error), self._correct_client, RegistryRefusedError) from error
            todo = self._check_certificate if isinstance(error, urllib3.exceptions.SSLError) else self._check_server
            raise self._failed(_plain(error), todo, pause=pause) from error
        except (OSError, UnicodeDecodeError) as error:  # the password's file, the authority's file
            whole = self._options.whole
            todo = f"Correct {whole}, or the file on the machines that connect"
            raise self._failed(str(error), todo, RegistryRefusedError) from error
        except NotPermittedError as error:
            raise self._failed(str(error), "", RegistryRefusedError) from error

    def _answer(self, method: str, url: str, given: Mapping[str, object] | None) -> tuple[int, bytes]:
        spec = self._spec
        check_hosts([urlsplit(url).hostname or ""], self._options.url)
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", "Connection": "close"}
        if spec.user is not None and spec.password_file is not None:
            password = read_secret(secret(spec.password_file, f"{self._options.whole}.password_file"))
            headers |= urllib3.make_headers(basic_auth=f"{spec.user}:{password}")
        if given is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        content = None if given is None else msgspec.json.encode(given)
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS_MAX, read=ANSWER_SECONDS_MAX)
        with (
            urllib3.PoolManager(1, retries=False, timeout=timeout, cert_reqs="CERT_REQUIRED", **self._files()) as pool,
            pool.request(method, url, body=content, headers=headers, preload_content=False) as response,
        ):
            body = response.read(ANSWER_BYTES_MAX + 1)
        if len(body) > ANSWER_BYTES_MAX:
            raise urllib3.exceptions.HTTPError(f"it answers with more than {ANSWER_BYTES_MAX} bytes")
        if response.status in (_UNAUTHORIZED, _FORBIDDEN):
            kind = AccessDeniedError if response.status == _FORBIDDEN else RegistryRefusedError
            todo = f"Correct {self._options.login}, or give the user the right"
            raise kind(self._text(f"it refuses access ({response.status}{problem_said(response.status, body)})", todo))
        return response.status, body

    def _files(self) -> _Files:
        """Whose certificates are trusted, and the client's own, as urllib3 takes them. Raises OSError."""
        spec = self._spec
        for name, file in (("ca_file", spec.ca_file), ("certificate_file", spec.certificate_file)):
            if file is not None and (why := why_not_ca(file)) is not None:
                raise OSError(f"{self._options.whole}.{name}: {why}")
        found: _Files = {} if spec.ca_file is None else {"ca_certs": str(spec.ca_file)}
        if spec.certificate_file is not None and spec.key_file is not None:
            key = secret(spec.key_file, f"{self._options.whole}.key_file")
            try:  # a context of its own, because errors of the connection's do not name the files
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(spec.certificate_file, key, _no_password)
            except OSError as error:  # ssl.SSLError is one
                raise OSError(
                    f"{self._options.whole}.certificate_file and key_file: {spec.certificate_file} and {key} are not a "
                    f"certificate and its private key without a password ({error.strerror or error})"
                ) from error
            found["cert_file"], found["key_file"] = str(spec.certificate_file), str(key)
        return found

    def _unknown(self, schema_id: int) -> ChangeError | SchemasUnavailableError:
        now = self._clock()
        if schema_id not in self._unknown_since and len(self._unknown_since) >= UNKNOWN_MAX:
            del self._unknown_since[next(iter(self._unknown_since))]
        since = self._unknown_since.setdefault(schema_id, now)
        text = f"{self._options.whole}: schema id {schema_id} is unknown to the registry at {self._spec.url}"
        if now - since < UNKNOWN_SECONDS:
            return SchemasUnavailableError(f"{text} so far; the lookup is retried")
        return ChangeError(
            f"{text}. Correct {self._options.url}, or have the connector write to this registry (Apicurio's converter "
            "needs as-confluent=true, headers.enabled=false and use-id=contentId)"
        )

    def _refused(self, status: int, what: str, body: bytes) -> SchemasUnavailableError:
        return self._failed(f"it answers {status} to {what}{problem_said(status, body)}", self._check_server)

    def _failed(
        self,
        reason: str,
        todo: str,
        kind: type[SchemasUnavailableError] = SchemasUnavailableError,
        *,
        pause: float | None = None,
    ) -> SchemasUnavailableError:
        error = kind(self._text(reason, todo))
        self._pause(error, PAUSE_SECONDS if pause is None else pause)
        return error

    def _text(self, reason: str, todo: str) -> str:
        """The message of an error. ``todo``: what a user can do, empty if the reason has it."""
        text = f"{self._options.whole}: the schema registry at {self._spec.url} cannot be used: {reason}"
        return f"{text}. {todo}" if todo else text

    @property
    def _correct_url(self) -> str:
        return f"Correct {self._options.url}"

    @property
    def _check_certificate(self) -> str:
        return f"{self._correct_url}, or name the CA that has signed its certificate in {self._options.ca_file}"

    @property
    def _correct_client(self) -> str:
        if self._spec.certificate_file is None:
            return f"It asks for a client certificate: name it in {self._options.client}"
        return (
            f"It does not accept the certificate in {self._spec.certificate_file}: take one that a CA of the registry "
            "has signed and that is valid"
        )

    @property
    def _check_server(self) -> str:
        return f"Check that it runs and that this machine reaches it, or correct {self._options.url}"

    def _pause(self, error: SchemasUnavailableError, seconds: float) -> None:
        self._down = (self._clock() + seconds, error)


def registry_of(source: SourceSpec) -> SchemaRegistry | None:
    """The registry with the schemas of a feed's events; None if its format needs none."""
    return None if source.registry is None else SchemaRegistry(source.registry, registry_options("source.registry"))


def _no_password() -> str:
    """For keys that are encrypted; without it OpenSSL asks for one at the terminal."""
    return ""


def _is_about_client(error: urllib3.exceptions.HTTPError) -> bool:
    """Whether the server has ended the handshake because of our certificate, or because it got none."""
    causes = (*error.args, getattr(error, "reason", None), error.__cause__)
    return any(isinstance(each, ssl.SSLError) and each.reason in _OF_CLIENT for each in causes)


def decoded(body: bytes, kind: Any) -> Any:
    """``body`` as what it should be, None if it is not that."""
    try:
        return msgspec.json.decode(body, type=kind)
    except DATA_ERRORS:
        return None


def problem_said(status: int, body: bytes, characters_max: int = 200) -> str:
    """The registry's own text on what is wrong, to be appended to the answer's status. Empty if it has none.

    Its error code is left out where it repeats the status.
    """
    problem = decoded(body, _Problem)
    if problem is None:
        return ""
    code = "" if problem.error_code == status else f" ({problem.error_code})"
    return f": {_shortened(problem.message, characters_max)}{code}" if problem.message else code


def _shortened(text: str, characters_max: int) -> str:
    """Its beginning and its end: the reason is at one of them, and a schema at the other."""
    half = characters_max // 2
    return text if len(text) <= characters_max else f"{text[:half]} … {text[-half:]}"


def _plain(error: urllib3.exceptions.HTTPError) -> str:
    """What is wrong, without the library's own names in front."""
    reason = getattr(error, "reason", None) or error.__cause__ or error
    return str(reason)
