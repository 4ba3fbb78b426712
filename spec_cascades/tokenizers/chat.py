"""Chat templates: a conversation as the text a model was tuned on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}."""


@dataclass(frozen=True)
class Chat:
    """A checkpoint's own Jinja template, run in a sandbox: it may come from anywhere.

    template: None where the checkpoint has none; bos, eos: the pieces that a template may spell out.
    """

    template: str | None
    bos: str
    eos: str

    def __call__(self, messages: Sequence[Message]) -> str:
        """The text up to where the assistant's answer begins.

        Raises ValueError where there is no template, and where it refuses the messages or is broken.
        """
        from jinja2 import TemplateError

        if self.template is None:
            raise ValueError("this model has no chat template: pass it plain text")
        try:
            return (
                _environment()
                .from_string(self.template)
                .render(
                    messages=list(messages),
                    add_generation_prompt=True,
                    bos_token=self.bos,
                    eos_token=self.eos,
                )
            )
        except (TemplateError, TypeError) as error:
            raise ValueError(f"the model's chat template refuses the messages: {error}") from error


def _environment() -> Any:
    """What published templates expect: block trimming, loop controls, `raise_exception` and a date."""
    from datetime import datetime

    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment
