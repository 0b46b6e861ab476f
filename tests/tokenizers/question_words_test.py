import re

import pytest

from tpt_keras.data_generators.mathematics.archive import MODULES
from tpt_keras.data_generators.mathematics.shards import generate_shard
from tpt_keras.tokenizers.character_tokenizer import QUESTION_WORDS

# Bags of letters, and numbers whose digits may be letters.
WITH_RANDOM_LETTERS = (
    "arithmetic__add_or_sub_in_base",
    "numbers__base_conversion",
    "probability__swr_p_level_set",
    "probability__swr_p_sequence",
)


@pytest.mark.slow
def test_words_are_those_of_the_modules():
    """With 400 problems of each difficulty, so the list was made."""
    found = []
    for module in MODULES:
        problems = generate_shard(
            module, "train_medium", 0, "words", 12
        ).problems
        for question, _ in problems:
            runs = re.findall("[A-Za-z0-9]+", question)
            words = [run for run in runs if re.fullmatch("[A-Za-z]{2,}", run)]
            if module in WITH_RANDOM_LETTERS:
                assert set(words[:2]) <= set(QUESTION_WORDS)
            else:
                found += words
    unknown = [word for word in found if word not in QUESTION_WORDS]
    assert len(unknown) <= 0.001 * len(found), unknown
