import dataclasses

import numpy as np
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.errors import command
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.layers import merge_masks
from tpt_keras.models import Transformer

ATTENTIONS = ("encoder", "decoder", "cross")


@dataclasses.dataclass(frozen=True)
class AttentionCall:
    """One attention of a model at work: the layer, and what it was called with.

    Args:
        layer: A `TPMultiHeadAttention`.
        inputs: Dict of the call's keyword arguments.
        target_ids: Token ids of the queries, `(batch, target_length)`.
        source_ids: Token ids of the keys and values, `(batch, source_length)`.
    """

    layer: TPMultiHeadAttention
    inputs: dict
    target_ids: np.ndarray
    source_ids: np.ndarray

    def weights(self):
        """The attention weights.

        Returns:
            float32 array `(batch, num_heads, target_length, source_length)`.

        Raises:
            UsageError: If the attention's mechanism has none.
        """
        if not self.layer.attention.has_weights:
            raise UsageError(
                f"The attention mechanism {self.layer.attention_name!r} of "
                "this model has no attention weights to look at."
            )
        return _array(self.layer(**self.inputs, return_attention_scores=True))

    def roles(self):
        """What the fillers are bound to.

        Returns:
            float32 array `(batch, target_length, num_heads, value_dim)`.

        Raises:
            UsageError: If the attention's binding has none.
        """
        if not self.layer.binding.has_role:
            raise UsageError(
                f"The binding {self.layer.binding_name!r} of this model has no "
                f"roles to look at. {command('roles')} --of=values looks at "
                "its values."
            )
        return _array(self.layer(**self.inputs, return_roles=True))

    def states(self):
        """What the values are maps of: `(batch, source_length, hidden_dim)`."""
        return _array([self.inputs["value"]])

    def values(self):
        """Array `(batch, source_length, num_heads, value_dim)`."""
        return _array([self.layer.value_dense(self.inputs["value"])])

    def fillers(self):
        """What was retrieved: `(batch, target_length, num_heads, value_dim)`.

        Of every mechanism, also one without attention weights.
        """
        query, value = self.inputs["query"], self.inputs["value"]
        filler, _ = self.layer.attention(
            self.layer.query_dense(query),
            self.layer.key_dense(value),
            self.layer.value_dense(value),
            attention_mask=merge_masks(
                None, None, None, self.inputs["attention_mask"]
            ),
            use_causal_mask=self.inputs.get("use_causal_mask", False),
        )
        return _array([filler])


def _array(outputs):
    """The last of a layer's outputs as a float32 array."""
    return ops.convert_to_numpy(ops.cast(outputs[-1], "float32"))


def attention_calls(
    model, attention, encoder_token_ids, decoder_token_ids=None
):
    """What the attentions of all layers were called with, on a batch.

    Args:
        model: A `Transformer`.
        attention: Which attention: `"encoder"`, `"decoder"` (its
            self-attention) or `"cross"`.
        encoder_token_ids: Array `(batch, source_length)`, the questions.
        decoder_token_ids: Array `(batch, target_length)`, the answers, which
            start with the start symbol; not needed for the encoder's.

    Returns:
        List of an `AttentionCall` for every layer.

    Raises:
        UsageError: If `attention` is unknown or the model is no `Transformer`.
    """
    check_names("attention", [attention], ATTENTIONS)
    if not isinstance(model, Transformer):
        raise UsageError(
            f"A model of the class {type(model).__name__} has no attentions to "
            "look at. Take one of a Transformer's preset."
        )
    encoder_mask = model.padding_mask(encoder_token_ids)
    x = model.embedding(encoder_token_ids)
    calls = []
    for cell in model.encoder_cells:
        x, inputs = cell(
            x, padding_mask=encoder_mask, return_attention_inputs=True
        )
        calls.append(
            AttentionCall(
                cell.self_attention,
                inputs["self_attention"],
                encoder_token_ids,
                encoder_token_ids,
            )
        )
    if attention == "encoder":
        return calls
    calls = []
    encoder_output, x = x, model.embedding(decoder_token_ids)
    name, source_ids = {
        "decoder": ("self_attention", decoder_token_ids),
        "cross": ("cross_attention", encoder_token_ids),
    }[attention]
    for cell in model.decoder_cells:
        x, inputs = cell(
            x,
            encoder_output,
            decoder_padding_mask=model.padding_mask(decoder_token_ids),
            encoder_padding_mask=encoder_mask,
            return_attention_inputs=True,
        )
        calls.append(
            AttentionCall(
                getattr(cell, name), inputs[name], decoder_token_ids, source_ids
            )
        )
    return calls
