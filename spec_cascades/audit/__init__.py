"""An engine's output held against its law: samples against enumeration, and greedy text token by token."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from spec_cascades import runlog
from spec_cascades.audit.settings import Audit
from spec_cascades.sweep import fitted, versions, with_alpha
from spec_cascades.tasks.asked import ask

FINDINGS = "audit.jsonl"


def run(audit: Audit, engine: Any = None) -> list[dict[str, Any]]:
    """One finding a check, `passed` or not, written to OUT/audit.jsonl where an output is given.

    Greedy decoding draws nothing: only its text is checked then. Raises ValueError where a model is missing
    and for drafts whose law cannot be told.
    """
    from spec_cascades.audit import greedy, sampled  # jax

    audit = replace(audit, decoding=with_alpha(audit.decoding))
    if engine is None:
        from spec_cascades.engine import engine_of

        engine = engine_of(audit.models)
    texts = _prompts(audit, engine)
    # On a mesh the laws are computed there, too: pi of many positions is as wide as the vocabulary.
    with engine.within():
        findings = sampled.check(audit, engine, texts) if audit.decoding.temperature > 0 else []
        findings += greedy.check(audit, engine, texts)
    if audit.output is not None:
        shared = {"audit": asdict(audit), "versions": versions()}
        runlog.write_records(Path(audit.output) / FINDINGS, [f | shared for f in findings])
    return findings


def _prompts(audit: Audit, engine: Any) -> list[str]:
    if audit.prompts:
        return list(audit.prompts)
    asked = ask(audit.task, audit.models.chat)
    role = "drafter" if audit.decoding.method == "drafter" else "target"
    return fitted(engine, asked, audit.decoding.max_new_tokens, role)[0]
