"""A folder of feeds against those of a cluster: what has to be done to each."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import yaml

from headgate.config.feed import FeedSpec, FeedSpecError, feed_text, load_feed, parse_feed
from headgate.config.feed_differences import OptionDifference, differences, with_skips_of
from headgate.config.given_files import STANDARD_INPUT, documents_of, shown_name
from headgate.config.yaml_text import yaml_fault
from headgate.records.control import FeedRecorded
from headgate.records.names import InvalidNameError, check_name
from headgate.sinks.contract import SinkError
from headgate.sinks.registry import same_sink
from headgate.sources.database import same_source

SUFFIXES: Final = (".yaml", ".yml")


class Act(StrEnum):
    """What is done to a feed."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    NONE = "none"


class FeedStep(msgspec.Struct, frozen=True):
    """One feed. ``spec`` is the wanted specification: none for a feed that is not in the folder."""

    feed: str
    act: Act
    spec: FeedSpec | None = None
    differences: tuple[OptionDifference, ...] = ()


def read_folder(folder: Path) -> dict[str, FeedSpec]:
    """The feeds of all YAML files in ``folder``, not below it, or of the documents of standard input (``-``).

    Raises FeedSpecError, with what is wrong in every file. A folder without feeds is an error too: with --prune, a
    wrong path would delete everything.
    """
    found: dict[str, tuple[str, FeedSpec]] = {}
    wrong: list[str] = []
    for name, load in _documents() if folder == STANDARD_INPUT else _files(folder):
        try:
            spec = _checked(name, load)
        except FeedSpecError as error:
            wrong.append(str(error))
            continue
        if spec.feed in found:
            wrong.append(f"{name}: {Path(found[spec.feed][0]).name} also defines feed {spec.feed!r}. Keep one of them")
        found[spec.feed] = name, spec
    if wrong:
        raise FeedSpecError("\n".join((*wrong, "Nothing was changed")))
    if not found and folder == STANDARD_INPUT:
        raise FeedSpecError("standard input has no feed. Give feeds in YAML, with a line --- between them")
    if not found:
        raise FeedSpecError(f"{folder} has no feed: none of its files ends in {' or '.join(SUFFIXES)}")
    return {name: spec for name, (_, spec) in found.items()}


Load: TypeAlias = Callable[[], FeedSpec]
"""Raises FeedSpecError, which names where the feed is."""


def _files(folder: Path) -> Iterator[tuple[str, Load]]:
    """The files of a folder. Raises FeedSpecError."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
    except OSError as error:
        raise FeedSpecError(
            f"{folder}: {error.strerror}. Name a folder with a YAML file for each feed, or - for standard input"
        ) from error
    for file in files:
        yield str(file), partial(load_feed, file)


def _documents() -> Iterator[tuple[str, Load]]:
    """The YAML documents of standard input. Raises FeedSpecError."""
    try:
        documents = documents_of(feed_text(STANDARD_INPUT))
    except yaml.YAMLError as error:
        raise FeedSpecError(f"{shown_name(STANDARD_INPUT)}: {yaml_fault(error)}") from error
    for number, text in enumerate(documents, start=1):
        name = f"{shown_name(STANDARD_INPUT)}, document {number}"
        yield name, partial(_parsed, name, text)


def _parsed(name: str, text: str) -> FeedSpec:
    try:
        return parse_feed(text)
    except FeedSpecError as error:
        raise FeedSpecError(f"{name}: {error}") from error


def _checked(name: str, load: Load) -> FeedSpec:
    """The feed as owners accept it. Raises FeedSpecError."""
    spec = load()
    try:
        check_name("feed", spec.feed)
        return _as_accepted(spec)
    except (InvalidNameError, SinkError) as error:
        raise FeedSpecError(f"{name}: {error}") from error


def _as_accepted(spec: FeedSpec) -> FeedSpec:
    """With the sink's address as owners write it. Raises SinkError."""
    return same_source(spec).model_copy(update={"sink": same_sink(spec.sink)})


def planned(wanted: Mapping[str, FeedSpec], known: Mapping[str, FeedRecorded], *, prune: bool) -> tuple[FeedStep, ...]:
    """What to do: new feeds first, then changes, deletions last, each sorted by name; what stays is at the end."""
    order = list(Act)
    return tuple(sorted(_steps(wanted, known, prune), key=lambda step: (order.index(step.act), step.feed)))


def _steps(wanted: Mapping[str, FeedSpec], known: Mapping[str, FeedRecorded], prune: bool) -> Iterator[FeedStep]:
    for name, spec in wanted.items():
        record = known.get(name)
        if record is None:
            yield FeedStep(name, Act.CREATE, spec)
            continue
        try:
            before = _as_accepted(parse_feed(record.spec))
        except FeedSpecError:  # stored by another version: the folder's feed replaces it, whatever differs
            yield FeedStep(name, Act.UPDATE, spec)
            continue
        after = with_skips_of(before, spec)
        changed = differences(before, after)
        yield FeedStep(name, Act.UPDATE if changed else Act.NONE, after, changed)
    for name in known.keys() - wanted.keys():
        yield FeedStep(name, Act.DELETE if prune else Act.NONE)
