"""Search for an answer over a model's decode step, in pure `keras.ops`."""

from tpt_keras.decoding.beam_search import beam_search
from tpt_keras.decoding.greedy_search import greedy_search
from tpt_keras.decoding.leaving_rows import LeavingRows
