"""Sampling a whole sequence from a decoder-only model, one cached step at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from triptych.core.sequence import SequenceModel
from triptych.core.transformer import State
from triptych.decoding.pick import Sampling, draw

Forbid = Callable[[Tensor], Tensor]
"""Which categories may not come next: values so far int64 [B, t] -> bool [B, V]."""
ROOM = 16
"""Positions after which the views of the state grow: a step reads at most so many empty slots."""
COMPILED_ROOM = 256
"""The same for a compiled step, which is compiled anew for each size: doubled when full."""
Progress = Callable[[int, int], None]
"""Called after each position with (positions done, positions in all)."""


@torch.no_grad()
def sample(
    model: SequenceModel,
    *,
    batch: int,
    length: int,
    sampling: Sampling | None = None,
    generator: torch.Generator | None = None,
    prefix: Tensor | None = None,
    previous: Tensor | None = None,
    condition: Tensor | None = None,
    end: int | None = None,
    forbid: Forbid | None = None,
    progress: Progress | None = None,
    compile: bool = False,
) -> Tensor:
    """Continue `prefix` to `length` values a row: int64 [B, length] or [B, length, C].

    prefix: int64 [B, P] that the result begins with; previous [B] and condition [B, D] as in
    `SequenceModel`. A row that has drawn `end` stops there: the rest of it is filled with `end`,
    it leaves the model's batch, and the work ends when all rows have stopped. The generator lies
    on the model's device. compile: the step through torch.compile, as `Reader` says.
    Raises ValueError where the prefix is longer than the length, and where the model's matrices
    cannot be compiled.
    """
    sampling = sampling or Sampling()
    device = model.start.device
    prefix = model.no_values(batch) if prefix is None else prefix
    n_prefix = prefix.shape[1]
    if n_prefix > length:
        raise ValueError(f"a prefix of {n_prefix} values does not fit in a length of {length}")
    values = prefix.new_zeros(batch, length, *prefix.shape[2:])  # [B, L]
    values[:, :n_prefix] = prefix
    done = torch.zeros(batch, dtype=torch.bool, device=device)
    if end is not None:
        done = (prefix == end).any(1)
    was_training = model.training
    model.eval()
    try:
        reader = Reader(model, batch, length, condition, compile=compile)
        for t in range(n_prefix, length):
            if t == n_prefix:
                parameters = reader.start(prefix, previous)
            else:
                if end is not None and t % ROOM == 0:
                    reader.dismiss(done)
                parameters = reader.step(values, t)
            if forbid is not None:
                parameters = parameters.masked_fill(forbid(values[:, :t]), -torch.inf)
            value = draw(model.head, parameters, sampling, generator)  # [B] or [B, C]
            if end is not None:
                value = torch.where(done, end, value)
                done = done | (value == end)
            values[:, t] = value
            if progress is not None:
                progress(t + 1 - n_prefix, length - n_prefix)
            # Asking costs a wait for the device, so there not at every step.
            if end is not None and (device.type == "cpu" or t % 16 == 0) and bool(done.all()):
                values[:, t + 1 :] = end
                break
        return values
    finally:
        model.train(was_training)


class Reader:
    """A model that reads values one after another, with its state and the rows still at work.

    compile: the step through torch.compile. Its shapes stay the same until the views of the state
    are full; then they double and it is compiled anew (about 10 s each time on a CPU, where it is
    worth 1.2 times the speed for one row, and nothing for many). On a GPU the step becomes a CUDA
    graph. Raises ValueError where a matrix of the model is opaque to the compiler.
    """

    def __init__(
        self,
        model: SequenceModel,
        batch: int,
        length: int,
        condition: Tensor | None,
        *,
        compile: bool = False,
    ) -> None:
        self.model, self.condition, self.compile = model, condition, compile
        self.state = model.empty_state(batch, length)
        self.positions = torch.arange(length, device=model.start.device)  # [L]
        self.rows: Tensor | None = None  # those still at work, where not all are
        self.parameters = torch.empty(0)  # of every row's last prediction
        self.room = 0  # positions that the views hold
        self._step: Callable[..., Tensor] = _compiled(model) if compile else model.step

    def start(self, prefix: Tensor, previous: Tensor | None) -> Tensor:
        """Read values 0..P-1 at once and predict value P: [B, Pp]."""
        self.parameters = self.model.prefill(prefix, self.state, previous, self.condition)
        return self.parameters

    def step(self, values: Tensor, t: int) -> Tensor:
        """Read the value at t - 1 of values [B, L, ...] and predict the one at t: [B, Pp].

        Of a row that was dismissed it gives the last prediction again.
        """
        if t >= self.room:
            self._make_room(t)
        last = values[:, t - 1] if self.rows is None else values[self.rows, t - 1]
        parameters = self._step(last, self.positions[t], self.views, self.condition)
        if self.rows is not None:
            parameters = self.parameters.index_copy(0, self.rows, parameters)
        self.parameters = parameters
        return parameters

    def dismiss(self, done: Tensor) -> None:
        """Rows that are done, bool [B], leave the batch once a quarter of it would be idle."""
        live = (~done).nonzero().squeeze(1)  # [rows]
        batch = len(done) if self.rows is None else len(self.rows)
        if self.compile or not 0 < len(live) <= 3 * batch // 4:
            return
        places = live if self.rows is None else torch.searchsorted(self.rows, live)
        self.state = [
            {name: tensor.index_select(0, places) for name, tensor in layer.items()}
            for layer in self.state
        ]
        if self.condition is not None:
            self.condition = self.condition.index_select(0, places)
        self.rows, self.room = live, 0

    def _make_room(self, t: int) -> None:
        self.room = t // ROOM * ROOM + ROOM
        if self.compile:
            self.room = max(COMPILED_ROOM, 1 << t.bit_length())
        self.views: State = self.model.narrow(self.state, self.room)
        if self.compile and self.positions.is_cuda:
            # Else the graph would copy the state in and out at every step.
            for layer in self.views:
                for tensor in layer.values():
                    torch._dynamo.mark_static_address(tensor)


def _compiled(model: SequenceModel) -> Callable[..., Tensor]:
    opaque = {
        type(part).__name__ for part in model.modules() if not getattr(part, "compiles", True)
    }
    if opaque:
        raise ValueError(
            f"a step with {' and '.join(sorted(opaque))} weights cannot be compiled; "
            "make the model ready with for_decoding(..., compiled=True)"
        )
    mode = "reduce-overhead" if model.start.is_cuda else None
    step: Callable[..., Tensor] = torch.compile(model.step, dynamic=False, mode=mode)
    return step
