"""What a training learns from, and what it is validated on."""

import collections

from tpt_keras.data_generators.character_tokenizer import CharacterTokenizer
from tpt_keras.data_generators.prepared_data import problem_source
from tpt_keras.data_generators.prepared_data import train_splits
from tpt_keras.data_generators.problem_batches import ProblemBatches
from tpt_keras.data_generators.problem_mixture import ProblemMixture
from tpt_keras.data_generators.problem_slice import ProblemSlice
from tpt_keras.errors import UsageError


def training_batches(model_config, config):
    """The training and the validation batches, cut by the seed.

    Args:
        model_config: A `TransformerConfig`.
        config: A `TrainingConfig`.

    Returns:
        Two `ProblemBatches` without a common example.
    """
    sources = [
        problem_source(
            config.data_dir,
            module,
            train_splits(config.dataset),
            config.dataset,
        )
        for module in config.modules
    ]
    apart = -(-config.validation_examples // len(sources))
    for module, source in zip(config.modules, sources):
        if len(source) <= apart:
            raise UsageError(
                f"Module {module} has {len(source)} training problems, of "
                f"which {apart} are set apart for validation. Generate more, "
                "or lower --validation_examples."
            )

    def batches(weights, **part):
        return ProblemBatches(
            ProblemMixture(
                [ProblemSlice(s, seed=config.seed, **part) for s in sources],
                weights,
            ),
            CharacterTokenizer(model_config.vocabulary),
            config.batch_size,
            seed=config.seed,
        )

    return (
        batches(config.module_weights or None, start=apart),
        batches(None, stop=apart),
    )


def module_mix(training, config, data_step):
    """How many problems of each module a training batch holds.

    Args:
        training: The training's `ProblemBatches`.
        config: A `TrainingConfig`.
        data_step: Number of the batch.

    Returns:
        Text such as `"numbers__gcd 80, numbers__place_value 48"`.
    """
    owners = training.source.owners(training.indices(data_step))
    counts = collections.Counter(config.modules[owner] for owner in owners)
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())
