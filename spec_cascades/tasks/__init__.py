"""Data sets as prompts and scores, one file each; `registry` has them by name.

A program that has imported seqio finds them in its TaskRegistry after `import spec_cascades.tasks`; without
seqio this import stays light, and `import spec_cascades.tasks.seqio_tasks` registers them at any time.
"""

import sys

if "seqio" in sys.modules:
    from spec_cascades.tasks import seqio_tasks as seqio_tasks
