"""The TP-Transformer in plain PyTorch, as a user of PyTorch writes it today.

A `Twin` with the weights of the presets `tp_transformer` or
`tp_transformer_numbers` computes what the Keras model computes, trains like it,
and answers like it.
"""

import collections
import math
import re

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """TP-Attention, of itself with rotary positions if there is a table."""

    def __init__(self, hidden_dim, num_heads, table=None):
        super().__init__()
        self.num_heads = num_heads
        self.register_buffer("table", table, persistent=False)
        self.query = nn.Linear(hidden_dim, hidden_dim)
        self.key = nn.Linear(hidden_dim, hidden_dim)
        self.value = nn.Linear(hidden_dim, hidden_dim)
        self.role = nn.Linear(hidden_dim, hidden_dim)
        self.attention_output = nn.Linear(hidden_dim, hidden_dim)

    def forward(self, query, keys, values, start=0, **masks):
        queries = self._rotate(self._heads(self.query(query)), start)
        filler = attend(queries, keys, values, **masks)
        filler = filler.transpose(1, 2).flatten(-2)
        return self.attention_output(filler * self.role(query))

    def keys_and_values(self, source, start=0):
        keys = self._rotate(self._heads(self.key(source)), start)
        return keys, self._heads(self.value(source))

    def _rotate(self, heads, start):
        if self.table is None:
            return heads
        sines, cosines = self.table[:, start : start + heads.shape[-2]]
        even, odd = heads.unflatten(-1, (-1, 2)).unbind(-1)
        pairs = even * cosines - odd * sines, odd * cosines + even * sines
        return torch.stack(pairs, -1).flatten(-2)

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

    def __init__(self, hidden_dim, intermediate_dim, num_heads, table):
        super().__init__()
        self.self_attention_norm = nn.LayerNorm(hidden_dim)
        self.self_attention = Attention(hidden_dim, num_heads, table)
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

    def __init__(self, hidden_dim, intermediate_dim, num_heads, table):
        super().__init__(hidden_dim, intermediate_dim, num_heads, table)
        self.cross_attention_norm = nn.LayerNorm(hidden_dim)
        self.cross_attention = Attention(hidden_dim, num_heads)

    def forward(self, x, source, source_mask, cache=None, index=0):
        """With a KV cache, `x` is the position `index` alone."""
        z = self.self_attention_norm(x)
        past = new = self.self_attention.keys_and_values(z, index)
        if cache is None:
            source = self.cross_attention.keys_and_values(source)
        else:
            room, source = cache
            for cached, values in zip(room, new):
                cached[:, :, index : index + 1] = values
            past = [cached[:, :, : index + 1] for cached in room]
        # Padding follows the real tokens, which therefore do not attend to it.
        x = x + self.self_attention(z, *past, index, is_causal=cache is None)
        z = self.cross_attention_norm(x)
        x = x + self.cross_attention(z, *source, attn_mask=source_mask)
        return self._feed_forward(x)

    def init_cache(self, source, max_length):
        """Room for the past's keys and values, and those of the source."""
        keys, values = self.cross_attention.keys_and_values(source)
        shape = (*keys.shape[:2], max_length, keys.shape[-1])
        return [keys.new_empty(shape) for _ in range(2)], (keys, values)


class Embedding(nn.Module):
    """Embeds tokens, at positions and bound to their role or not."""

    def __init__(self, config, max_length):
        super().__init__()
        hidden_dim = config.hidden_dim
        self.embeddings = nn.Embedding(config.vocabulary_size, hidden_dim)
        self.role = None
        if config.bind_embeddings:
            self.role = nn.Linear(hidden_dim, hidden_dim)
        self.scale = math.sqrt(hidden_dim)
        sinusoids = None
        if config.positions == "sinusoidal":
            table = sines_and_cosines(max_length, hidden_dim)
            sinusoids = table.movedim(0, -1).flatten(-2)
        self.register_buffer("sinusoids", sinusoids, persistent=False)

    def forward(self, ids, start=0):
        x = self.embeddings(ids) * self.scale
        if self.sinusoids is not None:
            x = x + self.sinusoids[start : start + ids.shape[1]]
        return x * (self.role(x) + 1) if self.role else x


