r"""Reports models' accuracies beside the paper's.

    python -m experiments.report --model_dirs=models/demo,models/other \
        --splits=interpolate,extrapolate --output=report.html

Leaves the paper's Table 1 with a row for each model, report.md, and the same
in numbers, report.json; its appendix's figures, report_interpolate.png and so
on; report.html, which has both and what was answered wrong; and in
report_predictions/ every question, its target, the model's answer and its
log-probability, a line of JSON each. What is there is not computed again. The
page is drawn with plotly: pip install 'tpt_keras[analysis]'.
"""

import json
import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_list("model_dirs", [], "Folders of the models.")
flags.DEFINE_list(
    "splits",
    ["interpolate", "extrapolate"],
    "Names of the splits; train is all training splits together.",
)
flags.DEFINE_list(
    "modules",
    [],
    "Names of modules, patterns (numbers__*), or all. Default: those of the "
    "trainings.",
)
flags.DEFINE_string(
    "data_dir", None, "Folder of the data. Default: the trainings'."
)
flags.DEFINE_string("dataset", None, "Default: the trainings'.")
flags.DEFINE_integer(
    "examples", 100, "Problems of each module and split, at most."
)
flags.DEFINE_bool("best", False, "The best models in place of the last.")
flags.DEFINE_integer("batch_size", 64, "Questions decoded together.")
flags.DEFINE_string("output", "report.html", "Page to write; see above.")


def main():
    check_flags()
    from tpt_keras.analysis.accuracies import PUBLISHED
    from tpt_keras.files import folder_lock
    from tpt_keras.training.problem_samples import problem_samples
    from tpt_keras.visualization.page import plotly_library

    plotly_library()  # or nothing is to be computed
    problems = choose_problems()
    samples = problem_samples(
        problems["data_dir"],
        problems["modules"],
        problems["splits"],
        problems["examples"],
        problems["dataset"],
    )
    if not samples:
        raise UsageError(
            f"None of the modules {', '.join(problems['modules'])} has "
            f"problems of --splits={','.join(problems['splits'])}."
        )
    models = describe_models()
    page = pathlib.Path(FLAGS.output)
    folder = page.with_name(f"{page.stem}_predictions")
    with folder_lock(folder, "writes predictions"):
        predictions = {
            model["name"]: answer(model, samples, folder / model["name"])
            for model in models
        }
    write(page, models, predictions, problems, PUBLISHED)
    print(page)


def check_flags():
    """Refuses what makes no sense before anything is loaded."""
    if not FLAGS.model_dirs:
        raise UsageError("--model_dirs is missing: which models?")
    if not FLAGS.splits:
        raise UsageError("--splits is empty: name interpolate, or others.")
    for name in ("examples", "batch_size"):
        if FLAGS[name].value <= 0:
            raise UsageError(f"--{name} must be positive.")
    if pathlib.Path(FLAGS.output).suffix != ".html":
        raise UsageError(
            f"--output={FLAGS.output!r} is no name of a page: let it end in "
            ".html. The other files get its name."
        )


def choose_problems():
    """Which problems all models are asked: a dict."""
    from tpt_keras.data_generators.mathematics_modules import select_modules
    from tpt_keras.data_generators.prepared_data import DATASETS
    from tpt_keras.training.problem_samples import TRAIN

    dataset = of_trainings("dataset", FLAGS.dataset, "mathematics_dataset")
    check_names("--dataset", [dataset], DATASETS)
    splits = list(dict.fromkeys(FLAGS.splits))
    check_names("--splits name", splits, {TRAIN, *DATASETS[dataset]})
    modules = of_trainings("modules", list(select_modules(FLAGS.modules)))
    return {
        "dataset": dataset,
        "data_dir": of_trainings("data_dir", FLAGS.data_dir),
        "modules": modules,
        "splits": splits,
        "examples": FLAGS.examples,
    }


def of_trainings(name, given, default=None):
    """What a flag says, or otherwise the models' trainings all together."""
    if given:
        return given
    found = []
    for model_dir in FLAGS.model_dirs:
        value = read_training(model_dir).get(name, default)
        if not value:
            raise UsageError(
                f"The model {model_dir!r} does not tell the {name} of its "
                f"training: name --{name}."
            )
        if isinstance(value, list):
            value = sorted(value)
        if value not in found:
            found.append(value)
    if len(found) > 1:
        raise UsageError(
            f"The models were trained with several {name}: name --{name}."
        )
    return found[0]


