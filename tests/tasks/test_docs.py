from pathlib import Path

from spec_cascades.tasks.showing import markdown


def test_the_documented_table_is_the_registrys():
    """Rewrite it from `python -c "from spec_cascades.tasks.showing import markdown; print(markdown())"`."""
    assert markdown() in (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
