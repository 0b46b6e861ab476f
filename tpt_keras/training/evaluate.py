"""Accuracy of a model, module by module and split by split."""

from tpt_keras.data_generators.prepared_data import problem_source
from tpt_keras.data_generators.problem_batches import ProblemBatches


def evaluate(
    model,
    modules,
    splits,
    data_dir,
    batch_size=256,
    dataset="mathematics_dataset",
):
    """Evaluates a compiled model.

    Args:
        model: A `Transformer`, compiled as for training.
        modules: Names of training modules.
        splits: Names of splits; one that a module lacks is passed over.
        data_dir: Folder that `experiments.prepare_data` filled.
        batch_size: Problems in a batch.
        dataset: One of `prepared_data.DATASETS`.

    Returns:
        List of dicts of `module`, `split`, `examples`, `loss`,
        `sequence_accuracy` and `token_accuracy`.
    """
    # Unknown names are refused before anything is computed.
    sources = {
        (module, split): problem_source(data_dir, module, [split], dataset)
        for module in modules
        for split in splits
    }
    results = []
    for (module, split), source in sources.items():
        if not len(source):
            continue
        batches = ProblemBatches(source, model.tokenizer, batch_size)
        metrics = model.evaluate(
            batches.dataset(num_epochs=1), return_dict=True, verbose=0
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
