from __future__ import annotations

import pytest
import torch

from triptych.core.attention.relative import Relative
from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.positions import Sinusoid
from triptych.core.sequence import SequenceModel
from triptych.core.transformer import TransformerConfig
from triptych.decoding.pick import Sampling
from triptych.decoding.session import sample

GREEDY = Sampling(temperature=0.0)


@pytest.fixture
def model() -> SequenceModel:
    torch.manual_seed(0)
    config = TransformerConfig(
        n_layers=2, d_model=12, n_heads=3, d_ff=16, dropout=0.5, attention=Relative(4, window=5)
    )
    return SequenceModel(
        TokenEmbedding(6, 12), Sinusoid(12), config.decoder((20,)), CategoricalHead(12, 6),
        d_model=12, dropout=0.5,
    ).double()  # fmt: skip


def test_greedy_sampling_is_the_argmax_of_the_training_pass(model: SequenceModel) -> None:
    """Every position, the last included, is drawn from its own distribution."""
    prefix = torch.randint(6, (64, 10))
    values = sample(model, batch=64, length=20, sampling=GREEDY, prefix=prefix)
    assert model.training  # it was put back
    assert torch.equal(model.eval()(values).argmax(-1)[:, 10:], values[:, 10:])
    assert (values[:, -1] != values[:, -2]).any()  # else the last two would be mixed up unseen


def test_a_prefix_is_kept_and_continued(model: SequenceModel) -> None:
    prefix = torch.randint(6, (2, 7))
    values = sample(model, batch=2, length=15, sampling=GREEDY, prefix=prefix)
    assert torch.equal(values[:, :7], prefix)
    assert torch.equal(model.eval()(values).argmax(-1)[:, 7:], values[:, 7:])
    assert torch.equal(sample(model, batch=2, length=7, prefix=prefix), prefix)
    with pytest.raises(ValueError, match="does not fit"):
        sample(model, batch=2, length=6, prefix=prefix)


def test_the_first_value_follows_its_distribution(model: SequenceModel) -> None:
    generator = torch.Generator().manual_seed(2)
    values = sample(model, batch=20_000, length=2, generator=generator)
    expected = model.eval()(values[:1]).softmax(-1)[0, 0]
    share = values[:, 0].bincount(minlength=6) / len(values)
    torch.testing.assert_close(share.double(), expected, rtol=0.0, atol=0.015)


def test_each_row_stops_at_its_own_end(model: SequenceModel) -> None:
    generator = torch.Generator().manual_seed(2)
    values = sample(model, batch=50, length=20, generator=generator, end=5)
    lengths = set()
    for row in values.tolist():
        first = row.index(5) if 5 in row else 20
        assert all(value == 5 for value in row[first:])
        lengths.add(first)
    assert len(lengths) > 3
    free = sample(model, batch=50, length=20, generator=torch.Generator().manual_seed(2))
    started = (values == 5).cumsum(1) == 0
    assert torch.equal(values[started], free[started])  # an ended row disturbs nobody


def test_a_batch_that_has_ended_does_no_more_work(model: SequenceModel) -> None:
    seen: list[int] = []
    with torch.no_grad():
        model.head.logits.bias[5] += 1000
    sample(model, batch=2, length=20, end=5, progress=lambda done, of: seen.append(done))
    assert seen == [1]


def test_forbidden_values_never_come(model: SequenceModel) -> None:
    def no_repeats(so_far: torch.Tensor) -> torch.Tensor:
        forbidden = torch.zeros(so_far.shape[0], 6, dtype=torch.bool)
        if so_far.shape[1]:
            forbidden.scatter_(1, so_far[:, -1:], True)
        return forbidden

    values = sample(model, batch=30, length=20, forbid=no_repeats)
    assert (values[:, 1:] != values[:, :-1]).all()


def test_a_seed_gives_the_same_again(model: SequenceModel) -> None:
    one, other, third = (
        sample(model, batch=2, length=20, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, other)
    assert not torch.equal(one, third)
