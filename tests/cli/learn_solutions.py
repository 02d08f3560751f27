"""Solutions of the exercises of `triptych learn`, written without the project's classes."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor


def attention_parameters(d_model):
    return 4 * (d_model * d_model + d_model)


def attention(q, k, v, mask):
    logits = q @ k.T / math.sqrt(q.shape[1])
    weights = torch.where(mask, logits.exp(), 0.0)
    total = weights.sum(1, keepdim=True)
    return weights @ v / torch.where(total == 0, 1.0, total)


def online_attention(q, blocks):
    top = torch.full((len(q), 1), -math.inf, dtype=q.dtype)
    total, y = 0, 0
    for k, v in blocks:
        logits = q @ k.T / math.sqrt(q.shape[1])
        new = torch.maximum(top, logits.max(1, keepdim=True).values)
        old, weights = (top - new).exp(), (logits - new).exp()
        total = total * old + weights.sum(1, keepdim=True)
        y, top = y * old + weights @ v, new
    return y / total


def multi_head(x, w_q, w_k, w_v, w_o, n):
    width = x.shape[1] // n
    heads = []
    for h in range(n):
        part = slice(h * width, (h + 1) * width)
        logits = (x @ w_q[:, part]) @ (x @ w_k[:, part]).T
        heads.append((logits / width**0.5).softmax(1) @ (x @ w_v[:, part]))
    return torch.cat(heads, 1) @ w_o


def look_ahead_mask(n, window):
    return torch.tensor([[i - window < j <= i for j in range(n)] for i in range(n)])


def local_2d_mask(height, width, block, halo):
    mask = torch.zeros(height * width, height * width, dtype=torch.bool)
    for i in range(height * width):
        top, left = i // width // block * block, i % width // block * block
        for j in range(i + 1):
            row, column = j // width, j % width
            mask[i, j] = row >= top - halo and left - halo <= column < left + block + halo
    return mask


def sinusoids(length, d_model):
    rows = []
    for p in range(length):
        angles = [p / 10000 ** (2 * i / d_model) for i in range(d_model // 2)]
        rows.append([f(angle) for angle in angles for f in (math.sin, math.cos)])
    return torch.tensor(rows, dtype=torch.float64)


def relative_logits(q, e):
    n = len(q)
    by_distance = q @ e.T
    padded = torch.cat([torch.zeros(n, 1, dtype=q.dtype), by_distance], 1)
    return padded.reshape(n + 1, n)[1:].tril()


def cache_bytes(n_layers, batch, length, n_key_heads, d_head):
    return 2 * n_layers * batch * length * n_key_heads * d_head * 4


def beam_step(log_p, next_log_p):
    joint = (log_p[:, None] + next_log_p).flatten()
    best, index = joint.topk(len(log_p))
    return best, index // next_log_p.shape[1], index % next_log_p.shape[1]


def top_p(probabilities, p):
    left = torch.zeros_like(probabilities)
    for row in range(len(left)):
        total = 0.0
        for token in probabilities[row].argsort(descending=True):
            if total < p:
                left[row, token] = probabilities[row, token]
            total += probabilities[row, token]
    return left / left.sum(1, keepdim=True)


def bpe(word, merges):
    tokens = [*word]
    while pairs := [pair for pair in pairwise(tokens) if pair in merges]:
        one, two = min(pairs, key=merges.index)
        joined = []
        while tokens:
            both = tokens[:2] == [one, two]
            joined.append("".join(tokens[: 1 + both]))
            tokens = tokens[1 + both :]
        tokens = joined
    return tokens


def smoothed_loss(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    log_p = logits.log_softmax(1)
    right = log_p[torch.arange(len(targets)), targets]
    return -((1 - smoothing) * right + smoothing * log_p.mean(1)).mean()


def nats_per_token(log_p, real):
    return -(log_p * real).sum() / real.sum()


def lora_merged(weight, a, b, alpha):
    return weight + alpha / len(a) * b @ a
