"""Recurrent encoder-decoder with attention: Luong, Pham and Manning 2015, arXiv 1508.04025."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from triptych.core.attention.cross import MemoryAttention, capture_attention
from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.models.base import NO_CONDITION, Condition, inverted
from triptych.core.models.encoder_decoder import (
    AttentionWeights,
    SequenceToSequence,
    SharedEmbeddings,
)
from triptych.core.state import DecodingState, Memory, ProjectedMemory, tensors_of

CellKind = Literal["lstm", "gru"]
"""Kind of recurrent cell, of torch.nn."""
Score = Literal["dot", "general"]
"""Score of a source state: h_t . h_s, or h_t . W_a h_s (section 3.1)."""


@dataclass(frozen=True, kw_only=True)
class SourceStates(Condition):
    """What a recurrent decoder is conditioned on, beside the memory."""

    last: Tensor
    """States of the encoder after its last token: [B, S, D]."""


@dataclass(frozen=True)
class Recurrence:
    """What a recurrent decoder keeps of the positions that it has read."""

    states: Tensor
    """Of the cells of every layer, then for an LSTM of its memory cells: [B, S, D]."""
    fed: Tensor
    """Attentional vector of the last position, zeros before the first one: [B, D]."""


def recurrent_layers(
    cell: CellKind, n_in: int, width: int, n_layers: int, dropout: float, *, both_ways: bool = False
) -> nn.LSTM | nn.GRU:
    """Stacked cells over sequences [B, L, n_in], with dropout between the layers."""
    kind = nn.LSTM if cell == "lstm" else nn.GRU
    between = dropout if n_layers > 1 else 0.0
    layers: nn.LSTM | nn.GRU = kind(
        n_in, width, n_layers, batch_first=True, dropout=between, bidirectional=both_ways
    )
    return layers


def run_layers(
    layers: nn.LSTM | nn.GRU, x: Tensor | PackedSequence, state: tuple[Tensor, ...] | None = None
) -> tuple[Any, tuple[Tensor, ...]]:
    """Outputs of stacked cells, in the form of x, and their states after the last position.

    state: one tensor for a GRU, two for an LSTM; None for zeros. In the precision of the weights,
    since a state that is rounded at every position forgets small changes.
    """
    weight = next(layers.parameters())
    device, dtype = weight.device, weight.dtype
    if state is not None:
        state = tuple(part.to(dtype) for part in state)
    with torch.autocast(device.type, enabled=False):
        before = state[0] if state is not None and isinstance(layers, nn.GRU) else state
        outputs, after = layers(x.to(dtype), before)
    return outputs, after if isinstance(after, tuple) else (after,)


class RecurrentEncoder(nn.Module):
    """States of stacked recurrent layers after each source token.

    bidirectional: half of the features read from left to right, half from right to left; D is even.
    """

    def __init__(
        self, cell: CellKind, d_model: int, n_layers: int, dropout: float, *, bidirectional: bool
    ) -> None:
        super().__init__()
        width = d_model // 2 if bidirectional else d_model
        self.layers = recurrent_layers(
            cell, d_model, width, n_layers, dropout, both_ways=bidirectional
        )
        self.n_layers = n_layers

    def forward(self, x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """x [B, K, D], real bool [B, K], real tokens first -> states [B, K, D], last [B, S, D].

        last: of every layer after the last real token, then an LSTM's memory cells.
        """
        if real is None:
            states, parts = run_layers(self.layers, x)  # [B, K, D]
        else:
            lengths = real.sum(1).cpu()  # packing needs them on the host
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            states, parts = run_layers(self.layers, packed)
            states, _ = pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])
        # Each part: [layers x directions, B, E].
        joined = [part.unflatten(0, (self.n_layers, -1)).transpose(1, 2) for part in parts]
        return states, torch.cat([part.flatten(2) for part in joined]).transpose(0, 1)


class LuongAttention(MemoryAttention):
    """Global attention and the attentional vector (section 3.1, equations 5 and 7)."""

    def __init__(self, d_model: int, score: Score) -> None:
        super().__init__()
        general = score == "general"
        self.memory_proj = nn.Linear(d_model, d_model, bias=False) if general else nn.Identity()
        self.out_proj = nn.Linear(2 * d_model, d_model, bias=False)

    def project_memory(self, memory: Memory) -> ProjectedMemory:
        """Keys W_a h_s and values h_s of the memory, [B, K, D] each, and its mask."""
        return ProjectedMemory(self.memory_proj(memory.features), memory.features, memory.real)

    def weights(self, h: Tensor, memory: ProjectedMemory) -> Tensor:
        """Of decoder states h [R, P, D], W adjacent rows per source: [R, 1, P, K]."""
        queries = h.unflatten(0, (len(memory.keys), -1))  # [B, W, P, D]
        logits = queries @ memory.keys.mT.unsqueeze(1)  # [B, W, P, K]
        if memory.real is not None:
            logits = logits.masked_fill(~memory.real[:, None, None], -torch.inf)
        weights: Tensor = logits.softmax(-1)  # [B, W, P, K]
        return weights.flatten(0, 1).unsqueeze(1)  # [R, 1, P, K]

    def forward(self, h: Tensor, memory: ProjectedMemory) -> Tensor:
        """tanh(W_c [c; h]) of decoder states h [R, P, D] and their contexts c: [R, P, D]."""
        values = memory.values.unsqueeze(1)  # [B, 1, K, D]
        weights = self.weights(h, memory).squeeze(1).unflatten(0, (len(values), -1))  # [B, W, P, K]
        context = (weights @ values).flatten(0, 1)  # [R, P, D]
        vector: Tensor = self.out_proj(torch.cat([context, h], dim=-1)).tanh()  # [R, P, D]
        return vector


class RecurrentDecoder(nn.Module):
    """Stacked recurrent layers with attention to the memory after each token.

    input_feeding: the first layer also reads the attentional vector of the position before, zeros
    at the first one (section 3.3), so that positions are computed one after another.
    """

    def __init__(
        self,
        cell: CellKind,
        d_model: int,
        n_layers: int,
        dropout: float,
        *,
        score: Score,
        input_feeding: bool,
    ) -> None:
        super().__init__()
        n_in = 2 * d_model if input_feeding else d_model
        self.layers = recurrent_layers(cell, n_in, d_model, n_layers, dropout)
        self.attention = LuongAttention(d_model, score)
        self.input_feeding = input_feeding
        self.n_parts = 2 if cell == "lstm" else 1

    def forward(
        self, x: Tensor, before: Recurrence, memory: ProjectedMemory
    ) -> tuple[Tensor, Recurrence]:
        """Attentional vectors of x [B, P, D] after earlier positions: [B, P, D]; what to keep."""
        parts = before.states.transpose(0, 1).chunk(self.n_parts)  # each [layers, B, D]
        state = tuple(part.contiguous() for part in parts)
        fed, outputs = before.fed, []
        for inputs in x.split(1, 1) if self.input_feeding else (x,):
            if self.input_feeding:
                inputs = torch.cat([inputs, fed.unsqueeze(1)], dim=-1)  # [B, 1, 2 D]
            h, state = run_layers(self.layers, inputs, state)
            outputs.append(self.attention(h, memory))  # [B, P, D]
            fed = outputs[-1][:, -1]  # [B, D]
        return torch.cat(outputs, dim=1), Recurrence(torch.cat(state).transpose(0, 1), fed)


class RecurrentEncoderDecoder(SequenceToSequence):
    """Recurrent encoder and decoder with attention over token sequences.

    The decoder starts from the last states of the encoder. Embeddings and output are those of
    `EncoderDecoder`. Dropout applies to embeddings, between layers, and before the output.
    """

    n_layers = 1

    def __init__(
        self,
        *,
        source_vocabulary: int,
        target_vocabulary: int,
        d_model: int,
        n_layers: int,
        dropout: float = 0.0,
        cell: CellKind = "lstm",
        score: Score = "general",
        input_feeding: bool = True,
        bidirectional: bool = False,
        share_embeddings: SharedEmbeddings = "all",
    ) -> None:
        super().__init__()
        source = TokenEmbedding(source_vocabulary, d_model)
        share_all = share_embeddings == "all"
        target = source if share_all else TokenEmbedding(target_vocabulary, d_model)
        self.source_embedding = source
        self.target_embedding = target
        self.encoder = RecurrentEncoder(
            cell, d_model, n_layers, dropout, bidirectional=bidirectional
        )
        self.decoder = RecurrentDecoder(
            cell, d_model, n_layers, dropout, score=score, input_feeding=input_feeding
        )
        shared = None if share_embeddings == "none" else target.table.weight  # [V, D]
        self.head = CategoricalHead(d_model, target_vocabulary, bias=False, weight=shared)
        self.dropout = nn.Dropout(dropout)

    def features(
        self, source: Tensor, source_padding: Tensor | None, target_input: Tensor
    ) -> Tensor:
        condition = self.encode(source, source_padding)
        state = self.init_state(len(source), target_input.shape[1], condition=condition)
        features, _ = self._decode(target_input, state)  # [B, L, D]
        return features

    def encode(self, source: Tensor, source_padding: Tensor | None = None) -> SourceStates:
        x = self._embed(self.source_embedding, source)  # [B, K, D]
        real = inverted(source_padding)
        memory, last = self.encoder(x, real)  # [B, K, D], [B, S, D]
        return SourceStates(memory=Memory(memory, real), last=last)

    def init_state(
        self, batch: int, max_length: int, condition: Condition = NO_CONDITION, lookahead: int = 0
    ) -> DecodingState[Recurrence]:
        """As in `AutoregressiveModel`, of one size for any length; ValueError for a lookahead."""
        if lookahead:
            raise ValueError("a recurrent decoder cannot go back; expected no lookahead")
        if not isinstance(condition, SourceStates) or condition.memory is None:
            raise ValueError("a recurrent decoder needs the condition of a source")
        projected = self.decoder.attention.project_memory(condition.memory)
        fed = torch.zeros_like(condition.last[:, 0])  # [B, D]
        return DecodingState([], [projected], Recurrence(condition.last.clone(), fed))

    def prefill(
        self, values: Tensor, state: DecodingState[Recurrence], previous: Tensor | None = None
    ) -> Tensor:
        if previous is None:
            raise ValueError("an encoder-decoder model starts from a start token")
        tokens = torch.cat([previous.unsqueeze(1), values], dim=1)  # [B, P + 1]
        return self._advance(tokens, state)[:, -1]  # [B, V]

    def step(
        self, values: Tensor, positions: Tensor, state: DecodingState[Any], context: Any = None
    ) -> Tensor:
        return self._advance(values, state)

    def bytes_per_position(self) -> int:
        """Size of keys and values of one source position, in bytes; a target position has none."""
        weight = self.decoder.attention.out_proj.weight
        return 2 * weight.shape[0] * weight.element_size()

    def attention(
        self, source: Tensor, target_input: Tensor, layer: int | None = None
    ) -> AttentionWeights:
        with capture_attention(self.decoder) as captured:
            self.features(source, None, target_input)
        return AttentionWeights(torch.cat(captured.cross, dim=2))  # [B, 1, L, K]

    def _advance(self, tokens: Tensor, state: DecodingState[Recurrence]) -> Tensor:
        """Read tokens int64 [B, P] after those in the state, in place: logits [B, P, V]."""
        features, after = self._decode(tokens, state)  # [B, P, D]
        for kept, tensor in zip(tensors_of(state.own), tensors_of(after), strict=True):
            kept.copy_(tensor)
        logits: Tensor = self.head(features)  # [B, P, V]
        return logits

    def _decode(
        self, tokens: Tensor, state: DecodingState[Recurrence]
    ) -> tuple[Tensor, Recurrence]:
        x = self._embed(self.target_embedding, tokens)  # [B, P, D]
        features, after = self.decoder(x, state.own, state.memory[0])  # [B, P, D]
        return self.dropout(features), after

    def _embed(self, embedding: TokenEmbedding, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)  # [L]
        x: Tensor = self.dropout(embedding(tokens, positions))  # [B, L, D]
        return x
