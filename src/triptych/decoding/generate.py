"""Sampling of sequences from a model with a cache, with speculative drafts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from triptych.core.attention.context import StepContext
from triptych.core.conditioner import NO_CONDITION, Condition
from triptych.core.heads import CategoricalHead
from triptych.core.models.base import AutoregressiveModel
from triptych.core.state import DecodingState, map_tensors, tensors_of
from triptych.decoding.sampling import Given, LogitsConstraint, Sampling, sample_value
from triptych.decoding.threads import threads_of_steps
from triptych.types import Progress

MIN_DROP_SHARE = 0.25
"""Smallest share of finished rows for which decoding copies its state without them."""
CHECK_INTERVAL = 16
"""Steps between two checks for finished rows on a GPU; each check waits for the device."""
CAPACITY_STEP = 16
"""Positions by which the views of a state grow: making views takes time on the host, and each empty
slot in a view takes time on the device."""


@dataclass(frozen=True)
class Draft:
    """Draft that repeats the values `lag` positions before; verified by the model in one step.

    Four voices in turn hold most of their notes (lag 4). Verification samples every value from the
    model's distribution with the same random numbers, so a draft changes the speed and no value
    (Leviathan et al. 2023, with a deterministic draft).
    """

    lag: int
    """Distance to the values that are repeated, in positions."""
    count: int = 8
    """Number of values that are drafted at once, in positions."""

    def write(self, values: Tensor, t: int) -> None:
        """Write drafted values into values [B, L, ...] from position t on, t at least 1."""
        count, lag = min(self.count, values.shape[1] - t), min(self.lag, t)
        source = t - lag + torch.arange(count, device=values.device) % lag  # [count]
        values[:, t : t + count] = values.index_select(1, source)


@torch.no_grad()
def generate(
    model: AutoregressiveModel,
    *,
    batch: int,
    length: int,
    sampling: Sampling | None = None,
    generator: torch.Generator | None = None,
    prefix: Tensor | None = None,
    previous: Tensor | None = None,
    condition: Condition = NO_CONDITION,
    given: Given | None = None,
    end: int | None = None,
    constraint: LogitsConstraint | None = None,
    progress: Progress | None = None,
    compiled: CompiledSteps | None = None,
    draft: Draft | None = None,
) -> Tensor:
    """Continue `prefix` to `length` values in each row: int64 [B, length] or [B, length, C].

    prefix: int64 [B, P] or [B, P, C], the beginning of the result, default empty. previous int64
    [B] and condition: as in `AutoregressiveModel`. given: known values after the prefix, which are
    written instead of sampled ones; a sampled value depends on the known ones before it alone, see
    `resample`. generator: on the model's device. end:
    a row that samples this value is finished: filled with it and dropped from the batch.
    constraint: see `LogitsConstraint`. compiled: steps of this model, which run through
    torch.compile. draft: verify drafted values in steps of several positions; the same values from
    the same generator, faster where the drafts are good. It cannot be combined with compiled.
    """
    if constraint is not None and not isinstance(model.head, CategoricalHead):
        raise ValueError("a constraint forbids categories, and this model's head has none")
    sampling = sampling or Sampling()
    device = next(model.parameters()).device
    if prefix is None:
        prefix = torch.empty((batch, 0, *model.value_shape), dtype=torch.int64, device=device)
    n_prefix = prefix.shape[1]
    values = prefix.new_zeros(batch, length, *prefix.shape[2:])  # [B, L] or [B, L, C]
    values[:, :n_prefix] = prefix
    finished = torch.zeros(batch, dtype=torch.bool, device=device)
    if end is not None:
        finished = (prefix == end).any(1)
    was_training = model.training
    model.eval()
    try:
        # Inference mode costs less per operation. `values` was created outside it, so the result
        # is an ordinary tensor, which autograd accepts.
        inference = torch.inference_mode() if compiled is None else torch.no_grad()
        with inference, ExitStack() as steps:
            lookahead = 0 if draft is None else draft.count
            runner = StepRunner(
                model, batch, length, condition, compiled=compiled, lookahead=lookahead
            )
            t = n_prefix
            while t < length:
                if t == n_prefix:
                    predicted = runner.prefill(prefix, previous)  # [B, 1, Z]
                    steps.enter_context(threads_of_steps(model, batch))
                else:
                    if end is not None:
                        runner.drop_finished(finished, t)
                    if draft is not None:
                        draft.write(values, t)
                        if given is not None:
                            values[:, t:] = given.force(values[:, t:], t)
                    predicted = runner.step(values, t)  # [B, P, Z]
                for parameters in predicted.unbind(1):  # [B, Z]
                    if constraint is not None:
                        parameters = parameters.masked_fill(constraint(values[:, :t]), -torch.inf)
                    value = sample_value(model.head, parameters, sampling, generator)  # [B(, C)]
                    if given is not None:
                        value = given.force(value.unsqueeze(1), t).squeeze(1)
                    if draft is not None:
                        rejected = (values[:, t] != value).view(batch, -1).any(1) & ~finished  # [B]
                    values[:, t] = value
                    if end is not None:
                        values[:, t] = torch.where(finished, end, value)
                        finished = finished | (value == end)
                    t += 1
                    if progress is not None:
                        progress(t - n_prefix, length - n_prefix)
                    # After a rejected value the rest of the step has read a wrong input.
                    if draft is not None and bool(rejected.any()):
                        break
                # Reading `finished` waits for a GPU.
                check = device.type == "cpu" or t % CHECK_INTERVAL == 0
                if end is not None and check and bool(finished.all()):
                    values[:, t:] = end
                    break
    finally:
        model.train(was_training)
    return values


class StepRunner:
    """Runs the steps of a model: its state, views of the filled part, and the unfinished rows.

    compiled: run these steps, which read the whole state.
    lookahead: number of drafted values that a step reads after the sampled one.
    """

    def __init__(
        self,
        model: AutoregressiveModel,
        batch: int,
        length: int,
        condition: Condition,
        *,
        compiled: CompiledSteps | None = None,
        lookahead: int = 0,
    ) -> None:
        self.model, device = model, next(model.parameters()).device
        self.batch, self.length, self.lookahead = batch, length, lookahead
        self.state = model.init_state(batch, length, lookahead=lookahead, condition=condition)
        self.positions = torch.arange(length, device=device)  # [L]
        self.rows: Tensor | None = None  # unfinished rows, int64; None for all
        self.capacity = 0  # positions that the views hold
        self.first = 0  # position of the first of `contexts`
        self.contexts: Sequence[StepContext | None] = []
        self.next_check = CHECK_INTERVAL
        self.compiled: Callable[..., Tensor] | None = None
        if compiled is not None:
            self.state, self.compiled = compiled.load(self.state)

    def prefill(self, prefix: Tensor, previous: Tensor | None) -> Tensor:
        """Read values 0 to P-1 at once and predict value P: [B, 1, Z]."""
        return self.model.prefill(prefix, self.state, previous).unsqueeze(1)

    def step(self, values: Tensor, t: int) -> Tensor:
        """Read the value at t-1 of values [B, L, ...] and `lookahead` more: [B, P, Z].

        Predicts the values at t to t+P-1, with P = 1 + lookahead, less at the end of the sequence.
        Predictions of dropped rows are zero.
        """
        stop = min(t + 1 + self.lookahead, self.length)
        positions = self.positions[t:stop]  # [P]
        last = values[:, t - 1 : stop - 1]  # [B, P] or [B, P, C]
        if self.rows is not None:
            last = last.index_select(0, self.rows)
        if self.compiled is not None:
            return self.compiled(last, positions)
        if stop > self.capacity or t < self.first:
            self._grow(t, stop)
        context = None if self.lookahead else self.contexts[t - self.first]
        predicted = self.model.step(last, positions, self.views, context)
        if self.rows is None:
            return predicted
        every = predicted.new_zeros(self.batch, *predicted.shape[1:])  # [B, P, Z]
        return every.index_copy_(0, self.rows, predicted)

    def drop_finished(self, finished: Tensor, t: int) -> None:
        """Drop finished rows, bool [B], from the batch once MIN_DROP_SHARE of it is finished.

        Checks every CHECK_INTERVAL positions. A compiled step keeps all rows.
        """
        if self.compiled is not None or t < self.next_check:
            return
        self.next_check = t // CHECK_INTERVAL * CHECK_INTERVAL + CHECK_INTERVAL
        rows = (~finished).nonzero().squeeze(1)  # [n]
        n_rows = self.batch if self.rows is None else len(self.rows)
        if len(rows) == 0 or n_rows - len(rows) < MIN_DROP_SHARE * n_rows:
            return
        kept = rows if self.rows is None else torch.searchsorted(self.rows, rows)
        self.state = self.state.select(kept, memory_rows=kept)
        self.rows, self.capacity = rows, 0

    def _grow(self, t: int, stop: int) -> None:
        """Make views that hold `stop` positions, and the contexts of the steps from t on."""
        self.capacity = -(-stop // CAPACITY_STEP) * CAPACITY_STEP
        self.views = self.model.state_view(self.state, self.capacity)
        self.first = t
        if not self.lookahead:  # a step of several positions makes its own contexts
            positions = self.positions[t : self.capacity]
            self.contexts = self.model.step_contexts(positions, self.views)


class CompiledSteps:
    """The step of a model through torch.compile, for several calls of `generate`.

    Compiling takes tens of seconds. On a GPU the step becomes a CUDA graph, which needs its tensors
    at fixed addresses: the states are kept, so that batches of one shape share one graph.
    """

    def __init__(self, model: AutoregressiveModel) -> None:
        self.model = model
        self._steps: dict[
            tuple[torch.Size, ...], tuple[DecodingState[Any], Callable[..., Tensor]]
        ] = {}

    def load(self, state: DecodingState[Any]) -> tuple[DecodingState[Any], Callable[..., Tensor]]:
        """The kept state of this shape with the contents of a new one, and the step over it."""
        tensors = tensors_of(state)
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._steps:
            mode = "reduce-overhead" if tensors[0].device.type == "cuda" else None
            step = torch.compile(StaticStep(self.model, state), dynamic=False, mode=mode)
            self._steps[shapes] = state, step
        kept, step = self._steps[shapes]
        for old, new in zip(tensors_of(kept), tensors, strict=True):
            old.copy_(new)
        return kept, step


class StaticStep(nn.Module):
    """The step of a model with the tensors of its state as buffers, for torch.compile.

    CUDA graphs are skipped where a step writes into a tensor that is no buffer of the module.
    """

    def __init__(self, model: AutoregressiveModel, state: DecodingState[Any]) -> None:
        super().__init__()
        self.model = model
        self.count = 0

        def name_of(tensor: Tensor) -> str:
            self.count += 1
            name = f"state_{self.count}"
            self.register_buffer(name, tensor, persistent=False)
            return name

        self.names = map_tensors(state, name_of)
        """The state with the name of a buffer in place of each tensor."""

    def forward(self, values: Tensor, positions: Tensor) -> Tensor:
        """As `AutoregressiveModel.step`, without contexts."""
        state = map_tensors(self.names, lambda name: getattr(self, name))
        return self.model.step(values, positions, state)
