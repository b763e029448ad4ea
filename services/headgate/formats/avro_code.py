"""A reader for one Avro schema, written as Python code and compiled: what is known per schema is not asked per row.

fastavro walks the schema again for each record, and most of a Debezium event is not needed: ``source``,
``before``, three clocks. The code made here has no schema left in it: each field that is wanted is a few lines, and a
stretch of fields that is not is one regular expression where their lengths allow it. It takes a third of fastavro's
time (docs/adr/0016). fastavro checks the schemas (avro_schema), and is what the tests compare with.

The code holds nothing of a schema's text: names, symbols and sizes are constants beside it. Data is never trusted: a
number, length or branch that cannot be raises, and a record must end where its bytes end, so a slice that came out too
short is never seen by anybody.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct
from typing import Any, Final

from headgate.formats.avro_schema import Array, AvroType, Enum, Exactly, Fixed, Map, Primitive, Record, Union

READ_ERRORS: Final = (IndexError, ValueError, OverflowError)
"""What a reader raises for bytes that are not of its schema (UnicodeDecodeError is a ValueError)."""

VARINT_BITS_MAX: Final = 63
"""Ten bytes of seven bits hold 64; without an end, a MB of 0xff would be a number of a million digits."""

_VARINT: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_PATTERNS: Final = {
    "null": b"",
    "boolean": rb"[\x00\x01]",
    "int": _VARINT,
    "long": _VARINT,
    "float": rb"[\x00-\xff]{4}",
    "double": rb"[\x00-\xff]{8}",
}
_FLOATS: Final = {"float": Struct("<f"), "double": Struct("<d")}

BRANCHES_MAX: Final = 64
"""Types of one union, so that a branch's number is one byte."""

