"""Sampling a whole sequence from a decoder-only model, one cached step at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.transformer import State
from triptych.decoding.sampling import Sampling, draw
from triptych.decoding.speculative import Draft

Forbid = Callable[[Tensor], Tensor]
"""Which categories may not come next: values so far int64 [B, t] -> bool [B, V]."""
ROOM = 16
"""Most positions after which the views of the state grow: a step on a GPU, or one that reads a
draft, reads so many empty slots."""
VIEWS = 1.2e6
"""Bytes that a step reads in the time of making a layer's views and places: 40 us, 30 GB/s."""
COMPILED_ROOM = 256
"""The same for a compiled step, which is compiled anew for each size: doubled when full."""
Progress = Callable[[int, int], None]
"""Called after each position with (positions done, positions in all)."""


@torch.no_grad()
def sample(
    model: DecoderOnly,
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
    draft: Draft | None = None,
) -> Tensor:
    """Continue `prefix` to `length` values a row: int64 [B, length] or [B, length, C].

    prefix: int64 [B, P] that the result begins with; previous [B] and condition [B, D] as in
    `DecoderOnly`. A row that has drawn `end` stops there: the rest of it is filled with `end`,
    it leaves the model's batch, and the work ends when all rows have stopped. The generator lies
    on the model's device. compile: the step through torch.compile, as `Reader` says. draft: guess
    values, let the model read them at once, and keep those that are then drawn: the same values
    from the same generator, sooner where the guesses are good.
    Raises ValueError where the prefix is longer than the length, and for a draft with compile.
    """
    if draft is not None and compile:
        raise ValueError("a step is either compiled or reads a draft, not both")
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
        # Each operation has less to ask: 5 to 15 % of a step of width 512. `values` was made
        # outside, so what is returned is a tensor like any other.
        with torch.no_grad() if compile else torch.inference_mode():
            ahead = 0 if draft is None else draft.count
            reader = Reader(model, batch, length, condition, compile=compile, ahead=ahead)
            t = n_prefix
            while t < length:
                if t == n_prefix:
                    predicted = reader.start(prefix, previous).unsqueeze(1)  # [B, 1, Pp]
                else:
                    if end is not None:
                        reader.dismiss(done, t)
                    if draft is not None:
                        draft.write(values, t)
                    predicted = reader.step(values, t)  # [B, N, Pp]
                for parameters in predicted.unbind(1):
                    if forbid is not None:
                        parameters = parameters.masked_fill(forbid(values[:, :t]), -torch.inf)
                    value = draw(model.head, parameters, sampling, generator)  # [B] or [B, C]
                    if draft is not None:
                        # Another value than the guess: what was read after it does not hold.
                        wrong = (values[:, t] != value) & ~done.view(-1, *[1] * (value.dim() - 1))
                    values[:, t] = value
                    if end is not None:
                        values[:, t] = torch.where(done, end, value)
                        done = done | (value == end)
                    t += 1
                    if progress is not None:
                        progress(t - n_prefix, length - n_prefix)
                    if draft is not None and bool(wrong.any()):
                        break
                # Asking costs a wait for the device, so there not at every step.
                if end is not None and (device.type == "cpu" or t % ROOM == 0) and bool(done.all()):
                    values[:, t:] = end
                    break
    finally:
        model.train(was_training)
    return values


