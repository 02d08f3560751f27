"""The mean of the probabilities of several models of the same values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from triptych.core.heads import GivenLogits, at_least_float32
from triptych.core.models.base import NO_CONDITION, AutoregressiveModel, Condition
from triptych.core.models.encoder_decoder import AttentionWeights, SequenceToSequence
from triptych.core.state import DecodingState, StepContext


@dataclass(frozen=True, kw_only=True)
class AveragedCondition(Condition):
    """The conditions of the members, one each."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class AveragedState(DecodingState[Tensor]):
    """The states of the members; `own` says which of them have read all values so far.

    own: bool [B, 1 + L, K]; entry t + 1 is of the prediction at position t, entry 0 is True.
    """

    parts: list[DecodingState[Any]]

    def select(self, rows: Tensor, memory_rows: Tensor | None = None) -> AveragedState:
        parts = [part.select(rows, memory_rows) for part in self.parts]
        return replace(self, own=self.own.index_select(0, rows), parts=parts)

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        for part in self.parts:
            part.reorder(rows)


class Averaged(AutoregressiveModel):
    """p(x_t | past), the mean over K members of p_k(m_k(x_t) | m_k(past)); m_k maps tokens.

    A member's distribution is restricted to the tokens that its map has, and normalised again. A
    member whose map lacks a token of the past, or the value before the first one, has no part in
    the predictions after it. So the mean is a distribution, and its likelihoods are exact. The
    parameters of the head are log-probabilities [..., V], float32 or wider.

    members: each with a categorical head and one token per position; one may occur several times.
    maps: for each member int64 [V], the member's token of each token and -1 for none; None for the
    same tokens, as the first member must have. Raises ValueError for other members and maps.
    """

    def __init__(
        self,
        members: Sequence[AutoregressiveModel],
        maps: Sequence[Tensor | None] | None = None,
    ) -> None:
        super().__init__()
        maps = [None] * len(members) if maps is None else maps
        size = members[0].head.n_parameters
        pairs = zip(members, maps, strict=True)
        sizes = {len(map_) if map_ is not None else m.head.n_parameters for m, map_ in pairs}
        if maps[0] is not None or sizes != {size} or any(member.value_shape for member in members):
            raise ValueError(
                "members of an average need the same number of tokens, one per position, and the "
                f"first one no map; got {sorted(sizes)} tokens"
            )
        self.members: Any = nn.ModuleList(members)
        self.is_mapped = [map_ is not None for map_ in maps]
        device = next(members[0].parameters()).device
        same = torch.arange(size, device=device)  # [V]
        table = torch.stack([same if map_ is None else map_.to(device) for map_ in maps])
        self.register_buffer("maps", table, persistent=False)  # [K, V]
        self.head = GivenLogits(size)

    maps: Tensor

    def init_state(
        self,
        batch: int,
        max_length: int,
        *,
        lookahead: int = 0,
        condition: Condition = NO_CONDITION,
    ) -> AveragedState:
        states = [
            member.init_state(batch, max_length, lookahead=lookahead, condition=part)
            for member, part in zip(self.members, self._parts(condition), strict=True)
        ]
        shape = batch, 1 + max_length + lookahead, len(states)
        reads = torch.ones(shape, dtype=torch.bool, device=self.maps.device)
        return AveragedState([], [], reads, states)

    def prefill(
        self, values: Tensor, state: DecodingState[Any], previous: Tensor | None = None
    ) -> Tensor:
        assert isinstance(state, AveragedState)
        reads = self._reads(values, previous)  # [B, P + 1, K]
        state.own[:, 1 : 1 + reads.shape[1]] = reads
        parameters = (
            member.prefill(self._tokens(k, values), part, self._before(k, previous))
            for k, (member, part) in enumerate(zip(self.members, state.parts, strict=True))
        )
        return self._mean(parameters, reads[:, -1])  # [B, V]

    def step(
        self,
        values: Tensor,
        positions: Tensor,
        state: DecodingState[Any],
        context: StepContext | None = None,
    ) -> Tensor:
        assert isinstance(state, AveragedState)
        before = state.own.index_select(1, positions[:1])  # [B, 1, K]
        reads = before & self._has(values).cumprod(1).bool()  # [B, P, K]
        state.own.index_copy_(1, positions + 1, reads)
        parameters = (
            member.step(self._tokens(k, values), positions, part)
            for k, (member, part) in enumerate(zip(self.members, state.parts, strict=True))
        )
        return self._mean(parameters, reads)  # [B, P, V]

    def state_view(self, state: DecodingState[Any], length: int) -> DecodingState[Any]:
        assert isinstance(state, AveragedState)
        pairs = zip(self.members, state.parts, strict=True)
        return replace(state, parts=[member.state_view(part, length) for member, part in pairs])

    def _parts(self, condition: Condition) -> Sequence[Condition]:
        """The condition of each member."""
        if isinstance(condition, AveragedCondition):
            return condition.parts
        return [condition] * len(self.members)

    def _tokens(self, k: int, values: Tensor) -> Tensor:
        """The tokens of member k, any one where it has none."""
        return self.maps[k][values].clamp(min=0) if self.is_mapped[k] else values

    def _before(self, k: int, previous: Tensor | None) -> Tensor | None:
        """The value before the first one as member k reads it, -1 for none."""
        if previous is None:
            return None
        return torch.where(previous < 0, previous, self._tokens(k, previous.clamp(min=0)))

    def _has(self, values: Tensor) -> Tensor:
        """Whether each member has a token for the values [B, P]: bool [B, P, K]."""
        return (self.maps[:, values] >= 0).movedim(0, -1)

    def _reads(self, values: Tensor, previous: Tensor | None) -> Tensor:
        """Whether each member predicts at positions 0..P, after values [B, P]: [B, P + 1, K]."""
        first = values.new_full((len(values), 1), -1) if previous is None else previous.unsqueeze(1)
        has_first = self._has(first.clamp(min=0)) | (first < 0).unsqueeze(-1)  # [B, 1, K]
        return torch.cat([has_first, self._has(values)], dim=1).cumprod(1).bool()

    def _mean(self, parameters: Iterable[Tensor], reads: Tensor) -> Tensor:
        """Log of the mean of the members that predict, from their logits: [..., V].

        reads: bool [..., K], which members predict.
        """
        total: Tensor | None = None
        for k, logits in enumerate(parameters):
            logits = at_least_float32(logits)
            if self.is_mapped[k]:
                tokens = self.maps[k]  # [V]
                logits = logits.index_select(-1, tokens.clamp(min=0))  # [..., V]
                logits = logits.masked_fill(tokens < 0, -torch.inf)
            log_p = logits.log_softmax(-1).masked_fill(~reads[..., k : k + 1], -torch.inf)
            total = log_p if total is None else torch.logaddexp(total, log_p)
        assert total is not None
        return total - reads.sum(-1, keepdim=True).to(total.dtype).log()


