"""Delta tables as a sink. delta-rs is imported when a sink is used, because every command imports this module."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.config.feed import SinkSpec
from headgate.config.plugs import Writes
from headgate.records.control import Positions
from headgate.records.source_tables import SourceTable
from headgate.sinks.contract import Claim, FeedIdentity, SinkRefusedError, TableShape
from headgate.sinks.delta.address import SCHEME, address_of, folder_of
from headgate.sinks.on_driver import Committer, StagedWriter, Stager
from headgate.sinks.registry import SinkPlug

if TYPE_CHECKING:
    from headgate.sinks.delta.claims import Claims
    from headgate.sinks.delta.lake import Lake

__all__ = ["SINK", "DeltaSink"]


class DeltaSink:
    """Tables below one folder. ``appends``: each change becomes a row, instead of changing one."""

    def __init__(self, folder: Path, *, appends: bool = False) -> None:
        self._folder = folder
        self._appends = appends

    @cached_property
    def _lake(self) -> "Lake":
        try:
            from headgate.sinks.delta.lake import Lake  # noqa: PLC0415 - see above
        except ModuleNotFoundError as error:
            if error.name not in ("deltalake", "arro3"):
                raise
            raise SinkRefusedError(
                "sinks of type delta need the package deltalake, which is not installed here. Install headgate[delta] "
                "on coordinators and agents"
            ) from error
        return Lake(self._folder)

    @cached_property
    def _claims(self) -> "Claims":
        lake = self._lake
        from headgate.sinks.delta.claims import Claims  # noqa: PLC0415 - see above

        return Claims(lake)

    def check(self, tables: Sequence[str], identity: FeedIdentity | None = None) -> dict[str, TableShape]:
        """See Sink."""
        lake = self._lake
        from headgate.sinks.delta.shape import existing  # noqa: PLC0415 - see above

        shapes = {}
        for name in tables:
            found = existing(lake, name, appends=self._appends)
            if identity is not None:
                self._claims.refuse_strangers(lake.ledger(name).read()[1], name, identity)
            shapes[name] = TableShape(name, found.types, found.key, secondary_unique=False)
        return shapes

    def prepare(self, claim: Claim, partitions: int) -> None:  # noqa: ARG002
        """See Preparing."""
        self._claims.check_is_ours(claim, self._lake.table(claim.table))

    def is_new(self, claim: Claim) -> bool:
        """See Untouched."""
        return self._claims.is_new(claim)

    def claim(self, claim: Claim) -> Positions:
        """See Sink."""
        return self._claims.claim(claim)

    def seal(self, claim: Claim) -> Positions:
        """See Sink."""
        return self._claims.seal(claim)

    def positions(self, claim: Claim) -> Positions:
        """See Sink."""
        return self._claims.positions(claim)

    def source_table(self, claim: Claim) -> SourceTable | None:
        """See Sink."""
        return self._claims.source_table(claim)

    def forget(self, identity: FeedIdentity) -> None:
        """See Sink."""
        self._claims.forget(identity)

    def stager(self) -> Stager:
        """See DriverSink."""
        lake = self._lake
        from headgate.sinks.delta.staging import DeltaStager  # noqa: PLC0415 - see above

        return DeltaStager(lake, appends=self._appends)

    def committer(self) -> Committer:
        """See DriverSink."""
        lake = self._lake
        from headgate.sinks.delta.committing import DeltaCommitter  # noqa: PLC0415 - see above

        return DeltaCommitter(lake, self._claims, appends=self._appends)

    def writer(self) -> StagedWriter:
        """See Sink."""
        return StagedWriter(self)

    def close(self) -> None:
        """See Sink. It has no connections."""


def _open(spec: SinkSpec, _password_file: Path | None, _keeps_session: bool) -> DeltaSink:
    return DeltaSink(folder_of(spec.dsn or ""), appends=spec.mode == "append")


SINK: Final = SinkPlug(
    summary="Delta tables in a folder, equal to the source's tables or with a row for every change",
    writes=Writes.ON_DRIVER,
    options=frozenset({"mode"}),
    schemes=(SCHEME,),
    address=address_of,
    open=_open,
)
