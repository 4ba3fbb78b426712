"""`tasks list` and `tasks show`."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    text = "the data sets that task.name may name, and how each is asked and scored"
    sub = commands.add_parser("tasks", help=text, description=text)
    kinds = sub.add_subparsers(metavar="list|show", required=True)
    kinds.add_parser("list", help="one row a task").set_defaults(command=_tasks_list)
    show = kinds.add_parser("show", help="a task's prompts on an example, stop strings and scores")
    show.add_argument("name", metavar="NAME")
    show.add_argument("--path", help="a file in the published layout, whose first example is shown")
    show.add_argument("--shots-path", help="the training split, from which solved examples are drawn")
    show.set_defaults(command=_tasks_show)


def _tasks_list(args: argparse.Namespace) -> None:
    from spec_cascades.tasks import showing

    showing.table()


def _tasks_show(args: argparse.Namespace) -> None:
    from spec_cascades.tasks import showing

    print(showing.described(args.name, args.path, args.shots_path))