class AveragedDecoder(Averaged):
    """The mean of decoder-only models; their interface is that of `DecoderOnly`."""

    def features(
        self, values: Tensor, previous: Tensor | None = None, condition: Condition = NO_CONDITION
    ) -> Tensor:
        """Log-probabilities of every value: [B, L, V]; arguments as in `DecoderOnly`."""
        parameters = (
            member(self._tokens(k, values), self._before(k, previous), part)
            for k, (member, part) in enumerate(
                zip(self.members, self._parts(condition), strict=True)
            )
        )
        return self._mean(parameters, self._reads(values[:, :-1], previous))

    forward = features

    def nll(
        self, values: Tensor, previous: Tensor | None = None, condition: Condition = NO_CONDITION
    ) -> Tensor:
        """Negative log-likelihood of each position, in nats: [B, L]."""
        return self.head.nll(self(values, previous, condition), values)

    def condition(self, *inputs: Any) -> AveragedCondition:
        """The conditions that the members make of the same inputs."""
        return AveragedCondition(parts=tuple(member.condition(*inputs) for member in self.members))


class AveragedTranslator(Averaged, SequenceToSequence):
    """The mean of models of a target given a source, of the same vocabularies; without maps."""

    def __init__(self, members: Sequence[SequenceToSequence]) -> None:
        super().__init__(members)
        self.decodes_padded_sources = all(member.decodes_padded_sources for member in members)

    def features(
        self, source: Tensor, source_padding: Tensor | None, target_input: Tensor
    ) -> Tensor:
        """Log-probabilities [B, L, V], which the head leaves as they are."""
        parameters = (member(source, source_padding, target_input) for member in self.members)
        return self._mean(parameters, self._has(target_input))

    def encode(self, source: Tensor, source_padding: Tensor | None = None) -> AveragedCondition:
        parts = tuple(member.encode(source, source_padding) for member in self.members)
        return AveragedCondition(parts=parts)

    def bytes_per_position(self) -> int:
        return sum(member.bytes_per_position() for member in self.members)

    @property
    def n_layers(self) -> int:
        return 0

    def attention(
        self, source: Tensor, target_input: Tensor, layer: int | None = None
    ) -> AttentionWeights:
        raise ValueError("an average has no attention of its own; expected one model")
