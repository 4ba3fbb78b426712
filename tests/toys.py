"""A real engine over the toy Markov pair: prompts are ids in words, "3 1 2", and so are answers."""

from types import SimpleNamespace

import laws

from spec_cascades.checkpoints import Loaded
from spec_cascades.engine import Engine
from spec_cascades.models import markov


class Words:
    """Ids as the words they are; the last one ends a text."""

    def __init__(self, vocab):
        self.size, self.eos, self.pad = vocab, vocab - 1, 0
        self.stops, self.fingerprint = (self.eos,), "words"
        self.pieces = tuple(map(str, range(vocab)))

    def encode(self, text):
        return [int(word) for word in text.split()]

    def decode(self, ids):
        return " ".join(str(int(i)) for i in ids if int(i) != self.eos)


class Toy(markov.Markov):
    """With a cost, which a sweep asks for."""

    def flops_per_token(self):
        return 1.0


def engine(tables=None, drafter="toy", mesh=None):
    """An engine whose models are there already, on a mesh's devices where one is given."""
    tables = tables or laws.tables()
    made = Engine("toy" if "target" in tables else None, drafter, "float32", mesh=mesh)
    vocab = next(iter(tables.values())).shape[-1]
    if made._layout:
        tables = {role: made._layout.params(Toy(vocab), role, table) for role, table in tables.items()}
    load = lambda role: Loaded(Toy(vocab), tables[role], Words(vocab), SimpleNamespace(context=None), "toy")
    made._loaded = {role: load(role) for role in tables}
    return made
