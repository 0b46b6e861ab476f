"""Search for an answer over a model's decode step, in pure `keras.ops`."""

from tpt_keras.decoding.greedy_search import greedy_search
