"""Relative bias: logits that depend on the relation between a query and a key."""

from abc import ABC, abstractmethod

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F


class RelativeBias(nn.Module, ABC):
    """Added to q k^T: the query times one learned vector of each table, chosen by `index`."""

    period: int = 1
    """T: positions i, j and positions i + T, j + T have the same `index`."""

    @abstractmethod
    def tables(self) -> tuple[nn.Parameter, ...]:
        """Learned vectors: [H, n, E] each."""

    @abstractmethod
    def index(self, query: Tensor, key: Tensor) -> tuple[Tensor, ...]:
        """Index of each pair into each table; query, key: positions, int64, that broadcast."""

    def all_tables(self) -> tuple[nn.Parameter, ...]:
        """The tables, and last that of pairs of tokens where the bias has one."""
        return self.tables()

    def forward(self, q: Tensor, index: tuple[Tensor, ...]) -> Tensor:
        """Bias before the scaling: q [B, H, Q, E], `index` [Q, K] a table -> [B, H, Q, K]."""
        chosen = [
            logits.gather(-1, chosen.expand(*logits.shape[:3], -1))
            for logits, chosen in zip(self.logits(q), index, strict=False)
        ]
        return sum(chosen[1:], chosen[0])

    def logits(self, q: Tensor) -> tuple[Tensor, ...]:
        """Logits of all vectors of each of `all_tables`: q [B, H, Q, E] -> [B, H, Q, n] each."""
        tables = self.all_tables()
        if len(tables) == 1:
            return (logits_of_vectors(q, tables[0]),)
        logits = logits_of_vectors(q, torch.cat(tables, dim=1))  # one product
        return torch.split(logits, [table.shape[1] for table in tables], dim=-1)

    def vectors(self, farthest: int, nearest: int) -> Tensor:
        """Vectors e of distances farthest, farthest - 1, ..., nearest: [H, T, n, E].

        The bias of a query at i and a key at j is q . e[i % T, i - j], but for the tokens.
        """
        first = self.tables()[0]
        distance = torch.arange(farthest, nearest - 1, -1, device=first.device)  # [n]
        query = torch.arange(self.period, device=first.device).unsqueeze(1)  # [T, 1]
        chosen = [
            # As embeddings, whose gradient adds up a vector of all heads at a time.
            F.embedding(index, rearrange(table, "h n e -> n (h e)"))  # [T, n, H E]
            for table, index in zip(self.tables(), self.index(query, query - distance), strict=True)
        ]
        vectors = sum(chosen[1:], chosen[0])  # [T, n, H E]
        return rearrange(vectors, "t n (h e) -> h t n e", h=first.shape[0])


