"""The report of models' accuracies beside the paper's, as a page and more."""

import functools
import json
import pathlib

from tpt_keras.errors import UsageError


def write_report(page, model_dirs, problems, best=False, batch_size=64):
    """Leaves a page and what is beside it; see `experiments.report`.

    Args:
        page: The page's path, which ends in .html.
        model_dirs: Folders of the models.
        problems: Dict of `data_dir`, `dataset`, `modules`, `splits` and
            `examples`, the most of each module and split.
        best: Whether to take the best models in place of the last.
        batch_size: Questions decoded together.

    Returns:
        Dict of what report.json holds.

    Raises:
        UsageError: If there are no such problems, or a model is not there.
    """
    from tpt_keras.files import folder_lock
    from tpt_keras.training.problem_samples import problem_samples
    from tpt_keras.visualization.page import plotly_library

    plotly_library()  # or nothing is to be computed
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
    models = describe_models(model_dirs, best)
    folder = page.with_name(f"{page.stem}_predictions")
    with folder_lock(folder, "writes predictions"):
        predictions = {
            model["name"]: answer(
                model, samples, folder / model["name"], batch_size
            )
            for model in models
        }
    return write(page, models, predictions, problems)


def describe_models(model_dirs, best):
    """A dict for every model; what cannot be loaded is refused here."""
    from tpt_keras.analysis.prediction_folder import model_fingerprint
    from tpt_keras.models.load_model import load_model
    from tpt_keras.training.evaluation_log import saved_step
    from tpt_keras.training.model_folder import read_training

    described = []
    folders = list(dict.fromkeys(model_dirs))
    names = [pathlib.Path(model_dir).resolve().name for model_dir in folders]
    for model_dir, name in zip(folders, names):
        if names.count(name) > 1:
            name = str(pathlib.Path(model_dir)).strip("/").replace("/", "-")
        model = load_model(model_dir, best)
        step = saved_step(model_dir, best)
        if step is None and not best:
            step = read_training(model_dir).get("train_steps")
        described.append(
            {
                "name": name,
                "model_dir": model_dir,
                "model": "best" if best else "last",
                "step": step,
                "weights": model.count_params(),
                "fingerprint": model_fingerprint(model),
            }
        )
    return described


def answer(model, samples, path, batch_size):
    """A model's predictions of samples, which it keeps in files."""
    import tqdm

    from tpt_keras.analysis.accuracies import module_accuracy
    from tpt_keras.analysis.prediction_folder import PredictionFolder
    from tpt_keras.analysis.predictions import predict_samples
    from tpt_keras.analysis.predictions import prediction_generator
    from tpt_keras.models.load_model import load_model

    folder = PredictionFolder(path, model)
    load = functools.cache(
        lambda: prediction_generator(
            load_model(model["model_dir"], model["model"] == "best"),
            batch_size,
        )
    )
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
            progress.update,
            keep,
        )


def write(page, models, predictions, problems):
    """Writes everything but the predictions; returns what is in numbers."""
    from tpt_keras.analysis.accuracies import PUBLISHED
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
        "published": PUBLISHED,
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
    return report
