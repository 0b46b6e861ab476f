"""Accuracy of a model, module by module and split by split."""

from tpt_keras.data_generators.prepared_data import dataset_builder
from tpt_keras.data_generators.prepared_data import problem_source
from tpt_keras.data_generators.problem_batches import ProblemBatches


def evaluate(model, modules, splits, data_dir, batch_size=256):
    """Evaluates a compiled model.

    Args:
        model: A `Transformer`, compiled as for training.
        modules: Names of training modules.
        splits: Names of splits; a module may lack extrapolation.
        data_dir: Folder that `experiments.prepare_data` filled.
        batch_size: Problems in a batch.

    Returns:
        List of dicts of `module`, `split`, `examples`, `loss`,
        `sequence_accuracy` and `token_accuracy`.
    """
    results = []
    for module in modules:
        # Unknown names are refused before anything is computed.
        problem_source(data_dir, [module], splits)
        builder = dataset_builder(module, data_dir)
        for split in splits:
            if split not in builder.info.splits:
                continue
            batches = ProblemBatches(
                problem_source(data_dir, [module], [split]),
                model.tokenizer,
                batch_size,
            )
            metrics = model.evaluate(
                batches.dataset(num_epochs=1),
                steps=batches.steps_per_epoch,
                return_dict=True,
                verbose=0,
            )
            results.append(
                {
                    "module": module,
                    "split": split,
                    "examples": len(batches),
                    **metrics,
                }
            )
    return results
