"""Flags that several commands share, and what they stand for."""

import dataclasses
import functools
import inspect
import os
import re
import sys

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_positive_integer
from tpt_keras.errors import require

from . import _cli

# The model of a command that is given none: a trained preset.
SOLVER = "tp_transformer_mathematics"

# The flags count as those of the module that calls `define`.
flags.disclaim_key_flags()

_KINDS = {
    bool: flags.DEFINE_bool,
    float: flags.DEFINE_float,
    int: flags.DEFINE_integer,
    str: flags.DEFINE_string,
    tuple: flags.DEFINE_list,
}


def define(config_class, leave_out=()):
    """Defines a flag for every field, with its line under `Args` as help.

    Of a nested class, the fields of all its `SECTIONS` become flags. The help
    has the defaults of a field that sections differ in.
    """
    for field, default, description in _described(config_class):
        if field.name not in leave_out:
            if field.type is tuple:
                default = list(default)
            _KINDS[field.type](field.name, default, description)


def values(config_class, leave_out=()):
    """Returns a dict of the fields whose flags were given."""
    described = _described(config_class)
    fields = {field.name for field, *_ in described} - set(leave_out)
    return {
        name: flags.FLAGS[name].value
        for name in flags.FLAGS
        if name in fields and not flags.FLAGS[name].using_default_value
    }


def _described(config_class):
    """Returns each field, its default and its description."""
    found = {}
    for section in getattr(config_class, "SECTIONS", (config_class,)):
        descriptions = _descriptions(section)
        for field in dataclasses.fields(section):
            first, default, description = found.setdefault(
                field.name, (field, field.default, descriptions.get(field.name))
            )
            if field.init and field.default != first.default:
                if default is not None:
                    description += f" Default: {default}."
                description += f" Of {section.__name__}: {field.default}."
                found[field.name] = first, None, description
    return found.values()


def _descriptions(config_class):
    """Returns the descriptions of the arguments in a Google-style docstring."""
    # Under `python -OO` there are no docstrings.
    docstring = inspect.getdoc(config_class) or ""
    _, _, section = docstring.partition("\nArgs:\n")
    section = section.partition("\n\n")[0]
    arguments = re.split(r"^    (\w+): ", section, flags=re.MULTILINE)[1:]
    return {
        name: " ".join(text.replace("`", "").split())
        for name, text in zip(arguments[::2], arguments[1::2])
    }


def define_model(with_best=False, default=None):
    """Defines the flag of a trained model; with `with_best` of which of two."""
    flags.DEFINE_string(
        "model",
        default,
        "A model's folder or file, a trained preset's name, or hf://user/name.",
        required=default is None,
    )
    flags.register_validator("model", may_be_there, "it does not exist")
    if with_best:
        flags.DEFINE_bool("best", False, "The best model, not the last.")


def may_be_there(path):
    """Returns `False` for a path without a file, before the slow imports.

    A name without folders may be a preset's. An address needs a package.
    """
    if path and path.startswith("hf://"):
        require("huggingface_hub", "hub")
    is_path = path and os.sep in path and "://" not in path
    return not is_path or os.path.exists(path)


def define_training(
    leave_out=(), distributions="none or mirrored, for each training"
):
    """Defines the flags of a training: its modules, fields and devices."""
    from tpt_keras.training.config import TrainingConfig

    flags.DEFINE_list(
        "modules", [], "Names of modules, patterns (numbers__*), or all."
    )
    define(TrainingConfig, leave_out=("modules", *leave_out))
    description = f"{distributions}. Default: mirrored with several GPUs."
    flags.DEFINE_string("distribution", None, description)
    flags.DEFINE_integer("num_gpus", None, "GPUs to use. Default: all.")
    flags.DEFINE_integer(
        "logical_cpus", None, "Devices to make of the CPU, for --distribution."
    )


def training_fields(leave_out=()):
    """Returns the fields of a training whose flags were given, with modules."""
    from tpt_keras.data_generators import select_groups
    from tpt_keras.training.config import TrainingConfig

    given = flags.FLAGS
    modules = select_groups(given.dataset, given.data_dir, given.modules)
    return {**values(TrainingConfig, leave_out), "modules": modules}


def strategy(workers=False):
    """Returns the strategy of the flags. It configures devices: call it first.

    Without `workers` each process trains alone, and TF_CONFIG is ignored.
    """
    from tpt_keras.training.backends import make_strategy

    given = flags.FLAGS
    if not workers:
        check_choice(
            "distribution", given.distribution or "none", ("none", "mirrored")
        )
        os.environ.pop("TF_CONFIG", None)
    return make_strategy(given.distribution, given.num_gpus, given.logical_cpus)


