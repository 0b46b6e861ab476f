"""Accuracy of a model, module by module and split by split."""

import itertools

from tpt_keras.data_generators.prepared_data import problem_sources
from tpt_keras.data_generators.problem_batches import ProblemBatches
from tpt_keras.data_generators.problem_slice import ProblemSlice
from tpt_keras.training.problem_lengths import problems_taken


def evaluate(
    trainer,
    modules,
    splits,
    data_dir,
    batch_size=256,
    dataset="mathematics_dataset",
    max_examples=None,
):
    """Evaluates a model.

    A problem that is too long for the model (`max_question_length`,
    `max_answer_length`) is one that it does not answer: `solve` would refuse
    the question, or cut the answer off, whatever its attention could compute.

    Args:
        trainer: A compiled `TransformerTrainer`.
        modules: Names of training modules.
        splits: Names of splits; one that a module lacks is passed over.
        data_dir: Folder that `experiments.prepare_data` filled.
        batch_size: Problems in a batch.
        dataset: One of `prepared_data.DATASETS`.
        max_examples: Problems of every module and split to look at, always the
            same. Defaults to all.

    Returns:
        List of dicts of `module`, `split`, `examples`, `too_long` (how many of
        these are), `sequence_accuracy` and, of those that are not too long,
        `loss` (nats per token) and `token_accuracy`, which are `None` where
        all are.
    """
    # What is not there is refused before anything is computed.
    sources = {
        split: problem_sources(data_dir, modules, [split], dataset)
        for split in splits
    }
    results = []
    for module, split in itertools.product(modules, splits):
        source = sources[split][module]
        if not len(source):
            continue
        if max_examples is not None:
            source = ProblemSlice(source, stop=max_examples)
        results.append(
            {
                "module": module,
                "split": split,
                "examples": len(source),
                **_evaluate_problems(trainer, source, batch_size),
            }
        )
    return results


def _evaluate_problems(trainer, source, batch_size):
    """What there is to say about a source of problems, but for their number."""
    model = trainer.transformer
    taken = problems_taken(source, model.config)
    results = {"too_long": len(source) - len(taken)}
    if not len(taken):
        return (
            results
            | dict.fromkeys(trainer.EVALUATED, None)
            | {"sequence_accuracy": 0.0}
        )
    batches = ProblemBatches(taken, model.tokenizer, batch_size)
    results |= evaluate_batches(trainer, batches)
    results["sequence_accuracy"] *= len(taken) / len(source)
    return results


def evaluate_batches(trainer, batches):
    """Evaluates a model on an epoch of batches.

    Args:
        trainer: A compiled `Trainer`.
        batches: A `NumberedBatches`.

    Returns:
        Dict of the trainer's `EVALUATED`: `loss` (nats per token),
        `token_accuracy`, and `sequence_accuracy` or `bits_per_character`.
    """
    with batches.own_errors():
        results = trainer.evaluate(
            trainer.feed(batches, num_epochs=1),
            # Keras does not learn the length of what it is fed.
            steps=batches.steps_per_epoch,
            return_dict=True,
            verbose=0,
        )
    return {name: results[name] for name in trainer.EVALUATED}
