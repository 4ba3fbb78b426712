"""What a reference names, before anything is decoded, and whether a drafter and a target fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spec_cascades.checkpoints import Header

IDS = ("vocab", "embeddings", "bos", "eos", "pad", "start")
"""Fields of a Config that are shown in rows of their own."""


def show(target: str, drafter: str | None = None) -> None:
    """Prints a table of one reference, or of two and a line on whether they may be used together.

    Raises ValueError as `checkpoints.peek` does.
    """
    from rich.console import Console
    from rich.table import Table

    from spec_cascades.checkpoints import peek

    refs = {"target": target} | ({} if drafter is None else {"drafter": drafter})
    headers = {role: peek(ref) for role, ref in refs.items()}
    table = Table("", *(ref if len(refs) == 1 else f"{role}\n{ref}" for role, ref in refs.items()))
    columns = [facts(header) for header in headers.values()]
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    console = Console()
    if not console.is_terminal:
        console.width = 140  # a pipe has no width, and wrapped names cannot be searched for
    console.print(table, markup=False)
    if drafter is not None:
        console.print(verdict(headers["drafter"], headers["target"]), markup=False, soft_wrap=True)


def facts(header: Header) -> dict[str, str]:
    """The rows of the table: one line on each thing that a header tells."""
    from spec_cascades.checkpoints import families

    config, tokenizer = header.config, header.tokenizer
    ids = config.vocab if tokenizer is None else tokenizer.size
    held = ", ".join(f"{kind} {_bytes(n)}" for kind, n in sorted(header.stored.items()))
    return {
        "family": families.by_config(config).model_type,
        "sizes": ", ".join(f"{k} {v}" for k, v in asdict(config).items() if k not in IDS and v is not None),
        "parameters": f"{header.parameters:,}",
        "in the file": held,
        "vocabulary": f"{ids:,} {'ids' if tokenizer is None else 'pieces'}, {header.lm.vocab:,} rows",
        "tokenizer": "none beside the weights" if tokenizer is None else tokenizer.fingerprint[:16],
        "special ids": special_ids(config, tokenizer),
        "FLOPs per token": f"{header.lm.flops_per_token():,}",
    }


def special_ids(config: Any, tokenizer: Any) -> str:
    """bos, eos (all ids that end a text) and pad: the tokenizer's where there is one, else the Config's."""
    source = config if tokenizer is None else tokenizer
    ends = getattr(source, "stops", None) or config.eos
    ends = ends if isinstance(ends, tuple) else (ends,)
    named: Mapping[str, Sequence[int | None]] = {
        "bos": (getattr(source, "bos", None),),
        "eos": ends,
        "pad": (source.pad,),
    }
    shown = lambda ids: " ".join(str(i) for i in ids if i is not None) or "none"
    return ", ".join(f"{name} {shown(ids)}" for name, ids in named.items())


def obstacle(drafter: Header, target: Header) -> str | None:
    """Why a drafter cannot draft for a target; None if it can.

    Tokenizers are compared by pieces and special ids; tables that are padded to different sizes are no
    obstacle, since the narrower logits are widened by -inf.
    """
    from spec_cascades.tokenizers import check_compatible

    for role, header in (("drafter", drafter), ("target", target)):
        if header.tokenizer is None:
            return f"the {role} has no tokenizer beside its weights"
    try:
        check_compatible(drafter.tokenizer, target.tokenizer)
    except ValueError as error:
        return str(error)
    encodes = lambda header: hasattr(header.config, "encoder_layers")
    if encodes(drafter) != encodes(target):
        return "one of them reads the prompt with an encoder and the other goes on from it"
    return None


def verdict(drafter: Header, target: Header) -> str:
    """`obstacle` and what the pair costs, in a line."""
    why = obstacle(drafter, target)
    if why is not None:
        return f"not to be used together: {why}"
    share = drafter.lm.flops_per_token() / target.lm.flops_per_token()
    line = (
        f"may be used together: the same {target.tokenizer.size:,} pieces and special ids; a drafted token "
    )
    line += f"costs {share:.3f} of a target's FLOPs"
    widths = drafter.lm.vocab, target.lm.vocab
    if widths[0] != widths[1]:
        line += f"; logits are {widths[0]:,} and {widths[1]:,} wide, the narrower is padded with -inf"
    return line


def _bytes(n: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} B"
