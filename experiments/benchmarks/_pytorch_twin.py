"""The TP-Transformer in plain PyTorch, as a user of PyTorch writes it today.

A `Twin` with the weights of the preset `tp_transformer` computes what the Keras
model computes, trains like it, and answers like it.
"""

import collections
import math
import re

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """TP-Attention."""

    def __init__(self, hidden_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(hidden_dim, hidden_dim)
        self.key = nn.Linear(hidden_dim, hidden_dim)
        self.value = nn.Linear(hidden_dim, hidden_dim)
        self.role = nn.Linear(hidden_dim, hidden_dim)
        self.attention_output = nn.Linear(hidden_dim, hidden_dim)

    def forward(self, query, keys, values, **masks):
        filler = attend(self._heads(self.query(query)), keys, values, **masks)
        filler = filler.transpose(1, 2).flatten(-2)
        return self.attention_output(filler * self.role(query))

    def keys_and_values(self, source):
        return self._heads(self.key(source)), self._heads(self.value(source))

    def _heads(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def attend(queries, keys, values, attn_mask=None, is_causal=False):
    """PyTorch's fused attention, or its faster equal.

    On a CPU, the gradient of the fused one takes six times as long in bfloat16.
    """
    if not (torch.is_grad_enabled() and queries.dtype == torch.bfloat16):
        return functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask, is_causal=is_causal
        )
    logits = queries @ keys.mT / math.sqrt(queries.shape[-1])
    if is_causal:
        attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool).tril()
    return logits.masked_fill(~attn_mask, -torch.inf).softmax(-1) @ values


class EncoderCell(nn.Module):
    """Self-attention and feed-forward. PyTorch's epsilon is the authors'."""

    def __init__(self, hidden_dim, intermediate_dim, num_heads):
        super().__init__()
        self.self_attention_norm = nn.LayerNorm(hidden_dim)
        self.self_attention = Attention(hidden_dim, num_heads)
        self.feed_forward_norm = nn.LayerNorm(hidden_dim)
        self.feed_forward = nn.Sequential(
            collections.OrderedDict(
                intermediate=nn.Linear(hidden_dim, intermediate_dim),
                relu=nn.ReLU(),
                output=nn.Linear(intermediate_dim, hidden_dim),
            )
        )
        self.output_norm = nn.LayerNorm(hidden_dim)

    def forward(self, x, **masks):
        z = self.self_attention_norm(x)
        x = x + self.self_attention(
            z, *self.self_attention.keys_and_values(z), **masks
        )
        return self._feed_forward(x)

    def _feed_forward(self, x):
        z = self.feed_forward(self.feed_forward_norm(x))
        return self.output_norm(x + z)


class DecoderCell(EncoderCell):
    """Causal self-attention, cross-attention and feed-forward."""

    def __init__(self, hidden_dim, intermediate_dim, num_heads):
        super().__init__(hidden_dim, intermediate_dim, num_heads)
        self.cross_attention_norm = nn.LayerNorm(hidden_dim)
        self.cross_attention = Attention(hidden_dim, num_heads)

    def forward(self, x, source, source_mask, cache=None, index=None):
        """With a KV cache, `x` is the position `index` alone."""
        z = self.self_attention_norm(x)
        past = new = self.self_attention.keys_and_values(z)
        if cache is None:
            source = self.cross_attention.keys_and_values(source)
        else:
            room, source = cache
            for place, values in zip(room, new):
                place[:, :, index : index + 1] = values
            past = [place[:, :, : index + 1] for place in room]
        # Padding follows the real tokens, which therefore do not attend to it.
        x = x + self.self_attention(z, *past, is_causal=cache is None)
        z = self.cross_attention_norm(x)
        x = x + self.cross_attention(z, *source, attn_mask=source_mask)
        return self._feed_forward(x)

    def init_cache(self, source, max_length):
        """Room for the past's keys and values, and those of the source."""
        keys, values = self.cross_attention.keys_and_values(source)
        shape = (*keys.shape[:2], max_length, keys.shape[-1])
        return [keys.new_empty(shape) for _ in range(2)], (keys, values)


class Embedding(nn.Module):
    """Embeds tokens at positions and binds them to their role."""

    def __init__(self, vocabulary_size, hidden_dim, max_length):
        super().__init__()
        self.embeddings = nn.Embedding(vocabulary_size, hidden_dim)
        self.role = nn.Linear(hidden_dim, hidden_dim)
        self.scale = math.sqrt(hidden_dim)
        angles = torch.arange(max_length)[:, None] * torch.exp(
            torch.arange(0, hidden_dim, 2) * (-math.log(10000.0) / hidden_dim)
        )
        sinusoids = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
        self.register_buffer("sinusoids", sinusoids, persistent=False)

    def forward(self, ids, start=0):
        x = self.embeddings(ids) * self.scale
        x = x + self.sinusoids[start : start + ids.shape[1]]
        return x * (self.role(x) + 1)


