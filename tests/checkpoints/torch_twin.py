"""The TP-Transformer of the released checkpoints in PyTorch alone."""

import math

import torch
from torch.nn import functional


class TorchTwin:
    """The TP-Transformer as a function of its weights.

    Args:
        state: Dict of names, as in the released checkpoints, to arrays.
        num_heads: Number of attention heads.
        pad_id: Token id of the padding.
    """

    def __init__(self, state, num_heads, pad_id):
        self.weights = {
            name: torch.tensor(array, requires_grad=True)
            for name, array in state.items()
            if name != "embedding.pe"
        }
        self.num_heads = num_heads
        self.pad_id = pad_id
        indices = {n.split(".")[2] for n in state if n.startswith("encoder")}
        self.num_layers = len(indices)

    def logits(self, source_ids, target_ids):
        """Logits `(batch, target_length, vocabulary_size)`."""
        source_mask = (source_ids != self.pad_id)[:, None, None]
        length = target_ids.shape[1]
        target_mask = (target_ids != self.pad_id)[:, None, None]
        target_mask = target_mask & torch.ones(length, length).tril().bool()
        source = self.embed(source_ids)
        for index in range(self.num_layers):
            cell = f"encoder.layers.{index}"
            z = self.norm(f"{cell}.layernorm1", source)
            source = source + self.attend(f"{cell}.MHA", z, z, source_mask)
            source = self.feed_forward(cell, source, 2)
        x = self.embed(target_ids)
        for index in range(self.num_layers):
            cell = f"decoder.layers.{index}"
            z = self.norm(f"{cell}.layernorm1", x)
            x = x + self.attend(f"{cell}.selfAttn", z, z, target_mask)
            z = self.norm(f"{cell}.layernorm2", x)
            x = x + self.attend(f"{cell}.encAttn", z, source, source_mask)
            x = self.feed_forward(cell, x, 3)
        return functional.linear(x, self.embeddings)

    @property
    def embeddings(self):
        return self.weights["embedding.tok_embedding.weight"]

    def linear(self, name, x):
        return functional.linear(
            x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        )

    def norm(self, name, x):
        weight, bias = (self.weights[f"{name}.{p}"] for p in ("weight", "bias"))
        return functional.layer_norm(x, weight.shape, weight, bias)

    def embed(self, ids):
        hidden_dim = self.embeddings.shape[1]
        x = functional.embedding(ids, self.embeddings) * math.sqrt(hidden_dim)
        positions = torch.arange(ids.shape[1]).double()[:, None]
        columns = torch.arange(hidden_dim)
        angles = positions / 10000 ** (columns // 2 * 2 / hidden_dim)
        sinusoids = torch.where(columns % 2 == 0, angles.sin(), angles.cos())
        x = x + sinusoids.to(x.dtype)
        return x * (self.linear("embedding.linear", x) + 1)

    def attend(self, name, query, source, mask):
        q, k, v, r = (
            self.linear(f"{name}.W_{part}", x).unflatten(
                -1, (self.num_heads, -1)
            )
            for part, x in zip("qkvr", (query, source, source, query))
        )  # (batch, length, num_heads, key_dim)
        filler = functional.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask
        ).transpose(1, 2)
        return self.linear(f"{name}.W_o", (filler * r).flatten(-2))

    def feed_forward(self, cell, x, norm):
        """The feed-forward behind layer norm `norm`, and the last one."""
        z = self.norm(f"{cell}.layernorm{norm}", x)
        z = functional.relu(self.linear(f"{cell}.densefilter.linear1", z))
        x = x + self.linear(f"{cell}.densefilter.linear2", z)
        return self.norm(f"{cell}.layernorm{norm + 1}", x)
