"""Pictures of items, from a folder of this machine: nothing is fetched from elsewhere."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

TYPES = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
"""Pictures that run no code, by the ending of their names."""


def find(folder: Path, given: str) -> Path | None:
    """The file of a picture within a folder, by what the table gives: a path as seen from the
    folder, or any path or address that ends with the file's name; None if it is not there."""
    text = unquote(urlsplit(given).path) if "://" in given else given.replace("\\", "/")
    root = folder.resolve()
    for name in (text.lstrip("/"), PurePosixPath(text).name):
        if not name or "\0" in name:
            continue
        path = (root / name).resolve()
        inside = path.is_relative_to(root) and path.suffix.lower() in TYPES
        if inside and path.is_file():
            return path
    return None
