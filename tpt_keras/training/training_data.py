"""What a training learns from, and what it is validated on."""

import collections
import hashlib

import numpy as np

from tpt_keras.data_generators.prepared_data import problem_sources
from tpt_keras.data_generators.prepared_data import train_splits
from tpt_keras.data_generators.problem_batches import ProblemBatches
from tpt_keras.data_generators.problem_mixture import ProblemMixture
from tpt_keras.data_generators.problem_slice import ProblemSlice
from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer
from tpt_keras.training.problem_lengths import CheckedSource

# Problems of a module that its fingerprint is made of.
_FINGERPRINTED = 64


def training_sources(config):
    """All training problems.

    Args:
        config: A `TrainingConfig`.

    Returns:
        Dict of the modules' names to `ProblemSource`s.
    """
    return problem_sources(
        config.data.data_dir,
        config.data.modules,
        train_splits(config.data.dataset),
        config.data.dataset,
    )


def training_batches(sources, model_config, config):
    """The training and the validation batches, cut by the seed.

    Args:
        sources: What `training_sources` gave.
        model_config: A `SequenceToSequenceConfig`.
        config: A `TrainingConfig`.

    Returns:
        Two `ProblemBatches` without a common example, which raise a
        `UsageError` when they read a problem that is too long for the model.
    """
    apart = -(-config.data.validation_examples // len(sources))
    for module, source in sources.items():
        if len(source) <= apart:
            raise UsageError(
                f"Module {module} has {len(source)} training problems, of "
                f"which {apart} are set apart for validation. Generate more, "
                "or lower --validation_examples."
            )

    def batches(weights, **part):
        return ProblemBatches(
            ProblemMixture(
                [
                    ProblemSlice(
                        CheckedSource(source, module, model_config),
                        seed=config.run.seed,
                        **part,
                    )
                    for module, source in sources.items()
                ],
                weights,
            ),
            CharacterTokenizer(model_config.vocabulary),
            config.data.batch_size,
            seed=config.run.seed,
        )

    return (
        batches(config.data.module_weights or None, start=apart),
        batches(None, stop=apart),
    )


def data_fingerprints(sources):
    """What tells whether the training problems are still the same.

    It comes from the number of a module's problems and from some of them, all
    over it, so that it is known in no time, and the same where the data was
    moved.

    Args:
        sources: What `training_sources` gave.

    Returns:
        Dict of the modules' names to strings.
    """
    fingerprints = {}
    for module, source in sources.items():
        indices = np.linspace(0, len(source) - 1, _FINGERPRINTED, dtype=int)
        problems = [array.tolist() for array in source.read(indices)]
        content = repr((len(source), problems)).encode()
        fingerprints[module] = hashlib.sha256(content).hexdigest()[:16]
    return fingerprints


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
    counts = collections.Counter(config.data.modules[owner] for owner in owners)
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())
