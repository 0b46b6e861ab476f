import pytest

from tpt_keras.tuning.search_space import SearchSpace


@pytest.fixture(scope="session")
def tiny_space():
    return SearchSpace(
        variants=("transformer", "tp_transformer"),
        num_layers=(1,),
        num_heads=(1, 2),
        schedules=("constant", "cosine"),
        min_weights=3000,
        max_weights=4000,
    )