class ScalarBias(RelativeBias):
    """Added to q k^T / sqrt(E): a number for each head and pair of positions, by `value`.

    It depends on positions through their difference and the query's position modulo `period`.
    """

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        heads = torch.arange(n_heads).view(n_heads, 1, 1)
        self.register_buffer("heads", heads, persistent=False)

    heads: Tensor

    @abstractmethod
    def value(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Number of each head and pair of positions, int64 tensors that broadcast.

        Usable in the score_mod of FlexAttention; finite for pairs that no query sees, too.
        """

    def tables(self) -> tuple[nn.Parameter, ...]:
        return ()

    def index(self, query: Tensor, key: Tensor) -> tuple[Tensor, ...]:
        both: tuple[Tensor, ...] = torch.broadcast_tensors(query, key)
        return both

    def forward(self, q: Tensor, index: tuple[Tensor, ...]) -> Tensor:
        values: Tensor = self.value(self.heads, *index)  # [H, Q, K]
        scaled: Tensor = values * q.shape[-1] ** 0.5
        return scaled

    def logits(self, q: Tensor) -> tuple[Tensor, ...]:
        return ()

    def vectors(self, farthest: int, nearest: int) -> Tensor:
        """As in `RelativeBias`, of the one feature that `with_constant` puts first."""
        distance = torch.arange(farthest, nearest - 1, -1, device=self.heads.device)  # [n]
        query = torch.arange(self.period, device=distance.device).unsqueeze(1)  # [T, 1]
        values = self.value(self.heads, query, query - distance)  # broadcasts to [H, T, n]
        vectors: Tensor = values.expand(len(self.heads), self.period, len(distance))
        return vectors.unsqueeze(-1)  # [H, T, n, 1]

    def with_constant(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """q and k [B, H, L, E] with a feature before the others: sqrt(E) in q, 0 in k."""
        constant = q.new_full((*q.shape[:3], 1), q.shape[-1] ** 0.5)
        return torch.cat([constant, q], -1), F.pad(k, (1, 0))  # [B, H, L, 1 + E] each


class TokenBias(RelativeBias):
    """A bias with a vector more, chosen by the classes of the query's and of the key's token."""

    n_token_classes: int
    """M: number of classes of tokens."""

    @abstractmethod
    def token_classes(self, token_ids: Tensor) -> Tensor:
        """Classes of tokens, which the cache keeps: int64, same shape."""

    @abstractmethod
    def token_table(self) -> nn.Parameter:
        """Learned vectors of pairs of tokens: [H, n, E]."""

    @abstractmethod
    def token_index(self, query: Tensor, key: Tensor) -> Tensor:
        """Index of each pair into `token_table`; query, key: classes, int64, that broadcast."""

    def all_tables(self) -> tuple[nn.Parameter, ...]:
        return (*self.tables(), self.token_table())

    def forward(self, q: Tensor, index: tuple[Tensor, ...], *classes: Tensor) -> Tensor:
        """As in `RelativeBias`; classes: of the queries [B, Q] and the keys [B, K], or none."""
        if classes:
            of_tokens = self.token_index(classes[0].unsqueeze(2), classes[1].unsqueeze(1))
            index = (*index, of_tokens.unsqueeze(1))  # [B, 1, Q, K]
        return super().forward(q, index)

    def token_features(self, q: Tensor, k: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """q and k [B, H, L, E] with M more features, so that q k^T holds the logits of tokens.

        q gets the logit of each class, k the one-hot code of its class: no tensor holds an index
        for each pair of positions. classes: int64 [B, L] -> [B, H, L, E + M] each.
        """
        every = torch.arange(self.n_token_classes, device=q.device)  # [M]
        index = self.token_index(classes.unsqueeze(-1), every).unsqueeze(1)  # [B, 1, L, M]
        logits = logits_of_vectors(q, self.token_table())  # [B, H, L, n]
        logits = logits.gather(-1, index.expand(*logits.shape[:3], -1))  # [B, H, L, M]
        one_hot = F.one_hot(classes, self.n_token_classes).to(k.dtype)  # [B, L, M]
        one_hot = one_hot.unsqueeze(1).expand_as(logits)  # [B, H, L, M]
        return torch.cat([q, logits], dim=-1), torch.cat([k, one_hot], dim=-1)


class DistanceBias(RelativeBias):
    """S_rel[i, j] = q_i . e[i - j] with one table of vectors e per head.

    The table is ordered by distance i - j: from 0 to the longest for a causal layer, from minus
    the longest to the longest for one that reads both ways. Distances beyond the longest use the
    longest one's vector (Shaw et al. 2018, section 3.2, clipping).
    """

    def __init__(self, n_heads: int, d_head: int, max_distance: int, causal: bool) -> None:
        super().__init__()
        self.longest, self.smallest = max_distance, 0 if causal else -max_distance
        n_vectors = self.longest - self.smallest + 1
        self.table = nn.Parameter(torch.randn(n_heads, n_vectors, d_head) * d_head**-0.5)

    def tables(self) -> tuple[nn.Parameter, ...]:
        return (self.table,)

    def index(self, query: Tensor, key: Tensor) -> tuple[Tensor, ...]:
        return ((query - key).clamp(self.smallest, self.longest) - self.smallest,)


def logits_of_vectors(q: Tensor, vectors: Tensor) -> Tensor:
    """q . e for the vectors e of each head: q [B, H, Q, E], vectors [H, n, E] -> [B, H, Q, n]."""
    batch, heads, queries, _ = q.shape
    # One product per head: `q @ vectors.mT` would copy the vectors for every row of the batch.
    rows = q.transpose(0, 1).flatten(1, 2)  # [H, B Q, E]
    logits = rows.bmm(vectors.to(q.dtype).mT)  # [H, B Q, n]
    return logits.view(heads, batch, queries, vectors.shape[1]).transpose(0, 1)  # [B, H, Q, n]
