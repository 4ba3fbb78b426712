"""WMT14 English to German: the news test of 2013, as the paper takes it."""

from pathlib import Path

from spec_cascades.checks import ConfigError
from spec_cascades.tasks import reading
from spec_cascades.tasks.base import Data, Item, Row, View


def read(path: Path) -> list[Row]:
    """Rows en, de of a TSV, a .jsonl, or NAME.en with NAME.de beside it, line by line."""
    if path.suffix == ".jsonl":
        return reading.jsonl(path)
    if path.suffix != ".en":
        return reading.tsv(path, "en", "de")
    sides = [reading.text_of(p).removesuffix("\n").split("\n") for p in (path, path.with_suffix(".de"))]
    if len(sides[0]) != len(sides[1]):
        raise ConfigError(f"{path} has {len(sides[0])} lines and its .de {len(sides[1])}")
    return [{"en": en.strip(), "de": de.strip()} for en, de in zip(*sides, strict=True)]


def item(row: Row) -> Item:
    """The source is what is cut: nothing else of the prompt could be."""
    row = row.get("translation", row)
    target = reading.text(row["de"])
    return Item("", target, target, reading.text(row["en"]))


DATA = Data(
    name="wmt14_en_de",
    kind="translation",
    tfds="wmt14_translate/de-en:1.0.0",
    layout="a TSV of English and German, a .jsonl with en and de, or NAME.en with NAME.de beside it",
    licence="none stated as a whole; offered for the shared task",
    split="validation",
    train="train",
    lengths=(80, 80),
    shots=5,
    max_new_tokens=128,
    metric="bleu",
    paper="T5: the 3,000 validation pairs, lengths 80/80, BLEU; Gemma: 5 shots",
    cut="solved examples, then the source from its end",
    encdec=View("translate English to German: "),
    few_shot=View("English: ", "\nGerman:", stop=("\n",)),
    chat=View("Translate this text from English to German. Answer with the translation alone.\n\n"),
    read=read,
    item=item,
    sample={"en": "The harbour is closed until Monday.", "de": "Der Hafen ist bis Montag geschlossen."},
)