class Twin(nn.Module):
    """The twin of a Keras model, with its weights."""

    def __init__(self, model):
        super().__init__()
        config, self.tokenizer = model.config, model.tokenizer
        hidden_dim, cells = config.hidden_dim, range(config.num_layers)
        sizes = hidden_dim, config.intermediate_dim, config.num_heads
        self.embedding = Embedding(
            config.vocabulary_size, hidden_dim, config.max_question_length + 2
        )
        self.encoder_cells = nn.ModuleList(EncoderCell(*sizes) for _ in cells)
        self.decoder_cells = nn.ModuleList(DecoderCell(*sizes) for _ in cells)
        self.load(model)

    @torch.no_grad()
    def load(self, model):
        """Copies the weights of the Keras model."""
        from keras import ops

        parameters = dict(self.named_parameters())
        for weight in model.weights:
            path = re.sub(r"_cell_(\d+)", r"_cells/\1", weight.path)
            _, *names, last = path.split("/")
            if last == "embeddings":
                names.append(last)
            kind = "bias" if last in ("bias", "beta") else "weight"
            parameter = parameters.pop(".".join([*names, kind]))
            array = torch.as_tensor(ops.convert_to_numpy(weight))
            if last == "kernel":
                # PyTorch's linear maps hold (fan_out, fan_in).
                array = array.reshape(parameter.shape[::-1]).T
            parameter.copy_(array.reshape(parameter.shape))
        assert not parameters, f"not loaded: {list(parameters)}"

    def encode(self, source_ids):
        """Returns the encoder's output and the mask of the source."""
        mask = (source_ids != self.tokenizer.pad_id)[:, None, None]
        x = self.embedding(source_ids)
        for cell in self.encoder_cells:
            x = cell(x, attn_mask=mask)
        return x, mask

    def decode(self, ids, source, source_mask):
        x = self.embedding(ids)
        for cell in self.decoder_cells:
            x = cell(x, source, source_mask)
        return x

    def logits(self, x):
        return functional.linear(x, self.embedding.embeddings.weight)

    def forward(self, source_ids, ids):
        return self.logits(self.decode(ids, *self.encode(source_ids)))

    def loss(self, source_ids, ids, targets):
        """The mean cross-entropy of the targets that are no padding."""
        return functional.cross_entropy(
            self(source_ids, ids).flatten(0, 1).float(),
            targets.flatten().long(),
            ignore_index=self.tokenizer.pad_id,
        )

    @torch.inference_mode()
    def generate(self, source_ids, max_length, cached):
        """Decodes greedily until all rows have ended, and pads the others.

        With a KV cache, or as the released code does: at each step the decoder
        reads the whole prefix again.
        """
        source, mask = self.encode(source_ids)
        if cached:
            caches = [
                cell.init_cache(source, max_length)
                for cell in self.decoder_cells
            ]
        ids = source_ids.new_full((len(source_ids), 1), self.tokenizer.start_id)
        is_ended = torch.zeros_like(ids, dtype=torch.bool)
        for index in range(max_length):
            if cached:
                x = self.embedding(ids[:, -1:], start=index)
                for cell, cache in zip(self.decoder_cells, caches):
                    x = cell(x, source, mask, cache, index)
            else:
                x = self.decode(ids, source, mask)
            new = self.logits(x[:, -1:]).argmax(-1)
            new = new.masked_fill(is_ended, self.tokenizer.pad_id)
            ids = torch.cat([ids, new], 1)
            is_ended |= new == self.tokenizer.end_id
            if is_ended.all():
                break
        return ids[:, 1:]


def autocast(precision):
    """The scope of a precision: float32, or autocast to bfloat16."""
    is_low = precision.endswith("bfloat16")
    return torch.autocast("cpu", torch.bfloat16, enabled=is_low)


def training_step(twin, precision="float32"):
    """Returns a function of a batch that makes a step of the paper's training.

    It returns the loss, and the gradient's norm before it is clipped.
    """
    optimizer = torch.optim.Adam(
        twin.parameters(), lr=1e-4, betas=(0.9, 0.995), eps=1e-8, fused=True
    )

    def step(source_ids, ids, targets):
        optimizer.zero_grad()
        with autocast(precision):
            loss = twin.loss(source_ids, ids, targets)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
        optimizer.step()
        return loss.item(), norm.item()

    return step
