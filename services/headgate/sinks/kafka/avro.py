"""Changes as Avro, in Confluent's framing: a zero byte, the four bytes of a schema's id, one record of that schema.

Key and value are the ones of flat JSON, with the types that the events' schema describes. Schemas are registered under
the subjects ``<topic>-key`` and ``<topic>-value`` before the first record that needs them, by whichever task writes it:
a registry gives the same schema the same id, however often it is registered.
"""

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from headgate.config.registry_spec import RegistrySpec, registry_options
from headgate.formats.avro_rows import RowSchema, forms_of, row_schema
from headgate.formats.change import Change, ChangeError, Row
from headgate.formats.decoding import SchemasUnavailableError
from headgate.formats.schema_registry import (
    INCOMPATIBLE,
    AccessDeniedError,
    RegistryRefusedError,
    SchemaNotTakenError,
    SchemaRegistry,
)
from headgate.sinks.contract import ChangeRefusedError, SinkError, SinkRefusedError, SinkUnavailableError
from headgate.sinks.kafka.records import Encoded, check_expressible, check_whole

__all__ = [
    "AvroRecords", "Plans", "RegistryUnavailableError", "SchemaRefusedError", "Subjects",
    "UntakenSchemaError", "schema_of", "subject_of", "subjects_of",
]  # fmt: skip

_log = logging.getLogger(__name__)

OPTION: Final = "sink.registry"

SCHEMAS_MAX: Final = 4_096
"""Schemas kept per feed and process, compiled: two of keys and two of values for each of 1 024 topics."""

SCHEMA_CHARACTERS_MAX: Final = 16 * 1024 * 1024
"""Characters of the JSON of all of them. A table of 30 columns has about 4 000."""

IDS_SECONDS: Final = 300.0
"""How long an id is used without asking for it again. A registry that was emptied or restored gives ids to other
schemas, and readers then decode wrong values without an error."""

AGAIN_SECONDS: Final = 60.0
"""How long after a failure to do that nothing is asked for again, because a time-out holds up a task."""

IDS_MAX: Final = 65_536
"""Registered schemas remembered per process, about 300 bytes each. One that was forgotten is registered again."""

REFUSED_SECONDS: Final = 5.0
"""How long a refused schema is not sent again: finding the event that needs it takes several attempts."""

REFUSED_MAX: Final = 1_024
"""Refused schemas remembered: as many tables as may wait for their subjects at once."""

_Key = tuple[RegistrySpec, str, bytes]


class _Id(NamedTuple):
    """A schema's id, and when the registry was asked for it (monotonic seconds)."""

    id: int
    asked_at: float


_ids: dict[_Key, _Id] = {}
"""Of this process: registry, subject and the schema's digest → its id."""


class UntakenSchemaError(ChangeError):
    """The registry does not register the schema that an event needs. It waits until a user changes something there."""


class SchemaRefusedError(ChangeRefusedError):
    """The registry refuses the schema of a change. The table waits for it, and then continues by itself."""

    code = "schema_refused"
    retryable = True
    may_heal = True


class RegistryUnavailableError(SinkUnavailableError):
    """The registry does not respond. Sessions of the target cluster stay usable."""

    spoils_session = False


def _sink_error(error: SchemasUnavailableError) -> SinkError:
    """What an error of the registry means for the sink."""
    kind = SinkRefusedError if isinstance(error, RegistryRefusedError) else RegistryUnavailableError
    return kind(str(error))


REGISTRIES_MAX: Final = 64
"""Registries of feeds remembered per process, so that all sessions know which of them do not respond."""


@lru_cache(maxsize=REGISTRIES_MAX)
def subjects_of(spec: RegistrySpec) -> "Subjects":
    """The subjects of a feed's registry, the same for all tables of this process."""
    return Subjects(spec)


