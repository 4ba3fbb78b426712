"""Text to ids and back: SentencePiece, tokenizer.json, GGUF's BPE, chat templates, streaming."""

from spec_cascades.tokenizers.base import Tokenizer, check_compatible
from spec_cascades.tokenizers.chat import Chat, Message
from spec_cascades.tokenizers.fast import Fast, from_gguf, read_folder, read_template
from spec_cascades.tokenizers.pieces import EXTRA_IDS, PromptPiece, SentencePiece
from spec_cascades.tokenizers.stream import Stream

__all__ = [
    "EXTRA_IDS",
    "Chat",
    "Fast",
    "Message",
    "PromptPiece",
    "SentencePiece",
    "Stream",
    "Tokenizer",
    "check_compatible",
    "from_gguf",
    "read_folder",
    "read_template",
]
