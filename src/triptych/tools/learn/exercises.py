"""The exercises of `triptych learn`: tasks as docstrings, inputs, and the answers of the project.

The function of an exercise is what a student writes: its signature and docstring are the task, its
body is the answer, from the project's classes or PyTorch. `inputs` makes the arguments of its
calls, which draw from torch's random numbers; floats are float64.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional as F

from triptych.core.attention.backends.dispatch import attention_weights
from triptych.core.attention.full import Full
from triptych.core.attention.grouped import GroupedQueries
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.mask import SlidingWindow
from triptych.core.attention.relative import Relative
from triptych.core.positions import SinusoidalEmbedding
from triptych.decoding.sampling import filter_logits
from triptych.training.finetune.parts import merged_weight
from triptych.types import Sampling

Function = Callable[..., Any]
Inputs = Callable[[], Iterable[tuple[Any, ...]]]
"""Returns the arguments of each call."""


class Exercise(NamedTuple):
    """A function to write."""

    page: str
    """Page of docs/learn about it."""
    level: str
    """compute: a number from a formula; implement: an algorithm."""
    answer: Function
    inputs: Inputs


EXERCISES: dict[str, Exercise] = {}
"""The exercises by the name of their function."""


def exercise(page: str, inputs: Inputs, level: str = "implement") -> Callable[[Function], Function]:
    """Make an exercise of a function, see `Exercise`."""

    def add(function: Function) -> Function:
        EXERCISES[function.__name__] = Exercise(page, level, function, inputs)
        return function

    return add


def _randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@exercise("multi-head", lambda: [(8,), (512,)], "compute")
def attention_parameters(d_model: int) -> int:
    """Number of parameters of one layer of multi-head attention, with its biases."""
    layer = Full().build(d_model, 4, Full().mask_pattern((1,), causal=True))
    return sum(parameter.numel() for parameter in layer.parameters())


@exercise(
    "attention",
    lambda: (
        [
            (_randn(4, 8), _randn(6, 8), _randn(6, 3), torch.rand(4, 6) < share)
            for share in (0.9, 0.3)
        ]
        + [(_randn(2, 2), _randn(3, 2), _randn(3, 3), torch.tensor([[True] * 3, [False] * 3]))]
    ),
)
def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Outputs of scaled dot-product attention; zeros for a query that sees no key.

    q [Q, E], k [K, E], v [K, D]; mask: bool [Q, K], True where the key is visible -> [Q, D]
    """
    return attention_weights(q, k, mask) @ v


@exercise(
    "multi-head",
    lambda: [(_randn(5, 12), *(_randn(12, 12) for _ in range(4)), n) for n in (1, 3, 4)],
)
def multi_head(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, n: int) -> Tensor:
    """Self-attention of n heads, without mask and biases; head h has columns h D/n to (h+1) D/n.

    x [L, D]; the matrices [D, D] are multiplied from the right, as in x @ w_q -> [L, D]
    """
    q, k, v = (rearrange(x @ w, "l (h e) -> h l e", h=n) for w in (w_q, w_k, w_v))  # [H, L, E]
    return rearrange(attention_weights(q, k, None) @ v, "h l e -> l (h e)") @ w_o