class Subjects:
    """Registers schemas in a feed's registry. Threads that need a new schema wait for each other's request."""

    def __init__(self, spec: RegistrySpec, clock: Callable[[], float] = time.monotonic) -> None:
        """No connection is made yet."""
        self._spec = spec
        self._clock = clock
        self._mutex = threading.Lock()  # each request of its holder ends by a time-out
        self._registry = SchemaRegistry(spec, registry_options(OPTION), clock)
        self._refused: dict[_Key, tuple[float, UntakenSchemaError | SinkRefusedError]] = {}
        self._again_at = float("-inf")
        """When ids in use may be asked for again."""

    def check(self) -> None:
        """Raise SinkError unless the registry answers, lets us in and has Avro."""
        try:
            with self._mutex:
                self._registry.check()
        except SchemasUnavailableError as error:
            raise _sink_error(error) from error

    def is_due(self, asked_at: float) -> bool:
        """Whether an id that was asked for then must be asked for again."""
        return self._clock() - asked_at >= IDS_SECONDS

    def id_of(self, subject: str, schema: str) -> _Id:
        """The id of a schema under its subject. Raises UntakenSchemaError, SinkError."""
        key = self._spec, subject, hashlib.sha256(schema.encode()).digest()
        known = _ids.get(key)
        if known is not None and not self.is_due(known.asked_at):
            return known
        with self._mutex:
            known = _ids.get(key)  # another thread may have asked
            if known is not None and not self.is_due(known.asked_at):
                return known
            self._check_refused(key)
            found = self._asked_again(key, known, schema) if known is not None else self._new(key, subject, schema)
            while key not in _ids and len(_ids) >= IDS_MAX:
                _ids.pop(next(iter(_ids)), None)
            _ids[key] = found
            return found

    def schema_warnings(self, topic: str, semantics: dict[str, str], key_columns: tuple[str, ...]) -> Iterator[str]:
        """What would keep the schemas of a topic's rows from being registered, or why that is not known."""
        for is_key in (True, False) if key_columns else (False,):
            subject = subject_of(topic, is_key=is_key)
            schema = schema_of(topic, semantics, key_columns, is_key=is_key).text
            try:
                with self._mutex:
                    why = self._registry.incompatibility(subject, schema)
            except SchemasUnavailableError as error:
                yield f"whether subject {subject} takes the schema of the newest event is not known: {error}"
                if not isinstance(error, AccessDeniedError):
                    return
            else:
                if why is not None:
                    would = f"would reject the schema of the newest event, subject {subject}: {why}"
                    yield f"the schema registry at {self._spec.url} {would}. {_ways_out(subject)}"

    def _check_refused(self, key: _Key) -> None:
        refused = self._refused.get(key)
        if refused is not None and self._clock() - refused[0] < REFUSED_SECONDS:
            raise type(refused[1])(str(refused[1]))

    def _refusal(
        self, key: _Key, error: UntakenSchemaError | SinkRefusedError
    ) -> UntakenSchemaError | SinkRefusedError:
        while len(self._refused) >= REFUSED_MAX:
            self._refused.pop(next(iter(self._refused)), None)
        self._refused[key] = self._clock(), error
        return error

    def _new(self, key: _Key, subject: str, schema: str) -> _Id:
        try:
            return _Id(self._registry.register(subject, schema), self._clock())
        except SchemaNotTakenError as error:
            raise self._refusal(key, UntakenSchemaError(self._untaken(subject, error))) from error
        except AccessDeniedError as error:
            why = f"{error}. The user needs the right to register schemas under subject {subject} (read and write)"
            raise self._refusal(key, SinkRefusedError(why)) from error
        except SchemasUnavailableError as error:
            raise _sink_error(error) from error

    def _asked_again(self, key: _Key, known: _Id, schema: str) -> _Id:
        """The same id, which stays in use if the registry does not give one. Raises UntakenSchemaError for another."""
        subject = key[1]
        if self._clock() < self._again_at:
            return known._replace(asked_at=self._again_at - IDS_SECONDS)
        try:
            given = self._registry.register(subject, schema)
        except (SchemaNotTakenError, SchemasUnavailableError) as error:
            _log.warning(
                "whether id %s of subject %s is still that schema's is not known: %s", known.id, subject, error
            )
            again_at = self._clock() + AGAIN_SECONDS
            if not isinstance(error, SchemaNotTakenError | AccessDeniedError):
                self._again_at = again_at
            return known._replace(asked_at=again_at - IDS_SECONDS)
        if given != known.id:
            raise self._refusal(key, UntakenSchemaError(self._changed(subject, known.id, given)))
        return _Id(given, self._clock())

    def _changed(self, subject: str, before: int, now: int) -> str:
        return (
            f"the schema registry at {self._spec.url} has id {now} for a schema of subject {subject}, and records of "
            f"the topic have id {before} for it. It was emptied, restored or replaced, so readers may decode wrong "
            "values. Restore a state of the registry in which the ids are those of the records, or write to a new "
            "topic. It is retried"
        )

    def _untaken(self, subject: str, error: SchemaNotTakenError) -> str:
        why = f"the schema registry at {self._spec.url} rejects the schema of subject {subject}: {error}"
        if error.status != INCOMPATIBLE:
            return (
                f"{why}. Correct what the reason names: the mode of the registry or of the subject (READONLY), a rule "
                "that the schema does not follow, or the size that a proxy permits. It is retried"
            )
        return f"{why}. {_ways_out(subject)}. It is retried"


