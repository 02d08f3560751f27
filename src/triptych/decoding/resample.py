"""Resampling of the unknown values of a sequence, so that known values after them count too."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from triptych.core.heads import CategoricalHead
from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.generate import generate, on_model
from triptych.decoding.request import SampleRequest
from triptych.decoding.sampling import Given, Sampling


@torch.no_grad()
def resample(
    model: DecoderOnly, request: SampleRequest, *, passes: int, block: int = 8
) -> tuple[Tensor, float]:
    """Unknown values after `passes` passes of a Markov chain, and the share of accepted proposals.

    The request gives the known values, and for the unknown ones the start of the chain, such as the
    result of `generate`, which sees only the known values before each position. Its temperature is
    above 0; another one than 1 needs a categorical head (ValueError). Without constraint, top-k and
    top-p (ValueError). Returns int64 [B, L] or [B, L, C].

    The chain has the model's distribution of the unknown values given all known ones as its
    stationary distribution. A pass visits runs of `block` positions, from a random offset; longer
    runs are accepted less often. In each it proposes new values for the unknown positions, sampled
    in order with the known ones forced, and accepts them by the rule of Metropolis and Hastings
    (Hastings 1970): with probability min(1, r), where r is the ratio of new to old probability of
    all values that were not proposed. Rows accept independently.
    """
    request = on_model(model, request)
    given, temperature, generator = request.given, request.sampling.temperature, request.generator
    if given is None:
        raise ValueError("resampling needs known values")
    sampling = Sampling(temperature=temperature)
    if request.constraint is not None or sampling != request.sampling:
        raise ValueError("resampling takes no constraint, no top_k and no top_p")
    if temperature != 1 and not isinstance(model.head, CategoricalHead):
        raise ValueError("resampling at a temperature other than 1 needs a categorical head")
    values, known = given.values.clone(), given.known
    batch, length = known.shape

    def nll_of(values: Tensor) -> Tensor:
        """Negative log-likelihood of each position at the temperature, float64 [B, L]."""
        parameters = model(values, request.previous, request.condition)  # [B, L, Z]
        if temperature != 1:
            parameters = parameters / temperature
        return model.head.nll(parameters, values).double()

    was_training = model.training
    model.eval()
    unknown_anywhere = (~known).any(0).tolist()
    accepted, n_proposals = torch.zeros((), device=values.device), 0
    try:
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
    finally:
        model.train(was_training)
    return values, float(accepted) / max(1, n_proposals)
