"""The tables people read are those of the records in the repository."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_table_comes_from_its_records():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "readme.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (ROOT / "docs" / "records" / "quickstart" / "records.jsonl").exists()


def test_the_documents_name_no_foreign_path():
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*"), *ROOT.glob("configs/**/*")]:
        if path.is_file() and path.suffix in (".md", ".jsonl", ".yaml", ".csv"):
            assert not re.search(r"[\"' =](/\w+)+/", path.read_text(encoding="utf-8")), path
