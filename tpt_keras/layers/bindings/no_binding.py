import keras

from tpt_keras.layers.bindings.binding import Binding


@keras.saving.register_keras_serializable("tpt_keras")
class NoBinding(Binding):
    """Standard attention: the filler alone, no role.

    The arguments are those of `Binding`.
    """

    has_role = False

    def call(self, filler, role=None):
        return filler
