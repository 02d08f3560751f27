"""Sampling of sequences from a model with a cache."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch
from torch import Tensor, distributed

from triptych.core.heads import CategoricalHead
from triptych.core.models.base import AutoregressiveModel
from triptych.core.state import StepContext
from triptych.decoding.execution import CompiledSteps, eval_mode, threads_of_steps
from triptych.decoding.ranks import own_rows
from triptych.decoding.sampling import SampleRequest, sample_value

MIN_DROP_SHARE = 0.25
"""Smallest share of finished rows for which decoding copies its state without them."""
CHECK_INTERVAL = 16
"""Steps between two checks for finished rows on a GPU; each check waits for the device."""
CAPACITY_STEP = 16
"""Positions by which the views of a state grow: making views takes time on the host, and each empty
slot in a view takes time on the device."""


def on_model(model: AutoregressiveModel, request: SampleRequest) -> SampleRequest:
    """The request with the generator of its seed and compiled steps, kept over all of its parts."""
    compiled = request.compiled
    generator = request.generator_on(next(model.parameters()).device)
    if compiled is None and request.compile:
        compiled = CompiledSteps(model)
    return replace(request, generator=generator, compiled=compiled)


@torch.no_grad()
def generate(model: AutoregressiveModel, request: SampleRequest) -> Tensor:
    """Continue the prefix of each row to `length` values: int64 [B, L] or [B, L, C].

    Known values after the prefix are written instead of sampled ones; a sampled value depends on
    the known ones before it alone, see `resample`. A row that has ended is dropped from the batch.
    """
    request = on_model(model, request)
    batch, length, end, given = request.count, request.length, request.end, request.given
    constraint, draft, prefix = request.constraint, request.draft, request.prefix
    if constraint is not None and not isinstance(model.head, CategoricalHead):
        raise ValueError("a constraint forbids categories, and this model's head has none")
    device = next(model.parameters()).device
    if prefix is None:
        prefix = torch.empty((batch, 0, *model.value_shape), dtype=torch.int64, device=device)
    n_prefix = prefix.shape[1]
    values = prefix.new_zeros(batch, length, *prefix.shape[2:])  # [B, L] or [B, L, C]
    values[:, :n_prefix] = prefix
    finished = torch.zeros(batch, dtype=torch.bool, device=device)
    if end is not None:
        finished = (prefix[:, -1:] == end).any(1)  # an end may also stand inside a prompt
    # Inference mode costs less per operation. `values` was created outside it, so the result
    # is an ordinary tensor, which autograd accepts.
    inference = torch.inference_mode() if request.compiled is None else torch.no_grad()
    with eval_mode(model), inference, ExitStack() as steps:
        runner = StepRunner(model, request)
        t = n_prefix
        while t < length:
            if t == n_prefix:
                predicted = runner.prefill(prefix, request.previous)  # [B, 1, Z]
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
                value = sample_value(
                    model.head, parameters, request.sampling, request.generator
                )  # [B(, C)]
                if given is not None:
                    value = given.force(value.unsqueeze(1), t).squeeze(1)
                if draft is not None:
                    rejected = (values[:, t] != value).view(batch, -1).any(1) & ~finished  # [B]
                values[:, t] = value
                if end is not None:
                    values[:, t] = torch.where(finished, end, value)
                    finished = finished | (value == end)
                t += 1
                if request.progress is not None:
                    request.progress(t - n_prefix, length - n_prefix)
                # After a rejected value the rest of the step has read a wrong input.
                if draft is not None and bool(rejected.any()):
                    break
            # Reading `finished` waits for a GPU.
            check = device.type == "cpu" or t % CHECK_INTERVAL == 0
            if end is not None and check and bool(finished.all()):
                values[:, t:] = end
                break
    return values


class StepRunner:
    """Runs the steps of a model: its state, views of the filled part, and the unfinished rows.

    Compiled steps read the whole state. A draft adds `lookahead` values to a step. Where processes
    share the batch, each runs rows of its own, whole groups of `together` that stand next to each
    other, and has the predictions of all.
    """

    def __init__(
        self, model: AutoregressiveModel, request: SampleRequest, *, together: int = 1
    ) -> None:
        self.model, device = model, next(model.parameters()).device
        self.batch, self.length = request.count, request.length
        self.lookahead = 0 if request.draft is None else request.draft.count
        self.own = own_rows(self.batch, together)
        condition, count, self.rows = request.condition, self.batch, None
        if self.own is not None:
            condition = condition.rows(slice(self.own.start, self.own.stop))
            count, self.rows = len(self.own), torch.tensor(self.own, device=device)  # [n]
        self.state = model.init_state(
            count, self.length, lookahead=self.lookahead, condition=condition
        )
        self.positions = torch.arange(self.length, device=device)  # [L]
        self.capacity = 0  # positions that the views hold
        self.first = 0  # position of the first of `contexts`
        self.contexts: Sequence[StepContext | None] = []
        self.next_check = CHECK_INTERVAL
        self.compiled: Callable[..., Tensor] | None = None
        if request.compiled is not None:
            self.state, self.compiled = request.compiled.load(self.state)

    def prefill(self, prefix: Tensor, previous: Tensor | None) -> Tensor:
        """Read values 0 to P-1 at once and predict value P: [B, 1, Z]."""
        if self.rows is not None:
            prefix = prefix.index_select(0, self.rows)
            previous = None if previous is None else previous.index_select(0, self.rows)
        return self._of_all(self.model.prefill(prefix, self.state, previous).unsqueeze(1))

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
            return self._of_all(self.compiled(last, positions))
        if stop > self.capacity or t < self.first:
            self._grow(t, stop)
        context = None if self.lookahead else self.contexts[t - self.first]
        return self._of_all(self.model.step(last, positions, self.views, context))

    def _of_all(self, predicted: Tensor) -> Tensor:
        """The predictions of all rows [B, P, Z] from those of `rows`; zero for dropped rows."""
        if self.rows is None:
            return predicted
        every = predicted.new_zeros(self.batch, *predicted.shape[1:])  # [B, P, Z]
        every.index_copy_(0, self.rows, predicted)
        if self.own is not None:  # each row is of one process, so the sum is exact
            distributed.all_reduce(every)
        return every

    def reorder(self, rows: Tensor) -> None:
        """Give each row the state of row rows[i], int64 [B], of the same group."""
        if self.own is not None:
            rows = rows[self.own.start : self.own.stop] - self.own.start  # [n]
        self.state.reorder(rows)

    def drop_finished(self, finished: Tensor, t: int) -> None:
        """Drop finished rows, bool [B], from the batch once MIN_DROP_SHARE of it is finished.

        Checks every CHECK_INTERVAL positions. A compiled step keeps all rows.
        """
        if self.compiled is not None or t < self.next_check:
            return
        self.next_check = t // CHECK_INTERVAL * CHECK_INTERVAL + CHECK_INTERVAL
        if self.rows is None:
            rows, n_rows = (~finished).nonzero().squeeze(1), self.batch  # [n]
        else:
            rows, n_rows = self.rows[~finished[self.rows]], len(self.rows)  # [n]
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