@dataclasses.dataclass(frozen=True)
class Problems:
    """The problems of a command; the fields are its flags.

    Args:
        modules: Names of modules, patterns (numbers__*), or all.
        data_dir: Folder that prepare_data filled, or the file or folder of
            text pairs.
        dataset: Name of the dataset.
        dataset_options: Options of the dataset, those of the training:
            test_share=0.2,split_seed=1.
        split: Name of the split. Default: the task's first for evaluation.
    """

    modules: tuple = ()
    data_dir: str = "data"
    dataset: str = "mathematics_dataset"
    dataset_options: tuple = ()
    split: str = ""

    @functools.cached_property
    def task(self):
        from tpt_keras.data_generators import open_task

        return open_task(
            self.dataset, self.data_dir, self.modules, self.dataset_options
        )

    @classmethod
    def of(cls, model):
        """The problems of the flags, by default those of a training."""
        from tpt_keras.training.state.model_folder import read_training
        from tpt_keras.training.state.model_folder import warn_of_changed_data

        given = values(cls)
        training = read_training(model) if model else {}
        names = {"data_dir", "dataset", "dataset_options", "modules"}
        if "dataset" in given:
            names = set()
        known = {name: training[name] for name in names & set(training)}
        problems = cls(**{**known, **given})
        if problems.dataset == training.get("dataset"):
            warn_of_changed_data(model, problems.task.fingerprints)
        return problems

    def read(self, count):
        """Reads at most `count` problems of every module that has the split.

        Returns a dict from modules to a list of questions and one of answers.
        """
        import numpy as np

        check_positive_integer("count", count)
        split = self.split or self.task.splits[0]
        problems = {}
        for group, examples in self.task.examples(split).items():
            texts = examples.texts(np.arange(min(count, len(examples))))
            problems[group] = [list(column) for column in zip(*texts)]
        if not problems:
            raise UsageError(
                f"None of the modules {', '.join(self.task.groups)} has "
                f"problems of the `split` {split!r}.",
                field="split",
            )
        return problems


@dataclasses.dataclass(frozen=True)
class ModelFlags:
    """The model that a command asks; the fields are flags.

    Without any it is the trained solver.

    Args:
        saved_model: A SavedModel, or the folder of its versions.
        onnx_model: An ONNX export, or the folder of its versions.
        model: A model's folder or file, a trained preset's name, or
            hf://user/name.
        server: A TF Serving: host and port of REST, or a URL.
        model_name: The model's name on the server.
    """

    saved_model: str = ""
    onnx_model: str = ""
    model: str = ""
    server: str = ""
    model_name: str = "solver"

    def __post_init__(self):
        names = "saved_model", "onnx_model", "model"
        paths = {name: getattr(self, name) for name in names}
        if sum(map(bool, (*paths.values(), self.server))) > 1:
            raise UsageError(
                "Give one of --saved_model, --onnx_model, --model and --server."
            )
        for name, path in paths.items():
            if not may_be_there(path):
                raise UsageError(f"`{name}`: {path!r} is not there.", name)
        if self.onnx_model:
            require("onnxruntime", "onnx")
        if self.server:
            require("requests", "serving")

    def load(self):
        """Loads the model, an `AnsweringModel`."""
        if self.server:
            from tpt_keras.serving import RestClient

            return RestClient(self.server, self.model_name)
        if self.saved_model:
            _cli.import_tensorflow()
            from tpt_keras.serving import SavedModel

            return SavedModel(self.saved_model)
        if self.onnx_model:
            from tpt_keras.serving import OnnxModel

            return OnnxModel(self.onnx_model)
        _cli.import_backend()
        from tpt_keras.decoding import Generator
        from tpt_keras.models.stored import load_model

        return Generator(load_model(self.model or SOLVER))


def define_analysis(output_dir, count=None):
    """Defines the flags of an analysis; with `count` those of its problems."""
    define_model()
    flags.DEFINE_string("output_dir", output_dir, "Folder to write.")
    if count:
        define(Problems)
        flags.DEFINE_integer(
            "count", count, "Problems of each module, at most.", lower_bound=1
        )
        flags.DEFINE_integer("seed", 0, "Seed of everything that is random.")


def check_analysis():
    for package in ("matplotlib", "sklearn"):
        require(package, "analysis")


def define_head():
    choices = ["encoder", "decoder", "cross"]
    flags.DEFINE_enum("attention", "encoder", choices, "The attention.")
    flags.DEFINE_integer(
        "layer", None, "Its layer, from 1. Default: the last.", lower_bound=1
    )
    flags.DEFINE_integer("head", 1, "Its head, from 1.", lower_bound=1)


def layer_and_head(model):
    """Returns the indices of --layer and --head."""
    indices = []
    for name in ("layer", "head"):
        count = getattr(model.config, f"num_{name}s")
        number = flags.FLAGS[name].value or count
        if number > count:
            raise UsageError(
                f"The model has no {name} {number}. Give a `{name}` from 1 to "
                f"{count}.",
                field=name,
            )
        indices.append(number - 1)
    return indices


def load_transformer():
    from tpt_keras.models import Transformer
    from tpt_keras.models.stored import load_model

    return load_model(flags.FLAGS.model, classes=(Transformer,))


def load_model_and_problems():
    """Returns a model, `Problems`, and the texts of those that it can read."""
    problems = Problems.of(flags.FLAGS.model)
    by_module = problems.read(flags.FLAGS.count)
    model = load_transformer()
    pairs = [pair for texts in by_module.values() for pair in zip(*texts)]
    columns = map(list, zip(*readable(model, pairs)))
    return model, problems, *columns


def readable(model, problems):
    """Returns the problems whose question, the first item, a model can read.

    It names the others, and raises a `UsageError` if there are only such.
    """
    from tpt_keras.answer import OK
    from tpt_keras.answer import Answer
    from tpt_keras.answer import unanswered

    questions = [question for question, *_ in problems]
    limit = model.config.max_question_length
    found = [
        Answer("", status=model.tokenizer.question_status(question, limit))
        for question in questions
    ]
    faults = unanswered(questions, found, model.config.vocabulary, limit)
    kept = [p for p, answer in zip(problems, found) if answer.status == OK]
    if not kept:
        raise UsageError(f"The model cannot read any question: {faults}")
    if faults:
        print(f"Left out: {faults}", file=sys.stderr)
    return kept
