"""The script that draws diagrams in a browser, from a pinned jar: fetched once, then there without a network."""

from zipfile import ZipFile

from headgate.provisioning.artifacts import ensure


def script() -> bytes:
    """mermaid.min.js. Raises ArtifactError."""
    (jar,) = ensure("mermaid")
    with ZipFile(jar) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/dist/mermaid.min.js"))
        return archive.read(name)
