"""Decoding: from questions to answers, with a model and a sampler."""

from tpt_keras.answer import Answer
from tpt_keras.decoding.generator import EarlyExit
from tpt_keras.decoding.generator import Generator
from tpt_keras.decoding.samplers import SAMPLERS
from tpt_keras.decoding.samplers import BeamSampler
from tpt_keras.decoding.samplers import GreedySampler
from tpt_keras.decoding.samplers import Sampler
from tpt_keras.decoding.samplers import TopKSampler

__all__ = [
    "SAMPLERS",
    "Answer",
    "BeamSampler",
    "EarlyExit",
    "Generator",
    "GreedySampler",
    "Sampler",
    "TopKSampler",
]
