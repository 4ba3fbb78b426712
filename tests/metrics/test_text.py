import numpy as np
import pytest
import sacrebleu

from spec_cascades.metrics import text

REFERENCES = [
    "Der Zug fährt um sechs Uhr ab.",
    "Wir haben heute keine Zeit.",
    "Sie liest jeden Abend ein gutes Buch.",
    "Mein Bruder wohnt in einer kleinen Stadt am Meer.",
] * 5
ANSWERS = [
    "Der Zug fährt um sieben Uhr ab.",
    "Wir haben keine Zeit heute.",
    "Sie liest jeden Abend ein Buch.",
    "Mein Bruder wohnt in einer kleinen Stadt.",
] * 5


def test_scores_are_sacrebleus_own():
    scores = text.score(ANSWERS, REFERENCES)
    assert scores.bleu == pytest.approx(sacrebleu.corpus_bleu(ANSWERS, [REFERENCES]).score)
    assert scores.chrf == pytest.approx(sacrebleu.corpus_chrf(ANSWERS, [REFERENCES]).score)
    assert "tok:13a" in scores.bleu_signature
    assert f"version:{sacrebleu.__version__}" in scores.bleu_signature


@pytest.mark.parametrize("answers", [ANSWERS, ["Ja.", "", "Nein danke.", "Der Zug"] * 5, [""] * 20])
def test_bleu_of_summed_counts_is_corpus_bleu(answers):
    counts = text.bleu_counts(answers, REFERENCES)
    assert text.bleu_of(counts.sum(0)) == pytest.approx(sacrebleu.corpus_bleu(answers, [REFERENCES]).score)


def test_sentence_chrf():
    scores = text.sentence_chrf([REFERENCES[0], "xyz"], REFERENCES[:2])
    assert scores[0] == pytest.approx(100)
    assert scores[1] < 5


def test_interval_holds_the_value_and_repeats_itself():
    counts = text.bleu_counts(ANSWERS, REFERENCES)
    interval = text.bleu_interval(counts)
    assert interval.low < interval.value < interval.high
    assert interval == text.bleu_interval(counts)
    assert interval != text.bleu_interval(counts, seed=1)
    wider = text.bleu_interval(counts[:8])
    assert wider.high - wider.low > interval.high - interval.low


def test_pairing_sees_what_two_intervals_would_not():
    good, worse = ANSWERS, [a.rsplit(" ", 1)[0] for a in ANSWERS]
    a, b = text.bleu_counts(good, REFERENCES), text.bleu_counts(worse, REFERENCES)
    gap = text.bleu_difference(a, b)
    assert 0 < gap.low < gap.value < gap.high
    assert text.bleu_difference(a, a) == (0, 0, 0)
    with pytest.raises(ValueError, match="same sentences"):
        text.bleu_difference(a, b[1:])


def test_counts_are_additive_over_repeats():
    counts = text.bleu_counts(ANSWERS, REFERENCES)
    assert counts.shape == (20, 10)
    assert text.bleu_of(counts.sum(0)) == pytest.approx(text.bleu_of((2 * counts).sum(0)))
    assert np.issubdtype(counts.dtype, np.integer)
