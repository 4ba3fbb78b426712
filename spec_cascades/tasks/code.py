"""What both coding tasks share: a program in an answer."""

import re

FENCE = re.compile(r"```(?:python|py|Python)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)


def program(answer: str) -> str:
    """The first fenced block of an answer, else all of it; indentation is kept, line ends behind it go."""
    fenced = FENCE.search(answer)
    return (fenced.group(1) if fenced else answer).rstrip()
