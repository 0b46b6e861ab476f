"""Strings to token ids and back: in Python, and inside TensorFlow's graph."""

from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

__all__ = [
    "CharacterTokenizer",
]
