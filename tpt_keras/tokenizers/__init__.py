"""Strings to token ids and back: in Python, and inside TensorFlow's graph."""

from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer
from tpt_keras.tokenizers.character_tokenizer import vocabulary_of

__all__ = [
    "CharacterTokenizer",
    "vocabulary_of",
]
