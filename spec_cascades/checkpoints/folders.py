"""Folders that appear complete or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A folder to fill beside `folder`, whose name it takes at the end; after an error it is gone."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        half.chmod(0o755)
        yield half
        half.rename(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)
