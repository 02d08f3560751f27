"""The mean of the probabilities of several models of the same values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from triptych.core.heads import GivenLogits, at_least_float32
from triptych.core.models.base import NO_CONDITION, AutoregressiveModel, Condition
from triptych.core.models.decoder_only import CausalModel
from triptych.core.models.encoder_decoder import AttentionWeights, SequenceToSequence
from triptych.core.state import DecodingState


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
        self, members: Sequence[AutoregressiveModel], maps: Sequence[Tensor | None] | None = None
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
        self, batch: int, max_length: int, condition: Condition = NO_CONDITION, lookahead: int = 0
    ) -> AveragedState:
        states = [
            member.init_state(batch, max_length, lookahead=lookahead, condition=part)
            for member, part in zip(self.members, self._conditions(condition), strict=True)
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
        readers = zip(self._readers(values, previous), state.parts, strict=True)
        parameters = (
            member.prefill(tokens, part, before) for (member, tokens, before), part in readers
        )
        return self._mean(parameters, reads[:, -1])  # [B, V]

    def step(
        self, values: Tensor, positions: Tensor, state: DecodingState[Any], context: Any = None
    ) -> Tensor:
        assert isinstance(state, AveragedState)
        before = state.own.index_select(1, positions[:1])  # [B, 1, K]
        reads = before & self._has(values).cumprod(1).bool()  # [B, P, K]
        state.own.index_copy_(1, positions + 1, reads)
        contexts = [None] * len(state.parts) if context is None else context
        readers = zip(self._readers(values), state.parts, contexts, strict=True)
        parameters = (
            member.step(tokens, positions, part, own) for (member, tokens, _), part, own in readers
        )
        return self._mean(parameters, reads)  # [B, P, V]

    def step_contexts(self, positions: Tensor, state: DecodingState[Any]) -> list[Any]:
        assert isinstance(state, AveragedState)
        pairs = zip(self.members, state.parts, strict=True)
        of_members = (member.step_contexts(positions, part) for member, part in pairs)
        return list(zip(*of_members, strict=True))

    def state_view(self, state: DecodingState[Any], length: int) -> DecodingState[Any]:
        assert isinstance(state, AveragedState)
        pairs = zip(self.members, state.parts, strict=True)
        return replace(state, parts=[member.state_view(part, length) for member, part in pairs])

    def _conditions(self, condition: Condition) -> Sequence[Condition]:
        """The condition of each member."""
        if isinstance(condition, AveragedCondition):
            return condition.parts
        return [condition] * len(self.members)

    def _readers(
        self, values: Tensor, previous: Tensor | None = None
    ) -> Iterator[tuple[Any, Tensor, Tensor | None]]:
        """Each member, and the values and the one before them in its tokens, any for none."""
        for member, tokens in zip(self.members, self.maps.clamp(min=0), strict=True):
            before = previous
            if previous is not None:
                before = torch.where(previous < 0, previous, tokens[previous.clamp(min=0)])
            yield member, tokens[values], before

    def _has(self, values: Tensor) -> Tensor:
        """Whether each member has a token for the values [B, P]: bool [B, P, K]."""
        return (self.maps[:, values] >= 0).movedim(0, -1)

    def _reads(self, values: Tensor, previous: Tensor | None) -> Tensor:
        """Whether each member predicts at positions 0..P, after values [B, P]: [B, P + 1, K]."""
        first = values.new_full((len(values), 1), -1) if previous is None else previous.unsqueeze(1)
        has_first = self._has(first.clamp(min=0)) | (first < 0).unsqueeze(-1)  # [B, 1, K]
        return torch.cat([has_first, self._has(values)], dim=1).cumprod(1).bool()

    def _mean(self, parameters: Iterable[Tensor], reads: Tensor) -> Tensor:
        """Log of the mean of those that predict (reads [..., K]), from logits: [..., V]."""
        total: Tensor | None = None
        for k, logits in enumerate(map(at_least_float32, parameters)):
            if self.is_mapped[k]:
                tokens = self.maps[k]  # [V]
                logits = logits.index_select(-1, tokens.clamp(min=0))  # [..., V]
                logits = logits.masked_fill(tokens < 0, -torch.inf)
            log_p = logits.log_softmax(-1).masked_fill(~reads[..., k : k + 1], -torch.inf)
            total = log_p if total is None else torch.logaddexp(total, log_p)
        assert total is not None
        return total - reads.sum(-1, keepdim=True).to(total.dtype).log()


class AveragedDecoder(Averaged, CausalModel):
    """The mean of models of values given a condition; features are log-probabilities [B, L, V]."""

    one_at_random = False
    """Whether `features` are those of one random member for each row, at the cost of one: the
    expected gradient of KL(p || q) is that of the mean p. For maps of one model alone."""

    def features(
        self, values: Tensor, previous: Tensor | None = None, condition: Condition = NO_CONDITION
    ) -> Tensor:
        if self.one_at_random:
            return self._at_random(values, previous, condition)
        readers = zip(self._readers(values, previous), self._conditions(condition), strict=True)
        parameters = (member(tokens, before, part) for (member, tokens, before), part in readers)
        return self._mean(parameters, self._reads(values[:, :-1], previous))

    def _at_random(self, values: Tensor, previous: Tensor | None, condition: Condition) -> Tensor:
        """Features of a random member for each row, of those with all its tokens and padding."""
        reads = self._reads(values, previous)[:, -1]  # [B, K]
        tokens = self.maps[reads.float().multinomial(1).squeeze(1)]  # [B, V]
        if previous is not None:
            before = tokens.gather(1, previous.clamp(min=0).unsqueeze(1)).squeeze(1)  # [B]
            previous = torch.where(previous < 0, previous, before)
        own_condition = self._conditions(condition)[0]  # the same for all, as of one model
        logits = self.members[0](tokens.gather(1, values), previous, own_condition)  # [B, L, V]
        own = tokens.unsqueeze(1).expand_as(logits)  # [B, L, V]
        logits = at_least_float32(logits).gather(-1, own.clamp(min=0))
        return logits.masked_fill(own < 0, -torch.inf).log_softmax(-1)

    def condition(self, *inputs: Any) -> AveragedCondition:
        return AveragedCondition(parts=tuple(member.condition(*inputs) for member in self.members))


class AveragedTranslator(Averaged, SequenceToSequence):
    """The mean of models of a target given a source; features are log-probabilities [B, L, V]."""

    n_layers = 0

    def __init__(self, members: Sequence[SequenceToSequence]) -> None:
        super().__init__(members)
        self.decodes_padded_sources = all(member.decodes_padded_sources for member in members)

    def features(
        self, source: Tensor, source_padding: Tensor | None, target_input: Tensor
    ) -> Tensor:
        parameters = (member(source, source_padding, target_input) for member in self.members)
        return self._mean(parameters, self._has(target_input))

    def encode(self, source: Tensor, source_padding: Tensor | None = None) -> AveragedCondition:
        parts = tuple(member.encode(source, source_padding) for member in self.members)
        return AveragedCondition(parts=parts)

    def bytes_per_position(self) -> int:
        return sum(member.bytes_per_position() for member in self.members)

    def attention(
        self, source: Tensor, target_input: Tensor, layer: int | None = None
    ) -> AttentionWeights:
        raise ValueError("an average has no attention of its own; expected one model")
