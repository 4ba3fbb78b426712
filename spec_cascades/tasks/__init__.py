"""Data sets as prompts and scores, one file each; `registry` has them by name.

A program that has imported seqio finds them in its TaskRegistry after `import spec_cascades.tasks`; without
seqio this import stays light, and `import spec_cascades.tasks.seqio_tasks` registers them at any time.
"""

import sys

if sys.modules.get("seqio"):  # None stands for a module that must not be imported
    from spec_cascades.tasks import seqio_tasks as seqio_tasks
