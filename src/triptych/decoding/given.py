"""Unknown values given known ones before and after them: a particle filter, and resampling."""

import math
from itertools import pairwise

import torch
from torch import Tensor

from triptych.core.heads import CategoricalHead
from triptych.core.models.base import AutoregressiveModel
from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.execution import eval_mode
from triptych.decoding.generate import StepRunner, generate, on_model
from triptych.decoding.sampling import Given, SampleRequest, sample_value
from triptych.types import Sampling

MIN_EFFECTIVE_SHARE = 0.5
"""Effective share of the particles below which they are drawn anew."""


def _with_known(model: AutoregressiveModel, request: SampleRequest) -> tuple[SampleRequest, Given]:
    """The completed request and its known values; ValueError for what no function here can do."""
    request = on_model(model, request)
    temperature = request.sampling.temperature
    if request.given is None:
        raise ValueError("the request gives no known values")
    if request.sampling != Sampling(temperature=temperature):
        raise ValueError("known values after unknown ones allow no top_k and no top_p")
    changed = temperature != 1 or request.constraint is not None
    if changed and not isinstance(model.head, CategoricalHead):
        raise ValueError("a temperature other than 1 and a constraint need a categorical head")
    return request, request.given


@torch.no_grad()
def particle_filter(
    model: AutoregressiveModel, request: SampleRequest, *, particles: int, n_prefix: int = 0
) -> tuple[Tensor, Tensor]:
    """Draw the unknown values given the known ones, and estimate log p(known values) in nats.

    The request gives the known values of B rows, all of the first n_prefix among them, and the
    temperature, above 0; another one than 1 needs a categorical head, and there is no top-k and
    top-p (ValueError). The constraint concerns unknown values alone. Returns the values, int64
    [B, L] or [B, L, C], and the estimates given the prefix, float64 [B].

    Each row has `particles` copies, which sample the unknown values in order; at a known one the
    weight of a copy is multiplied by the model's probability of that value. Copies are drawn anew
    in proportion to weights that become unequal (sequential importance resampling: Doucet and
    Johansen 2009, section 3.5). The result is one copy, drawn by its weight; with more particles
    its distribution tends to that given all known values, with one it is that of `generate`. The
    estimate of p is unbiased, so that of log p is on average too low; it is exact where the known
    values come first.
    """
    request, given = _with_known(model, request)
    constraint, generator, previous = request.constraint, request.generator, request.previous
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

    with eval_mode(model):
        condition = request.condition.repeated(n)
        copied = SampleRequest(count=batch * n, length=length, condition=condition)
        runner = StepRunner(model, copied, together=n)
        if previous is not None:
            previous = previous.repeat_interleave(n)  # [B n]
        for t in range(n_prefix, length):
            if t == n_prefix:
                predicted = runner.prefill(values[:, :t], previous)  # [B n, 1, Z]
            else:
                predicted = runner.step(values, t)  # [B n, 1, Z]
            parameters = predicted[:, 0] / request.sampling.temperature  # [B n, Z]
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
                runner.reorder(rows)
                log_p += (log_w.logsumexp(1) - math.log(n)) * few.squeeze(1)
                log_w = log_w.masked_fill(few, 0.0)
            if request.progress is not None:
                request.progress(t + 1 - n_prefix, length - n_prefix)
        chosen = values.index_select(0, draw(1).flatten())  # [B, L] or [B, L, C]
        return chosen, log_p + log_w.logsumexp(1) - math.log(n)


@torch.no_grad()
def resample(
    model: DecoderOnly, request: SampleRequest, *, passes: int, block: int = 8
) -> tuple[Tensor, float]:
    """Unknown values after `passes` passes of a Markov chain, and the share of accepted proposals.

    The request gives the known values, and for the unknown ones the start of the chain, such as the
    result of `generate`. The temperature is as in `particle_filter`; no top-k, top-p and constraint
    (ValueError). Returns int64 [B, L(, C)].

    The stationary distribution is the model's, of the unknown values given all known ones. A pass
    visits runs of `block` positions, from a random offset; longer runs are accepted less often. In
    each it proposes new values for the unknown positions, sampled in order with the known ones
    forced, and a row accepts them by the rule of Metropolis and Hastings (Hastings 1970): with
    probability min(1, r), the ratio of new to old probability of all values not proposed.
    """
    request, given = _with_known(model, request)
    if request.constraint is not None:
        raise ValueError("resampling takes no constraint")
    sampling, generator = request.sampling, request.generator
    values, known = given.values.clone(), given.known
    batch, length = known.shape

    def nll_of(values: Tensor) -> Tensor:
        """Negative log-likelihood of each position at the temperature, float64 [B, L]."""
        parameters = model(values, request.previous, request.condition)  # [B, L, Z]
        return model.head.nll(parameters / sampling.temperature, values).double()

    unknown_anywhere = (~known).any(0).tolist()
    accepted, n_proposals = torch.zeros((), device=values.device), 0
    with eval_mode(model):
        nll = nll_of(values)
        for done in range(passes):
            offset = int(torch.randint(block, (1,), generator=generator, device=values.device))
            for start, stop in pairwise([0, *range(offset or block, length, block), length]):
                if not any(unknown_anywhere[start:stop]):
                    continue
                proposal = values.clone()
                part = SampleRequest(
                    count=batch,
                    length=stop,
                    sampling=sampling,
                    generator=generator,
                    prefix=values[:, :start],
                    previous=request.previous,
                    condition=request.condition,
                    given=Given(values[:, :stop], known[:, :stop]),
                )
                proposal[:, :stop] = generate(model, part)
                proposed = ~known
                proposed[:, :start], proposed[:, stop:] = False, False
                new_nll = nll_of(proposal)  # [B, L]
                ratio = (nll - new_nll).masked_fill(proposed, 0.0).sum(1).exp()  # [B]
                uniform = torch.empty_like(ratio).uniform_(generator=generator)
                accept = uniform < ratio  # [B]
                nll = torch.where(accept.unsqueeze(1), new_nll, nll)
                values[accept] = proposal[accept]
                accepted += accept.float().mean()
                n_proposals += 1
                if request.progress is not None:
                    request.progress(done * length + stop, passes * length)
    return values, float(accepted) / max(1, n_proposals)
