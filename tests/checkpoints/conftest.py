"""Fixtures: tiny T5s and a tiny SentencePiece model."""

import pytest
from tiny_t5 import SIZES, random_params

from spec_cascades.models import t5

TEXT = "a small model drafts and a large one defers to nobody while the cat looks at two grey birds"


@pytest.fixture(params=["1.0", "1.1"])
def model(request):
    """(Config, params) of a tied ReLU model and of an untied gated one."""
    old = dict(gated=False, activation="relu", tied=True)
    config = t5.Config(**SIZES, **(old if request.param == "1.0" else {}))
    return config, random_params(config)


@pytest.fixture
def gated():
    """(Config, params) of an untied gated model that uses its whole table."""
    config = t5.Config(**SIZES | {"vocab": 96})
    return config, random_params(config)


@pytest.fixture(scope="session")
def spiece(tmp_path_factory):
    """A SentencePiece model of 40 pieces with T5's special ids."""
    import sentencepiece

    prefix = tmp_path_factory.mktemp("spiece") / "spiece"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([TEXT, TEXT[::-1]]),
        model_prefix=str(prefix),
        vocab_size=40,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return prefix.with_suffix(".model")
