"""pt-online-schema-change out of Debian's packages, unpacked into our cache, with the Perl modules that it needs.

Perl itself is the machine's: Debian's own tools need it, so it is there wherever packages can be fetched. Modules of
Perl's own that a small image leaves out are fetched as well.
"""

import os
import shutil
from pathlib import Path
from typing import Final

from headgate.provisioning.errors import ArtifactError
from headgate_lab.embedded import debian

_PACKAGE: Final = "libdbd-mysql-perl"
_LIBRARY: Final = "usr/lib/*/perl5/*/auto/DBD/mysql/mysql.so"
_BESIDE: Final = ("percona-toolkit", "libdbi-perl", "libterm-readkey-perl")
_INSTEAD: Final = "install percona-toolkit, and name its program in HEADGATE_TEST_PT_OSC"
_MODULES: Final = ("usr/lib/*/perl5/*", "usr/share/perl5", "usr/lib/*/perl/*", "usr/share/perl/*")


def pt_online_schema_change(folder: Path) -> Path:
    """A program in ``folder`` that runs Debian's pt-online-schema-change. Raises ArtifactError."""
    perl = shutil.which("perl")
    if perl is None:
        raise ArtifactError(f"pt-online-schema-change needs perl, which this machine lacks: {_INSTEAD}")
    root = debian.unpacked(_PACKAGE, _LIBRARY, _INSTEAD, _BESIDE)
    modules = [str(path) for pattern in _MODULES for path in sorted(root.glob(pattern))]
    program = folder / "pt-online-schema-change"
    program.write_text(
        "#!/bin/sh\n"
        f"export PERL5LIB='{':'.join(modules)}' LD_LIBRARY_PATH='{debian.library_path(root)}'\n"
        f"exec '{perl}' '{root}/usr/bin/pt-online-schema-change' \"$@\"\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    if not os.access(program, os.X_OK):
        raise ArtifactError(f"{program} cannot be run there: {_INSTEAD}")
    return program
