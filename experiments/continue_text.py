r"""Continues a text with a language model.

    tpt_keras continue_text --model=models/text \
        --prompt="What is the tens digit of 31859?"

Prints the prompt and its continuation.
"""

import os
import sys

from absl import flags

from . import _flags

FLAGS = flags.FLAGS

_flags.define_model(with_best=True)
flags.DEFINE_string("prompt", None, "Start of the text.", required=True)
flags.DEFINE_integer("length", 200, "Bytes to write.")
flags.DEFINE_float(
    "temperature", 1.0, "Variety of the text; 0 takes the likeliest byte."
)
flags.DEFINE_integer("seed", 0, "Seed of the choices.")


def main():
    from tpt_keras.language_model import load_language_model

    model = load_language_model(FLAGS.model, FLAGS.best)
    # The shell passes any bytes.
    prompt = os.fsencode(FLAGS.prompt)
    written = model.generate(
        prompt, FLAGS.length, FLAGS.temperature, FLAGS.seed
    )
    sys.stdout.write((prompt + written).decode(errors="replace") + "\n")
