"""Sampling of unknown values given known ones, before and after them, by a particle filter."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from triptych.core.heads import CategoricalHead
from triptych.core.models.base import AutoregressiveModel
from triptych.decoding.generate import StepRunner, on_model
from triptych.decoding.request import SampleRequest
from triptych.decoding.sampling import Given, Sampling, sample_value

MIN_EFFECTIVE_SHARE = 0.5
"""Effective share of the particles below which they are drawn anew."""


@torch.no_grad()
def particle_filter(
    model: AutoregressiveModel, request: SampleRequest, *, particles: int, n_prefix: int = 0
) -> tuple[Tensor, Tensor]:
    """Draw the unknown values given the known ones, and estimate log p(known values) in nats.

    The request gives the known values of B rows, all of the first n_prefix among them, and the
    temperature, above 0; another one than 1 needs a categorical head, and there is no top-k and
    top-p (ValueError). The constraint concerns unknown values alone. Returns the values, int64
    [B, L] or [B, L, C], and the estimates given the prefix, float64 [B].

    Each row has `particles` copies. A copy samples the unknown values in order; at a known one its
    weight is multiplied by the model's probability of that value. Copies are drawn anew in
    proportion to their weights where these become unequal (sequential importance resampling:
    Doucet and Johansen 2009, section 3.5). The result is one copy, drawn by its weight; with more
    particles its distribution tends to that of the unknown values given all known ones, and with
    one particle it is that of `generate`. The estimate of p is unbiased, so that of log p is on
    average too low; it is exact where the known values come first.
    """
    request = on_model(model, request)
    given, constraint, generator = request.given, request.constraint, request.generator
    temperature, previous = request.sampling.temperature, request.previous
    if given is None:
        raise ValueError("a particle filter needs known values")
    if request.sampling != Sampling(temperature=temperature):
        raise ValueError("a particle filter takes no top_k and no top_p")
    if (temperature != 1 or constraint is not None) and not isinstance(model.head, CategoricalHead):
        raise ValueError("a temperature other than 1 and a constraint need a categorical head")
    batch, length = given.known.shape
    n, device = particles, given.values.device
    copies = Given(*(part.repeat_interleave(n, 0) for part in (given.values, given.known)))
    values = copies.values.clone()  # [B n, L] or [B n, L, C]
    first_copy = torch.arange(batch, device=device).unsqueeze(1) * n  # [B, 1]
    own = first_copy + torch.arange(n, device=device)  # [B, n]
    log_w = torch.zeros(batch, n, dtype=torch.float64, device=device)
    log_p = torch.zeros(batch, dtype=torch.float64, device=device)
    sampling = Sampling()

    def draw(count: int) -> Tensor:
        """Rows of copies that are drawn by weight: int64 [B, count]."""
        chosen = log_w.softmax(1).multinomial(count, replacement=True, generator=generator)
        return first_copy + chosen

    was_training = model.training
    model.eval()
    try:
        condition = request.condition.repeated(n)
        copied = SampleRequest(count=batch * n, length=length, condition=condition)
        runner = StepRunner(model, copied)
        if previous is not None:
            previous = previous.repeat_interleave(n)  # [B n]
        for t in range(n_prefix, length):
            if t == n_prefix:
                predicted = runner.prefill(values[:, :t], previous)  # [B n, 1, Z]
            else:
                predicted = runner.step(values, t)  # [B n, 1, Z]
            parameters = predicted[:, 0] if temperature == 1 else predicted[:, 0] / temperature
            allowed = parameters
            if constraint is not None:
                allowed = parameters.masked_fill(constraint(values[:, :t]), -torch.inf)
            sampled = sample_value(model.head, allowed, sampling, generator)  # [B n] or [B n, C]
            values[:, t] = copies.force(sampled.unsqueeze(1), t).squeeze(1)
            nll = model.head.nll(parameters, values[:, t]).double()  # [B n]
            log_w = log_w - nll.masked_fill(~copies.known[:, t], 0.0).view(batch, n)
            effective = (2 * log_w.logsumexp(1) - (2 * log_w).logsumexp(1)).exp()  # [B]
            few = (effective < MIN_EFFECTIVE_SHARE * n).unsqueeze(1)  # [B, 1]
            if bool(few.any()):
                rows = torch.where(few, draw(n), own).flatten()  # [B n]
                values = values.index_select(0, rows)
                runner.state.reorder(rows)
                log_p += (log_w.logsumexp(1) - math.log(n)) * few.squeeze(1)
                log_w = log_w.masked_fill(few, 0.0)
            if request.progress is not None:
                request.progress(t + 1 - n_prefix, length - n_prefix)
        chosen = values.index_select(0, draw(1).flatten())  # [B, L] or [B, L, C]
        return chosen, log_p + log_w.logsumexp(1) - math.log(n)
    finally:
        model.train(was_training)
