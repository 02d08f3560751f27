"""A language model without a network, and all of its outputs, for searches to be compared with."""

from __future__ import annotations

import itertools

import torch

from triptych.core.state import DecodingState, ProjectedMemory

V, START, END = 4, 0, 1


class Table:
    """A language model without a network: each row draws its logits from its whole history."""

    def __init__(self, rows: list[int], sharpness: float = 2.0) -> None:
        self.rows, self.sharpness = rows, sharpness

    def logits(self, row: int, history: tuple[int, ...]) -> torch.Tensor:
        seed = hash((row, *history)) % (2**31)
        drawn = torch.randn(V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return drawn * self.sharpness

    def state(self) -> DecodingState[None]:
        rows = torch.tensor(self.rows)
        history = torch.full((len(self.rows), 40), -1)
        layer = {"row": rows.clone(), "history": history}
        return DecodingState([layer], [ProjectedMemory(rows, rows)], None)

    def step(
        self, token: torch.Tensor, position: torch.Tensor, state: DecodingState[None]
    ) -> torch.Tensor:
        (layer,), (memory,) = state.layers, state.memory
        row, memory_row = layer["row"], memory.keys
        assert row.equal(
            memory_row.repeat_interleave(len(row) // len(memory_row))
        )  # its own sentence
        layer["history"][:, position] = token
        past = layer["history"][:, 1 : int(position) + 1].tolist()
        logits = [
            self.logits(row, tuple(words)) for row, words in zip(row.tolist(), past, strict=True)
        ]
        return torch.stack(logits).unsqueeze(1)

    def state_view(self, state: DecodingState[None], length: int) -> DecodingState[None]:
        return state

    def log_p(self, row: int, words: tuple[int, ...]) -> float:
        return sum(
            self.logits(row, words[:t]).log_softmax(-1)[word].item() for t, word in enumerate(words)
        )


def complete(limit: int) -> list[tuple[int, ...]]:
    others = [word for word in range(V) if word != END]
    return [
        (*words, END)
        for length in range(limit)
        for words in itertools.product(others, repeat=length)
    ]
