"""Where `tpt_keras.tokenizers.vocabulary` was until 0.3."""

from tpt_keras.tokenizers.vocabulary import *  # noqa: F403
