"""`inspect` and `convert`: what a model is, and the same model in another format."""

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    text = "a model's sizes, ids and tokenizer, and whether a second one may draft for it"
    sub = commands.add_parser("inspect", help=text, description=text)
    sub.add_argument("target", metavar="REF", help="embedded:, hf://, pypi:, kaggle://, gs:// or a path")
    sub.add_argument("drafter", nargs="?", metavar="DRAFTER_REF")
    sub.set_defaults(command=_inspect)
    text = "rewrite a model, with its tokenizer, as a safetensors or Orbax folder"
    sub = commands.add_parser("convert", help=text, description=text)
    sub.add_argument("ref", metavar="REF")
    sub.add_argument("out", metavar="OUT", type=Path, help="a folder that is not there yet, or empty")
    sub.add_argument("--to", metavar="FORMAT", default="safetensors", help="safetensors (default) or orbax")
    sub.add_argument("--dtype", help="bfloat16 or float32 (default: what loses nothing)")
    sub.set_defaults(command=_convert)


def _inspect(args: argparse.Namespace) -> None:
    from spec_cascades import inspecting

    inspecting.show(args.target, args.drafter)


def _convert(args: argparse.Namespace) -> None:
    from spec_cascades.checkpoints.convert import convert

    print(convert(args.ref, args.out, args.to, args.dtype))