def sines_and_cosines(length, dim):
    """Of each position and pair of columns, a tensor `(2, length, dim / 2)`."""
    angles = torch.arange(length)[:, None] * torch.exp(
        torch.arange(0, dim, 2) * (-math.log(10000.0) / dim)
    )
    return torch.stack([angles.sin(), angles.cos()])


class DigitPlaces(nn.Module):
    """Embeds the places of digits, counted from the decimal point."""

    def __init__(self, hidden_dim, tokenizer, max_places=32):
        super().__init__()
        self.embeddings = nn.Embedding(2 * max_places, hidden_dim)
        self.scale = math.sqrt(hidden_dim)
        self.max_places = max_places
        self.point_id = tokenizer.point_id
        digits = torch.as_tensor(tokenizer.digit_ids)
        self.register_buffer("digits", digits, persistent=False)

    def forward(self, ids, units_first):
        is_digit = torch.isin(ids, self.digits)
        from_first, before = _count(is_digit)
        places = from_first
        if not units_first:
            places = _count(is_digit.flip(1))[0].flip(1)
        places = places.clamp(max=self.max_places)
        is_fraction = ids.gather(1, before.clamp(min=0)) == self.point_id
        is_fraction &= (before >= 0) & (from_first <= self.max_places)
        places = torch.where(is_fraction, self.max_places + from_first, places)
        x = self.embeddings((places - 1).clamp(min=0)) * self.scale
        return x * is_digit[..., None]


def _count(is_digit):
    """Counts the digits from the first of a run; the index before the run."""
    indices = torch.arange(is_digit.shape[1]).expand(is_digit.shape)
    before = torch.where(is_digit, -1, indices).cummax(1).values
    return indices - before, before


class Twin(nn.Module):
    """The twin of a Keras model, with its weights."""

    def __init__(self, model):
        super().__init__()
        config, self.tokenizer = model.config, model.tokenizer
        hidden_dim, num_heads = config.hidden_dim, config.num_heads
        max_length = config.max_question_length + 2
        table = None
        if config.positions == "rotary":
            table = sines_and_cosines(max_length, hidden_dim // num_heads)
        sizes = hidden_dim, config.intermediate_dim, num_heads, table
        self.embedding = Embedding(config, max_length)
        self.digit_places = None
        if config.digit_places:
            self.digit_places = DigitPlaces(hidden_dim, self.tokenizer)
        self.encoder_cells = nn.ModuleList(
            EncoderCell(*sizes) for _ in range(config.num_layers)
        )
        self.decoder_cells = nn.ModuleList(
            DecoderCell(*sizes) for _ in range(len(model.decoder_cells))
        )
        self.load(model)

    @torch.no_grad()
    def load(self, model):
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
        x = self.embed(source_ids)
        for cell in self.encoder_cells:
            x = cell(x, attn_mask=mask)
        return x, mask

    def embed(self, ids, start=0, units_first=False):
        x = self.embedding(ids[:, start:], start)
        if self.digit_places:
            x = x + self.digit_places(ids, units_first)[:, start:]
        return x

    def logits(self, x):
        return functional.linear(x, self.embedding.embeddings.weight)

    def forward(self, source_ids, ids):
        source, source_mask = self.encode(source_ids)
        x = self.embed(ids, units_first=True)
        for cell in self.decoder_cells:
            x = cell(x, source, source_mask)
        return self.logits(x)

    def loss(self, source_ids, ids, targets):
        """The mean cross-entropy of the targets that are no padding."""
        return functional.cross_entropy(
            self(source_ids, ids).flatten(0, 1).float(),
            targets.flatten().long(),
            ignore_index=self.tokenizer.pad_id,
        )

    @torch.inference_mode()
    def generate(self, source_ids, max_length):
        """Decodes greedily until all rows have ended, and pads the others."""
        source, mask = self.encode(source_ids)
        caches = [
            cell.init_cache(source, max_length) for cell in self.decoder_cells
        ]
        ids = source_ids.new_full((len(source_ids), 1), self.tokenizer.start_id)
        is_ended = torch.zeros_like(ids, dtype=torch.bool)
        for index in range(max_length):
            x = self.embed(ids, start=index, units_first=True)
            for cell, cache in zip(self.decoder_cells, caches):
                x = cell(x, source, mask, cache, index)
            logits = self.logits(x)
            is_token = self.tokenizer.answer_mask(logits.shape[-1])
            logits[..., ~is_token] = -torch.inf
            new = logits.argmax(-1)
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