def read_training(model_dir):
    """What a model's folder tells of its training; a model alone tells none."""
    from tpt_keras.training import model_folder

    if not (pathlib.Path(model_dir) / model_folder.CONFIG_FILE).exists():
        return {}
    return model_folder.read_config(model_dir).get("training", {})


def describe_models():
    """A dict for every model; what cannot be loaded is refused here."""
    from tpt_keras.analysis.prediction_folder import model_fingerprint
    from tpt_keras.models.load_model import load_model
    from tpt_keras.training.evaluation_log import saved_step

    described = []
    folders = list(dict.fromkeys(FLAGS.model_dirs))
    names = [pathlib.Path(model_dir).resolve().name for model_dir in folders]
    for model_dir, name in zip(folders, names):
        if names.count(name) > 1:
            name = str(pathlib.Path(model_dir)).strip("/").replace("/", "-")
        model = load_model(model_dir, FLAGS.best)
        step = saved_step(model_dir, FLAGS.best)
        if step is None and not FLAGS.best:
            step = read_training(model_dir).get("train_steps")
        described.append(
            {
                "name": name,
                "model_dir": model_dir,
                "model": "best" if FLAGS.best else "last",
                "step": step,
                "weights": model.count_params(),
                "fingerprint": model_fingerprint(model),
            }
        )
    return described


def answer(model, samples, path):
    """A model's predictions of samples, which it keeps in files."""
    import functools

    import tqdm

    from tpt_keras.analysis.accuracies import module_accuracy
    from tpt_keras.analysis.prediction_folder import PredictionFolder
    from tpt_keras.analysis.predictions import predict_samples
    from tpt_keras.models.load_model import load_model

    folder = PredictionFolder(path, model)
    load = functools.cache(lambda: load_model(model["model_dir"], FLAGS.best))
    num_done = 0
    with tqdm.tqdm(
        total=sum(map(len, samples.values())), unit=" answers", leave=False
    ) as progress:

        def tell():
            progress.set_description(
                f"{model['name']}, {num_done} of {len(samples)} modules' splits"
            )

        def keep(key, predictions):
            nonlocal num_done
            split, module = key
            folder.write(split, module, predictions)
            num_done += 1
            tell()
            result = module_accuracy(predictions)
            tqdm.tqdm.write(
                f"{model['name']:20} {module:40} {split:12} "
                f"{result['accuracy']:8.2%} of {result['examples']} answers "
                "right"
            )

        tell()
        return predict_samples(
            load,
            samples,
            lambda key: folder.read(*key),
            FLAGS.batch_size,
            progress.update,
            keep,
        )


def write(page, models, predictions, problems, published):
    """Writes everything but the predictions, beside each other."""
    from tpt_keras.analysis.accuracies import split_accuracies
    from tpt_keras.files import whole_file
    from tpt_keras.visualization.accuracy_bars import draw_accuracy_bars
    from tpt_keras.visualization.accuracy_page import write_accuracy_page
    from tpt_keras.visualization.accuracy_table import markdown_table

    report = {
        "problems": problems,
        "models": [
            {**model, "splits": split_accuracies(predictions[model["name"]])}
            for model in models
        ],
        "published": published,
    }
    with whole_file(page.with_suffix(".json")) as partial:
        partial.write_text(json.dumps(report, indent=2))
    with whole_file(page.with_suffix(".md")) as partial:
        partial.write_text(markdown_table(report), encoding="utf-8")
    for split in report["models"][0]["splits"]:
        path = page.with_name(f"{page.stem}_{split}.png")
        accuracies = {
            model["name"]: model["splits"][split]["of_modules"]
            for model in report["models"]
        }
        with whole_file(path) as partial:
            draw_accuracy_bars(accuracies, f"Accuracy, {split}", partial)
    write_accuracy_page(report, predictions, page)


if __name__ == "__main__":
    _cli.run(main, goes_on=True)
