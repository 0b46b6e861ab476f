"""Where `tpt_keras.tokenizers.character_tokenizer` was until 0.3."""

from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer  # noqa: F401