class Reader:
    """A model that reads values one after another, with its state and the rows still at work.

    compile: the step through torch.compile. Its shapes stay the same until the views of the state
    are full; then they double and it is compiled anew, 10 s each time on a CPU, where it was worth
    1.0 to 1.2 times the speed for one row and nothing for many. On a GPU the step becomes a CUDA
    graph (written so, not tried on one).
    ahead: how many guessed values each step reads beside the one that is known.
    """

    def __init__(
        self,
        model: DecoderOnly,
        batch: int,
        length: int,
        condition: Tensor | None,
        *,
        compile: bool = False,
        ahead: int = 0,
    ) -> None:
        self.model, self.condition, self.compile = model, condition, compile
        self.batch, self.length, self.ahead = batch, length, ahead
        self.state = model.init_cache(batch, length, ahead=ahead)
        self.positions = torch.arange(length, device=model.start.device)  # [L]
        self.rows: Tensor | None = None  # those still at work, where not all are
        self.room = 0  # positions that the views hold
        self.first = 0  # position of the first of `places`
        one, two = (n_bytes(model.narrow(self.state, n)) for n in (1, 2))
        self.slot = (two - one) // max(1, batch * len(self.state))
        self.next_look = ROOM  # for rows that are done
        self._step: Callable[..., Tensor] = _compiled(model) if compile else model.step

    def start(self, prefix: Tensor, previous: Tensor | None) -> Tensor:
        """Read values 0..P-1 at once and predict value P: [B, Pp]."""
        return self.model.prefill(prefix, self.state, previous, self.condition)

    def step(self, values: Tensor, t: int) -> Tensor:
        """Read the value at t - 1 of values [B, L, ...] and `ahead` more: [B, N, Pp].

        Predictions of the values at t, ..., t + N - 1; N is 1 + ahead, less at the end. Those of a
        row that was dismissed are all alike.
        """
        stop = min(t + 1 + self.ahead, self.length)
        if stop > self.room or t < self.first:
            self._make_room(t, stop)
        last = values[:, t - 1 : stop - 1]
        if self.rows is not None:
            last = last.index_select(0, self.rows)
        if stop == t + 1:
            places = self.places[t - self.first] if self.places else None
            parameters = self._step(
                last[:, 0], self.positions[t], self.views, self.condition, places
            )
            parameters = parameters.unsqueeze(1)
        else:
            parameters = self.model.extend(last, self.positions[t:stop], self.views, self.condition)
        if self.rows is None:
            return parameters
        every = parameters.new_zeros(self.batch, *parameters.shape[1:])
        return every.index_copy_(0, self.rows, parameters)

    def dismiss(self, done: Tensor, t: int) -> None:
        """Rows that are done, bool [B], leave the batch once a quarter of it would be idle.

        Looked at once in a while: a GPU would have to be waited for.
        """
        if self.compile or t < self.next_look:
            return
        self.next_look = t // ROOM * ROOM + ROOM
        live = (~done).nonzero().squeeze(1)  # [rows]
        at_work = self.batch if self.rows is None else len(self.rows)
        if not 0 < len(live) <= 3 * at_work // 4:
            return
        within = live if self.rows is None else torch.searchsorted(self.rows, live)
        self.state = [
            {name: tensor.index_select(0, within) for name, tensor in layer.items()}
            for layer in self.state
        ]
        if self.condition is not None:
            self.condition = self.condition.index_select(0, within)
        self.rows, self.room = live, 0

    def _make_room(self, t: int, stop: int) -> None:
        """Views and places of the next steps, the first at t, so that `stop` positions fit."""
        room = ROOM
        if self.ahead and not self.positions.is_cuda:
            # An empty slot costs `slot` bytes a row; half of the room is empty on the way.
            rows = self.batch if self.rows is None else len(self.rows)
            room = min(max(round((2 * VIEWS / max(1, self.slot * rows)) ** 0.5), 1), ROOM)
        self.room = -(-stop // room) * room
        if self.compile:
            self.room = max(COMPILED_ROOM, 1 << (stop - 1).bit_length())
        self.views: State = self.model.narrow(self.state, self.room)
        self.first, self.places = t, []
        # Compiled they cost nothing, and a step with a draft takes several positions.
        if not self.compile and not self.ahead:
            self.places = self.model.places(self.positions[t : self.room], self.views)
        if self.compile and self.positions.is_cuda:
            # Else the graph would copy the state in and out at every step.
            for layer in self.views:
                for tensor in layer.values():
                    torch._dynamo.mark_static_address(tensor)


def n_bytes(state: State) -> int:
    """Size of a state, or of views of one, in bytes."""
    return sum(tensor.nbytes for layer in state for tensor in layer.values())


def _compiled(model: DecoderOnly) -> Callable[..., Tensor]:
    mode = "reduce-overhead" if model.start.is_cuda else None
    step: Callable[..., Tensor] = torch.compile(model.step, dynamic=False, mode=mode)
    return step