def _ways_out(subject: str) -> str:
    """What to do about a schema that a subject does not take."""
    if subject.endswith("-key"):
        return (
            "Undo the change of the key's columns at the source, or write to a new topic. If the subject's "
            "compatibility is relaxed (NONE), rows get other keys than before, so compaction keeps both"
        )
    return (
        "Undo the change at the source, keep the column from the sink (columns.exclude, columns.rename), or relax the "
        "subject's compatibility (NONE allows every change)"
    )


class _Plan(NamedTuple):
    """How rows of one meaning are written. ``semantics`` is remembered because it is found by its identity."""

    semantics: dict[str, str] | None
    key_columns: tuple[str, ...]
    schema: RowSchema
    head: bytes
    asked_at: float


_Content = tuple[str, bool, tuple[str, ...], tuple[tuple[str, str], ...]]
"""Topic, whether it is of keys, the key's columns, and what columns mean."""


class Plans:
    """The compiled schemas of a feed's topics. The one that was not used for longest is let go first."""

    def __init__(self) -> None:
        self._plans: OrderedDict[_Content, _Plan] = OrderedDict()
        self._characters = 0

    def get(self, content: _Content) -> _Plan | None:
        """None if it is not known, or not any more."""
        plan = self._plans.get(content)
        if plan is not None:
            self._plans.move_to_end(content)
        return plan

    def keep(self, content: _Content, plan: _Plan) -> None:
        """Remember it, in the place of an earlier one."""
        before = self._plans.pop(content, None)
        self._characters += len(plan.schema.text) - (0 if before is None else len(before.schema.text))
        while self._plans and (len(self._plans) >= SCHEMAS_MAX or self._characters > SCHEMA_CHARACTERS_MAX):
            self._characters -= len(self._plans.popitem(last=False)[1].schema.text)
        self._plans[content] = plan


class AvroRecords:
    """Encodes the changes of one batch of one topic. Not for more than one thread."""

    def __init__(self, subjects: Subjects, topic: str, plans: Plans) -> None:
        """``topic``: the target's. ``plans``: those of all topics of the feed."""
        self._keys = _Rows(subjects, topic, plans, is_key=True)
        self._values = _Rows(subjects, topic, plans, is_key=False)

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


def subject_of(topic: str, *, is_key: bool) -> str:
    """Where the schemas of the topic's keys or values are."""
    return f"{topic}-{'key' if is_key else 'value'}"


def schema_of(topic: str, semantics: dict[str, str] | None, key_columns: tuple[str, ...], *, is_key: bool) -> RowSchema:
    """The schema of a topic's keys or values. Raises ChangeError."""
    forms = forms_of(semantics, key_columns if is_key else None)
    return row_schema(topic, "Key" if is_key else "Value", forms, frozenset(key_columns))


class _Rows:
    """Keys or values of one topic."""

    def __init__(self, subjects: Subjects, topic: str, plans: Plans, *, is_key: bool) -> None:
        self._subjects = subjects
        self._topic = topic
        self._plans = plans
        self._is_key = is_key
        self._last: _Plan | None = None

    def written(self, row: Row, semantics: dict[str, str] | None, key_columns: tuple[str, ...]) -> bytes:
        """The row with its frame. Raises ChangeError, UntakenSchemaError, SinkError."""
        plan = self._last
        if plan is None or plan.semantics is not semantics or plan.key_columns != key_columns:
            plan = self._last = self._plan(semantics, key_columns)
        return plan.schema.write(plan.head, row)

    def _plan(self, semantics: dict[str, str] | None, key_columns: tuple[str, ...]) -> _Plan:
        content = self._topic, self._is_key, key_columns, tuple((semantics or {}).items())
        plan = self._plans.get(content)
        if plan is None or self._subjects.is_due(plan.asked_at):
            plan = self._made(semantics, key_columns, None if plan is None else plan.schema)
            self._plans.keep(content, plan)
        return plan._replace(semantics=semantics)

    def _made(self, semantics: dict[str, str] | None, key_columns: tuple[str, ...], schema: RowSchema | None) -> _Plan:
        if schema is None:
            schema = schema_of(self._topic, semantics, key_columns, is_key=self._is_key)
        known = self._subjects.id_of(subject_of(self._topic, is_key=self._is_key), schema.text)
        return _Plan(semantics, key_columns, schema, b"\x00" + known.id.to_bytes(4, "big"), known.asked_at)
