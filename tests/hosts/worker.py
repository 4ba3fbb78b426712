"""The command line over the toy pair, as one process of several:

`python tests/hosts/worker.py [--die N] [--everywhere | --pretend] sweep CONFIG --coordinator ...`

--die: kills itself after its N-th batch, once that is on disk. --everywhere: the models lie on the devices of
all processes, as those of a mesh that spans them; --pretend: they are said to, and there are none (`fakes`).
"""

import argparse
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--die", type=int)
    parser.add_argument("--everywhere", action="store_true")
    parser.add_argument("--pretend", action="store_true")
    own, arguments = parser.parse_known_args()
    import fakes

    from spec_cascades import cli, engine, runlog
    from spec_cascades.hosts import running

    engine.Engine = fakes.FakeEngine if own.pretend else _engine(engine.Engine, own.everywhere)
    if own.everywhere or own.pretend:
        running.spans = lambda models: True
    if own.die is not None:
        runlog.Log.append = _fatal(runlog.Log.append, own.die)
    return cli.main(arguments)


def _engine(real, everywhere):
    """Makes the toy engine in place of the real one, whatever the configuration names."""

    def make(**models):
        import toys

        made = toys.engine(_placed(toys.laws.tables()) if everywhere else None)
        if everywhere:
            _call_with_numbers(made)
        return made

    import toys

    toys.Engine = real
    return make


def _placed(tables):
    """Each table on the devices of all processes."""
    import jax
    import numpy as np

    everywhere = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    whole = jax.sharding.NamedSharding(everywhere, jax.sharding.PartitionSpec())
    put = lambda x: jax.make_array_from_callback(x.shape, whole, lambda index: np.asarray(x)[index])
    return {role: jax.tree.map(put, jax.device_get(table)) for role, table in tables.items()}


def _call_with_numbers(made):
    """What a host knows goes to the loop as numbers, which are the same on every device."""
    import jax

    real = made.call

    def call(texts, decoding):
        found = real(texts, decoding)
        tokens, lengths, request = jax.device_get((found.tokens, found.lengths, found.request))
        return found._replace(tokens=tokens, lengths=lengths, request=request)

    made.call = call


def _fatal(append, n):
    count = 0

    def dying(self, line):
        nonlocal count
        append(self, line)
        count += line["kind"] == "batch"
        if count == n:
            os.kill(os.getpid(), signal.SIGKILL)

    return dying


if __name__ == "__main__":
    sys.exit(main())