Path = tuple[str, ...]
Reader = Callable[[bytes, int], tuple[Any, ...]]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The zig-zag number at ``at``, and where it ends."""
    byte = data[at]
    at += 1
    number, shift = byte & 127, 7
    while byte & 128:
        if shift > VARINT_BITS_MAX:
            raise ValueError("a number of more than 64 bits")
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
    if number >> (VARINT_BITS_MAX + 1):
        raise ValueError("a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def _length(data: bytes, at: int) -> tuple[int, int]:
    """The length at ``at``, and where it ends."""
    number, at = _number(data, at)
    if number < 0:
        raise ValueError(f"a length of {number}")
    return number, at


def _block(data: bytes, at: int) -> tuple[int, int]:
    """How many items follow, and where they begin; a negative number means that their size in bytes is in between."""
    number, at = _number(data, at)
    if number < 0:
        number = -number
        _, at = _length(data, at)
    if number > len(data) - at:
        raise ValueError(f"a block of {number} items in {len(data) - at} bytes")
    return number, at


def _wrong(what: str) -> None:
    raise ValueError(what)


def compile_reader(root: Record, wanted: Sequence[Path]) -> Reader:
    """A function (bytes, where the record begins) → the wanted fields in order, each a path of names within ``root``.

    The empty path is all of it, as a dict. A field whose record is null is None. The record must end where the bytes
    end. Raises one of READ_ERRORS.
    KeyError, now, for a path that is not there.
    """
    code = _Code()
    names = {path: f"w{number}" for number, path in enumerate(wanted)}
    for name in names.values():
        code.line(f"{name} = None")
    code.fields(root, (), names)
    if len(names) != code.found:
        raise KeyError(f"not all of {sorted(names)} are in the schema")
    code.line("if i != len(d): wrong(f'it ends at byte {len(d)}, its schema wants {i}')")
    code.line(f"return ({''.join(name + ',' for name in names.values())})")
    return code.compiled()


def _pattern(node: AvroType) -> bytes | None:
    """What skips a value of this type, if its length can be found byte by byte."""
    match node:
        case Primitive():
            return _PATTERNS.get(node.kind)
        case Enum():
            return _VARINT
        case Fixed():
            # Nothing is matched anywhere, also behind the end, where an expression begins at the end instead.
            return rb"[\x00-\xff]{%d}" % node.size if node.size else b""
        case Exactly():
            return re.escape(node.data)
        case Union() if len(node.branches) <= BRANCHES_MAX:
            parts = [_pattern(branch) for branch in node.branches]
            known = [rb"\x%02x%b" % (2 * number, part) for number, part in enumerate(parts) if part is not None]
            return b"(?:" + b"|".join(known) + b")" if len(known) == len(parts) else None
        case _:
            return None


def text_in(node: AvroType, text: str | None) -> Exactly:
    """How ``text`` is written in a field of that type. KeyError if it cannot be."""
    if isinstance(node, Union):
        for number, branch in enumerate(node.branches[:BRANCHES_MAX]):
            with suppress(KeyError):
                return Exactly(bytes((2 * number,)) + text_in(branch, text).data)
    elif node == Primitive("null", connect="null") and text is None:
        return Exactly(b"")
    elif isinstance(node, Primitive) and node.kind == "string" and text is not None:
        data = text.encode()
        return Exactly(_written(2 * len(data)) + data)
    raise KeyError(text)


def _written(number: int) -> bytes:
    """Seven bits to a byte, the lowest first."""
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return bytes(data)


class _Code:
    """Lines of one function ``read(d, i)``; ``i`` is where the next value begins."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 1
        self._names = 0
        self._constants: dict[str, Any] = {
            "number": _number,
            "length": _length,
            "block": _block,
            "wrong": _wrong,
            **{f"{kind}_at": packed.unpack_from for kind, packed in _FLOATS.items()},
        }
        self.found = 0

    def line(self, text: str) -> None:
        """One line at the present depth."""
        self._lines.append("    " * self._depth + text)

    def compiled(self) -> Reader:
        """The function."""
        source = "def read(d, i):\n" + "\n".join(self._lines)
        scope = dict(self._constants)
        exec(compile(source, "<avro reader>", "exec"), scope)  # noqa: S102 - no text of a schema is in it
        reader: Reader = scope["read"]
        return reader

    def fields(self, record: Record, path: Path, wanted: dict[Path, str]) -> None:
        """Read what of the record is wanted into its name, pass over the rest."""
        if path in wanted:
            self.found += 1
            return self._read(record, wanted[path])
        waiting: list[AvroType] = []
        for name, node in record.fields.items():
            here = (*path, name)
            inner = {each: target for each, target in wanted.items() if each[: len(here)] == here}
            if not inner:
                waiting.append(node)
                continue
            self._skip(waiting)
            waiting = []
            if here in inner:
                self.found += 1
                self._read(node, inner[here])
            else:
                self._within(node, here, inner)
        return self._skip(waiting)

    def _within(self, node: AvroType, path: Path, wanted: dict[Path, str]) -> None:
        """Something within a record that may itself be null."""
        if isinstance(node, Record):
            self.fields(node, path, wanted)
        elif isinstance(node, Union):
            self._branch(node, lambda branch: self._within(branch, path, wanted))
        elif node != Primitive("null", connect="null"):
            raise KeyError(".".join(path))

    def _name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _constant(self, value: object) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = value
        return name

    def _branch(self, node: Union, then: Callable[[AvroType], None]) -> None:
        """One of the branches, by its number."""
        self.line("b = d[i]; i += 1")
        if len(node.branches) > BRANCHES_MAX:
            raise KeyError(f"a union of more than {BRANCHES_MAX} types")
        # What is there comes before what is not: the first test is the likely one.
        likely = sorted(range(len(node.branches)), key=lambda number: _pattern(node.branches[number]) == b"")
        for place, number in enumerate(likely):
            self.line(f"{'if' if place == 0 else 'elif'} b == {2 * number}:")
            self._depth += 1
            then(node.branches[number])
            self.line("pass")
            self._depth -= 1
        self.line("else: wrong(f'branch {b / 2:g} of a union that has none such')")

    def _read(self, node: AvroType, target: str) -> None:
        match node:
            case Primitive("null"):
                self.line(f"{target} = None")
            case Primitive("boolean"):
                self.line(f"{target} = d[i] == 1; i += 1")
                self.line("if d[i - 1] > 1: wrong(f'{d[i - 1]} as a boolean')")
            case Primitive("int" | "long"):
                self.line("b = d[i]; i += 1")
                self.line(f"if b & 128: {target}, i = number(d, i - 1)")
                self.line(f"else: {target} = (b >> 1) ^ -(b & 1)")
            case Primitive("float" | "double"):
                size = _FLOATS[node.kind].size
                self.line(f"if i + {size} > len(d): wrong('it ends within a number')")
                self.line(f"({target},) = {node.kind}_at(d, i); i += {size}")
            case Primitive(kind):
                self._measure()
                self.line(f"e = i + n; {target} = d[i:e]{'.decode()' if kind == 'string' else ''}; i = e")
            case Fixed():
                self.line(f"e = i + {int(node.size)}; {target} = d[i:e]; i = e")
            case Enum():
                self.line("n, i = length(d, i)")
                count = len(node.symbols)
                self.line(f"if n >= {count}: wrong(f'symbol {{n}} of an enum that has {count}')")
                self.line(f"{target} = {self._constant(node.symbols)}[n]")
            case Union():
                self._branch(node, lambda branch: self._read(branch, target))
            case Record():
                values = [(self._constant(name), self._name(), field) for name, field in node.fields.items()]
                for _, value, field in values:
                    self._read(field, value)
                self.line(f"{target} = {{{', '.join(f'{name}: {value}' for name, value, _ in values)}}}")
            case Array() | Map():
                self._collect(node, target)

    def _collect(self, node: Array | Map, target: str) -> None:
        """Blocks of items until an empty one."""
        left, item = self._name(), self._name()
        self.line(f"{target} = {'[]' if isinstance(node, Array) else '{}'}; {left} = -1")
        self._blocks(left)
        if isinstance(node, Array):
            self._read(node.items, item)
            self.line(f"{target}.append({item})")
        else:
            key = self._name()
            self._read(Primitive("string"), key)
            self._read(node.values, item)
            self.line(f"{target}[{key}] = {item}")
        self._depth -= 2

    def _blocks(self, left: str) -> None:
        """The loop around items; what comes next is within it, two deeper."""
        self.line(f"while {left}:")
        self._depth += 1
        self.line(f"{left}, i = block(d, i)")
        self.line(f"for _ in range({left}):")
        self._depth += 1

    def _measure(self) -> None:
        """The length of what follows, into ``n``."""
        self.line("n = d[i]; i += 1")
        self.line("if n & 129: n, i = length(d, i - 1)")
        self.line("else: n >>= 1")

    def _skip(self, nodes: Sequence[AvroType]) -> None:
        """Pass over consecutive values; what one expression matches, at once."""
        run: list[bytes] = []
        for node in [*_flat(nodes), None]:
            pattern = None if node is None else _pattern(node)
            if pattern is not None:
                run.append(pattern)
                continue
            if any(run):
                matcher = self._constant(re.compile(b"".join(run)).match)
                self.line(f"m = {matcher}(d, i)")
                self.line("if m is None: wrong('it ends early, or has what it is not to have')")
                self.line("i = m.end()")
            run = []
            if node is not None:
                self._skip_one(node)

    def _skip_one(self, node: AvroType) -> None:
        match node:
            case Primitive():  # bytes and strings: all others have a pattern
                self._measure()
                self.line("i += n")
            case Union():
                self._branch(node, lambda branch: self._skip([branch]))
            case Array(items):
                self._skip_blocks([items])
            case Map(values):
                self._skip_blocks([Primitive("string"), values])
            case _:
                raise KeyError(f"{node!r} cannot be skipped")

    def _skip_blocks(self, nodes: Sequence[AvroType]) -> None:
        left = self._name()
        self.line(f"{left} = -1")
        self._blocks(left)
        self._skip(nodes)
        self.line("pass")
        self._depth -= 2


def _flat(nodes: Sequence[AvroType]) -> list[AvroType]:
    """Records are their fields, one behind the other."""
    flat: list[AvroType] = []
    for node in nodes:
        flat += _flat(list(node.fields.values())) if isinstance(node, Record) else [node]
    return flat
