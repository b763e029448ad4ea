"""Files with certificates that a feed names: of the CA of a registry, a catalog or an object store, or of a client."""

from pathlib import Path
from typing import Final

__all__ = ["CA_FILE_BYTES_MAX", "why_not_ca"]

CA_FILE_BYTES_MAX: Final = 1 << 20
"""More than a machine's whole list of CAs. A feed names the file, so it may be any."""

_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"


def why_not_ca(file: Path) -> str | None:
    """Why a library could not use the file, None if it can. A pipe or a device, which may have no end, is not read."""
    try:
        is_pem = file.stat().st_size <= CA_FILE_BYTES_MAX and file.is_file() and _CERTIFICATE in file.read_bytes()
    except OSError as error:
        return f"cannot read {file} ({error.strerror})"
    return None if is_pem else f"{file} is not a file with a certificate in PEM form"
