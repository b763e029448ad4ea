"""``headgate version``."""

from headgate import SCHEMA_VERSION, __version__
from headgate.cli.options import Format
from headgate.cli.output import Output, show_object


def version(output: Format = Output.TABLE) -> None:
    """Show the version, and the version of the control records that it writes."""
    show_object({"version": __version__, "schema_version": SCHEMA_VERSION}, output)
