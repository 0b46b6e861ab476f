"""Learning-rate schedules: what is left of the peak rate.

A schedule takes the share of the training that is over, and a cosine: that of
`math` or that of Keras. Nothing here imports Keras.
"""

import math

SCHEDULES = {
    "constant": lambda share, cos: 1.0,
    "cosine": lambda share, cos: (1.0 + cos(math.pi * share)) / 2.0,
    "linear": lambda share, cos: 1.0 - share,
}
