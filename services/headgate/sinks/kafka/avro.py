"""Changes as Avro, in Confluent's framing: a zero byte, the four bytes of a schema's id, one record of that schema.

Key and value are the ones of flat JSON, with the types that the events' schema describes. Schemas are registered under
the subjects ``<topic>-key`` and ``<topic>-value`` before the first record that needs them, by whichever task writes it:
a registry gives the same schema the same id, however often it is registered.
"""

import hashlib
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from headgate.config.registry_spec import RegistrySpec
from headgate.formats.avro_rows import RowSchema, forms_of, row_schema
from headgate.formats.change import Change, ChangeError, Row
from headgate.formats.decoding import SchemasUnavailableError
from headgate.formats.schema_registry import RegistryRefusedError, SchemaNotTakenError, SchemaRegistry
from headgate.sinks.contract import ChangeRefusedError, SinkError, SinkRefusedError, SinkUnavailableError
from headgate.sinks.kafka.records import Encoded, check_expressible, check_whole

__all__ = ["OPTION", "AvroRecords", "SchemaRefusedError", "Subjects", "UntakenSchemaError", "subjects_of"]

OPTION: Final = "sink.registry"

SCHEMAS_MAX: Final = 256
"""Schemas kept per topic, compiled, of keys and of values, as a decoder keeps them (formats/debezium_avro.py)."""

SCHEMA_CHARACTERS_MAX: Final = 4 * 1024 * 1024
"""Of the JSON of all of them."""

IDS_MAX: Final = 65_536
"""Registered schemas remembered per process, about 300 bytes each. One that was forgotten is registered again."""

REFUSED_SECONDS: Final = 5.0
"""How long a refused schema is not sent again: finding the event that needs it takes several attempts."""

REFUSED_MAX: Final = 1_024
"""Refused schemas remembered: as many tables as may wait for their subjects at once."""

_Key = tuple[RegistrySpec, str, bytes]

_ids: dict[_Key, int] = {}
"""Of this process: registry, subject and the schema's digest → its id."""


class UntakenSchemaError(ChangeError):
    """The registry does not register the schema that an event needs. It waits until a user changes something there."""


class SchemaRefusedError(ChangeRefusedError):
    """The registry refuses the schema of a change. The table waits for it, and then continues by itself."""

    code = "schema_refused"
    retryable = True
    may_heal = True


def _sink_error(error: SchemasUnavailableError) -> SinkError:
    """What an error of the registry means for the sink."""
    kind = SinkRefusedError if isinstance(error, RegistryRefusedError) else SinkUnavailableError
    return kind(f"{OPTION}: {error}")


REGISTRIES_MAX: Final = 64
"""Registries of feeds remembered per process: that one does not answer must outlive the session of a table."""


@lru_cache(maxsize=REGISTRIES_MAX)
def subjects_of(spec: RegistrySpec) -> "Subjects":
    """The subjects of a feed's registry, the same for all tables of this process."""
    return Subjects(spec)


class Subjects:
    """Registers schemas in a feed's registry.

    Two threads at once may register the same schema twice, or ask a registry that does not answer twice.
    """

    def __init__(self, spec: RegistrySpec, clock: Callable[[], float] = time.monotonic) -> None:
        """No connection is made yet."""
        self._spec = spec
        self._clock = clock
        self._registry = SchemaRegistry(spec, clock, option=OPTION)
        self._refused: dict[_Key, tuple[float, str]] = {}

    def check(self) -> None:
        """Raise SinkError unless the registry answers, lets us in and has Avro."""
        try:
            self._registry.check()
        except SchemasUnavailableError as error:
            raise _sink_error(error) from error

    def id_of(self, subject: str, schema: str) -> int:
        """The id of a schema under its subject. Raises UntakenSchemaError, SinkError."""
        key = self._spec, subject, hashlib.sha256(schema.encode()).digest()
        known = _ids.get(key)
        if known is not None:
            return known
        refused_at, why = self._refused.get(key, (float("-inf"), ""))
        if self._clock() - refused_at < REFUSED_SECONDS:
            raise UntakenSchemaError(why)
        try:
            given = self._registry.register(subject, schema)
        except SchemaNotTakenError as error:
            why = self._untaken(subject, error)
            while len(self._refused) >= REFUSED_MAX:
                self._refused.pop(next(iter(self._refused)), None)
            self._refused[key] = self._clock(), why
            raise UntakenSchemaError(why) from error
        except RegistryRefusedError as error:
            raise SinkRefusedError(
                f"{OPTION}: subject {subject}: {error}. Headgate needs the right to register schemas under it (read "
                "and write)"
            ) from error
        except SchemasUnavailableError as error:
            raise _sink_error(error) from error
        while len(_ids) >= IDS_MAX:
            _ids.pop(next(iter(_ids)), None)
        _ids[key] = given
        return given

    def _untaken(self, subject: str, error: SchemaNotTakenError) -> str:
        return (
            f"the schema registry at {self._spec.url} does not register the schema of the source's columns under "
            f"subject {subject}: {error}. Undo the change at the source, keep the column from the sink "
            "(columns.exclude, columns.rename), or relax the subject's compatibility (NONE allows every change). It is "
            "retried"
        )


