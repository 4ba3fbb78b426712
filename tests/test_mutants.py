"""The script of seeded bugs still finds its texts, and kills a handful."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "mutants.py"


def load():
    spec = importlib.util.spec_from_file_location("mutants", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_bug_can_be_seeded():
    mutants = load().MUTANTS
    assert len({m.name for m in mutants}) == len(mutants) >= 16
    for m in mutants:
        text = (ROOT / "spec_cascades" / m.file).read_text()
        assert text.count(m.old) == 1, m.name
        compile(text.replace(m.old, m.new), m.file, "exec")
        assert m.old != m.new


@pytest.mark.slow
def test_a_handful_is_killed():
    names = ["drafter not rewound", "residual without q", "a token after the end", "eta left out"]
    done = subprocess.run([sys.executable, SCRIPT, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 killed" in done.stdout


@pytest.mark.slow
def test_a_bug_that_no_test_sees_is_reported(tmp_path):
    """A script whose only mutant changes a comment must say that it lives and fail."""
    text = SCRIPT.read_text().replace("ROOT = Path(__file__).parents[1]", f"ROOT = Path({str(ROOT)!r})")
    harmless = (
        'MUTANTS = [Mutant("harmless", "rules.py", "# Chow at", "# Chow, at", RULES)]\n\n\nclass Broken'
    )
    script = tmp_path / "mutants.py"
    script.write_text(text.replace("class Broken", harmless))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ALIVE" in done.stdout