@exercise(
    "attention",
    lambda: [
        (scale * _randn(4, 8), [(_randn(n, 8), _randn(n, 3)) for n in (2, 5, 1)])
        for scale in (1, 1000)
    ],
)
def online_attention(q: Tensor, blocks: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Outputs of attention over all blocks of keys and values, in one pass over them.

    Keep maximum, sum and weighted sum, and never the logits of two blocks. Logits may be large.
    q [Q, E]; blocks: pairs of k [n, E] and v [n, D] -> [Q, D]
    """
    k, v = (torch.cat(each) for each in zip(*blocks, strict=True))
    return attention_weights(q, k, None) @ v


@exercise("masks", lambda: [(6, 6), (6, 3), (4, 1)])
def look_ahead_mask(n: int, window: int) -> Tensor:
    """Which of the last `window` positions up to itself each query sees: its own and earlier ones.

    -> bool [n, n], True where the query (row) sees the key (column)
    """
    position = torch.arange(n)
    return SlidingWindow(True, window).visible(position.unsqueeze(1), position)


@exercise("local-attention", lambda: [(4, 4, 2, 1), (4, 6, 2, 0), (6, 6, 3, 2)])
def local_2d_mask(height: int, width: int, block: int, halo: int) -> Tensor:
    """Which pixels of an image each pixel sees under local 2-D attention, in raster order.

    Squares of `block` x `block` pixels see themselves, `halo` rows above and `halo` columns on
    both sides, also of those rows; no pixel sees a later one. -> bool [height width, height width]
    """
    local = Local2D(block, block, halo, halo)
    position = torch.arange(height * width)
    return local.mask_pattern((height, width), causal=True).visible(position.unsqueeze(1), position)


@exercise("positions", lambda: [(7, 6), (50, 16)])
def sinusoids(length: int, d_model: int) -> Tensor:
    """Position encodings of Vaswani et al. 2017, sines in even features and cosines in odd ones.

    -> float64 [length, d_model]
    """
    encodings: Tensor = SinusoidalEmbedding(d_model)(torch.arange(length))
    return encodings


@exercise("relative-attention", lambda: [(_randn(5, 4), _randn(5, 4))])
def relative_logits(q: Tensor, e: Tensor) -> Tensor:
    """Logits q_i . e_(i-j) of relative attention by skewing; 0 for keys j after the query i.

    q [L, E]; e [L, E], the vectors of the distances L-1 to 0 -> [L, L], row i, column j
    """
    length, width = q.shape
    bias = Relative(max_distance=length - 1).relative_bias(1, width, causal=True).double()
    (table,) = bias.tables()
    table.data.copy_(e.flip(0).expand_as(table))
    position = torch.arange(length)
    by_key = bias(q[None, None], bias.index(position.unsqueeze(1), position))[0, 0]  # [L, L]
    logits: Tensor = by_key.tril().detach()
    return logits


@exercise("cached-decoding", lambda: [(6, 4, 100, 2, 8), (2, 1, 7, 4, 16)], "compute")
def cache_bytes(n_layers: int, batch: int, length: int, n_key_heads: int, d_head: int) -> int:
    """Bytes of the cache of a decoder in float32."""
    grouped = GroupedQueries(n_key_heads)
    pattern = grouped.mask_pattern((length,), causal=True)
    layer = grouped.build(2 * n_key_heads * d_head, 2 * n_key_heads, pattern)
    return n_layers * sum(each.nbytes for each in layer.init_cache(batch, length).values())


@exercise(
    "beam-search",
    lambda: [(-torch.rand(n).double(), _randn(n, 7).log_softmax(-1)) for n in (1, 3, 4)],
)
def beam_step(log_p: Tensor, next_log_p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The `beam` best extensions of the open hypotheses by one token, best first.

    log_p [beam], next_log_p [beam, V] -> log p of the extensions, the hypothesis that each extends
    and its token: 3 x [beam]
    """
    pairs = [
        (float(log_p[row] + next_log_p[row, token]), row, token)
        for row in range(next_log_p.shape[0])
        for token in range(next_log_p.shape[1])
    ]
    best, rows, tokens = zip(*sorted(pairs, reverse=True)[: len(log_p)], strict=True)
    return torch.tensor(best, dtype=torch.float64), torch.tensor(rows), torch.tensor(tokens)


@exercise("sampling", lambda: [(_randn(3, 9).softmax(-1), p) for p in (0.05, 0.5, 0.9, 1.0)])
def top_p(probabilities: Tensor, p: float) -> Tensor:
    """Distributions in which the fewest most probable values that reach p are left, summing to 1.

    probabilities [B, V] -> [B, V]
    """
    return filter_logits(probabilities.log(), Sampling(top_p=p)).softmax(-1)


@exercise(
    "embeddings",
    lambda: [
        (
            word,
            [tuple(pair.split()) for pair in ("u g", "u n", "h ug", "b un", "a a", "aa a", "h u")],
        )
        for word in ("hug", "bunhug", "hun", "aaaa", "aaaaa", "x")
    ],
)
def bpe(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """The tokens of a word: its letters, joined by the first merge that applies, again and again.

    A merge joins its pair wherever it stands, from left to right. merges: in the order in which
    they were learnt
    """
    from tokenizers import models

    joined = ["".join(pair) for pair in merges]
    symbols = dict.fromkeys([*word, *"".join(joined), *joined])
    model = models.BPE({symbol: index for index, symbol in enumerate(symbols)}, merges)
    return [token.value for token in model.tokenize(word)]


@exercise("training", lambda: [(_randn(4, 6), torch.tensor([0, 5, 2, 2]), 0.1)])
def smoothed_loss(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Mean cross-entropy with label smoothing, in nats: a share of each target is uniform.

    logits [N, V], targets int64 [N] -> scalar
    """
    return F.cross_entropy(logits, targets, label_smoothing=smoothing)


@exercise(
    "scores",
    lambda: [(_randn(2, 5).sigmoid().log(), torch.tensor([[1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]) > 0)],
)
def nats_per_token(log_p: Tensor, real: Tensor) -> Tensor:
    """Negative log-likelihood per real token of a batch.

    log_p [B, L]: of the targets; real: bool [B, L], False on padding -> scalar
    """
    return -log_p[real].sum() / real.sum()


@exercise("fine_tuning", lambda: [(_randn(4, 3), _randn(2, 3), _randn(4, 2), 16.0)])
def lora_merged(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """Matrix of a linear layer into which its low-rank adapter is merged.

    weight [out, in], a [rank, in], b [out, rank] -> [out, in]
    """
    return merged_weight(weight, a, b, alpha)