class _Plan(NamedTuple):
    """How rows of one meaning are written. ``semantics`` is remembered because it is found by its identity."""

    semantics: dict[str, str] | None
    key_columns: tuple[str, ...]
    schema: RowSchema
    head: bytes


class AvroRecords:
    """Encodes the changes of one topic. Not for more than one thread."""

    def __init__(self, subjects: Subjects, topic: str) -> None:
        """``topic``: the target's."""
        self._keys = _Rows(subjects, topic, is_key=True)
        self._values = _Rows(subjects, topic, is_key=False)

    def encode(self, change: Change) -> list[Encoded]:
        """The records of a change. Raises ChangeError for what they cannot express, UntakenSchemaError, SinkError.

        A tombstone of the source only describes its key, so no schema of values is made of a delete.
        """
        check_expressible(change)
        columns = tuple(change.key)
        key = self._keys.written(change.key, change.semantics, columns)
        if change.row is None:
            return [(key, None, None)]
        try:
            return [(key, self._values.written(change.row, change.semantics, columns), None)]
        except UntakenSchemaError:
            raise
        except ChangeError:
            check_whole(change.row)  # no type has the place of a value that was left out, but it is why
            raise


class _Rows:
    """Keys or values of one topic, and the schemas that were met so far."""

    def __init__(self, subjects: Subjects, topic: str, *, is_key: bool) -> None:
        self._subjects = subjects
        self._topic = topic
        self._is_key = is_key
        self._last: _Plan | None = None
        self._plans: dict[tuple[object, ...], _Plan] = {}
        self._characters = 0

    def written(self, row: Row, semantics: dict[str, str] | None, key_columns: tuple[str, ...]) -> bytes:
        """The row with its frame. Raises ChangeError, UntakenSchemaError, SinkError."""
        plan = self._last
        if plan is None or plan.semantics is not semantics or plan.key_columns != key_columns:
            plan = self._last = self._plan(semantics, key_columns)
        return plan.schema.write(plan.head, row)

    def _plan(self, semantics: dict[str, str] | None, key_columns: tuple[str, ...]) -> _Plan:
        content = (key_columns, tuple((semantics or {}).items()))
        plan = self._plans.get(content)
        if plan is None:
            plan = self._made(semantics, key_columns)
            self._keep(content, plan)
        return plan._replace(semantics=semantics)

    def _made(self, semantics: dict[str, str] | None, key_columns: tuple[str, ...]) -> _Plan:
        forms = forms_of(semantics, key_columns if self._is_key else None)
        schema = row_schema(self._topic, "Key" if self._is_key else "Value", forms, frozenset(key_columns))
        schema_id = self._subjects.id_of(f"{self._topic}-{'key' if self._is_key else 'value'}", schema.text)
        return _Plan(semantics, key_columns, schema, b"\x00" + schema_id.to_bytes(4, "big"))

    def _keep(self, content: tuple[object, ...], plan: _Plan) -> None:
        self._characters += len(plan.schema.text)
        while self._plans and (len(self._plans) >= SCHEMAS_MAX or self._characters > SCHEMA_CHARACTERS_MAX):
            self._characters -= len(self._plans.pop(next(iter(self._plans))).schema.text)
        self._plans[content] = plan
