import functools
import threading

from tpt_keras.analysis.attention_weights import attention_weights
from tpt_keras.data_generators.problem_shards import draw_shard
from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import Generator
from tpt_keras.models.load_model import load_model
from tpt_keras.playground.best_answers import best_answers
from tpt_keras.playground.question_roles import question_roles
from tpt_keras.playground.trained_modules import trained_modules

_EXAMPLES = 3
# Results of each kind that are kept, for the page asks again for all that it
# shows whenever something is clicked. An attention's are up to 50 MB.
_KEPT = 4


class Playground:
    """What the page shows of one model.

    Visitors have threads of their own; the model answers one at a time, and
    problems are drawn one at a time, from random numbers that all share.

    Args:
        model_dir: The model's folder.
        num_answers: Number of answers to show.

    Attributes:
        model_dir: The folder.
        modules: The modules whose problems are examples.
        answers: Function from a question to what `best_answers` returns.
        attention: Function from a question and an answer to what
            `attention_weights` returns.
        roles: Function from a question to what `question_roles` returns.
        examples: Function from a module and a number to some problems, pairs
            of question and answer, others for every number.

    Raises:
        UsageError: If there is no model in the folder, or a damaged one.
    """

    # What the page shows, which Streamlit starts without arguments.
    shown = None

    def __init__(self, model_dir, num_answers=5):
        model = load_model(model_dir)
        self.model_dir = str(model_dir)
        self.modules = trained_modules(model_dir)
        lock = threading.Lock()
        generator = Generator(model, BeamSampler(num_answers))
        self.answers = _kept(lock, best_answers, generator)
        self.attention = _kept(lock, attention_weights, model)
        self.roles = _kept(lock, question_roles, model)
        self.examples = _kept(lock, _draw_examples)


def _draw_examples(module, number):
    return draw_shard(module, "interpolate", number, 0, _EXAMPLES).problems


def _kept(lock, function, *args, **kwargs):
    """A function that is called once at a time and keeps its last results.

    Args:
        lock: The lock of all that takes its turn with it.
        function: The function.
        *args: Its first arguments.
        **kwargs: More of them.
    """
    kept = functools.lru_cache(_KEPT)(
        functools.partial(function, *args, **kwargs)
    )

    def call(*args):
        with lock:
            return kept(*args)

    return call
