r"""Evaluates a model on what it was not trained on.

    python -m experiments.evaluate --model_dir=models/demo \
        --splits=interpolate,extrapolate
"""

from absl import flags

from tpt_keras.errors import UsageError

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", None, "Folder of the trained model.")
flags.DEFINE_list(
    "splits", ["interpolate", "extrapolate"], "Names of the splits."
)
flags.DEFINE_list(
    "modules", [], "Names of the modules. Default: those of the training."
)
flags.DEFINE_string(
    "data_dir", None, "Folder of the data. Default: the training's."
)
flags.DEFINE_string("dataset", None, "Default: the training's.")
flags.DEFINE_bool("best", False, "The best model in place of the last.")
flags.DEFINE_integer("batch_size", 256, "Problems in a batch.")


def main():
    if not FLAGS.model_dir:
        raise UsageError("--model_dir is missing: which model?")
    if FLAGS.batch_size <= 0:
        raise UsageError("--batch_size must be positive.")
    from tpt_keras.data_generators.mathematics_modules import select_modules
    from tpt_keras.models.load_model import load_model
    from tpt_keras.training import model_folder
    from tpt_keras.training.evaluate import evaluate
    from tpt_keras.training.evaluation_log import saved_step
    from tpt_keras.training.evaluation_log import write_evaluations
    from tpt_keras.training.transformer_trainer import TransformerTrainer

    model = load_model(FLAGS.model_dir, FLAGS.best)
    step = saved_step(FLAGS.model_dir, FLAGS.best)
    training = model_folder.read_config(FLAGS.model_dir).get("training", {})
    modules = select_modules(FLAGS.modules) or training.get("modules")
    dataset = FLAGS.dataset or training.get("dataset", "mathematics_dataset")
    data_dir = FLAGS.data_dir or training.get("data_dir")
    if not modules or not data_dir:
        raise UsageError(
            "The model was not trained here: name --modules and --data_dir."
        )
    trainer = TransformerTrainer(model)
    trainer.compile(jit_compile=False)
    results = evaluate(
        trainer, modules, FLAGS.splits, data_dir, FLAGS.batch_size, dataset
    )
    if not results:
        raise UsageError(
            f"There is nothing to evaluate: none of the modules "
            f"{', '.join(modules)} has a split of --splits="
            f"{','.join(FLAGS.splits)}."
        )
    for result in results:
        print(
            f"{result['module']:40} {result['split']:12} "
            f"{result['sequence_accuracy']:8.2%} of "
            f"{result['examples']} answers right "
            f"(loss {result['loss']:.4f})"
        )
    # Last, for it may fail, in a folder that cannot be written.
    identity = {
        "model": "best" if FLAGS.best else "last",
        "step": step,
        "dataset": dataset,
    }
    write_evaluations(
        FLAGS.model_dir, [{**identity, **result} for result in results]
    )


if __name__ == "__main__":
    _cli.run(main)
