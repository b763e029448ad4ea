"""Creates decoders from a feed's source description. config/plugs.py lists the formats."""

from collections.abc import Callable

import msgspec

from headgate.config.plugs import FORMATS, FormatTraits, PlugError
from headgate.config.source_spec import SourceSpec
from headgate.formats.dealing import Look
from headgate.formats.decoding import Decoder


class DecoderNeeds(msgspec.Struct, frozen=True):
    """What a decoder is made from. ``keyless``: rows without key are added. ``schemas``: by id, as texts."""

    source: SourceSpec
    keyless: bool
    schemas: Callable[[int], str] | None


class FormatPlug(FormatTraits, frozen=True, kw_only=True):
    """A format: its traits, and how its decoders are made.

    ``look`` finds the table of an event, for a topic of several tables.
    """

    decoder: Callable[[DecoderNeeds], Decoder]
    look: Callable[[DecoderNeeds], Look]


def format_of(name: str) -> FormatPlug:
    """The format of that ``source.format``. Raises PlugError."""
    plug = FORMATS[name]
    if not isinstance(plug, FormatPlug):
        raise PlugError(f"source.format {name}: it has traits, but no decoder (FormatPlug)")
    return plug
