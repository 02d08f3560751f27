"""The term of the logits from the intervals between voices."""

import pytest
import torch
from random_head import with_random_head
from torch import Tensor

from triptych.core.positions import Sinusoidal
from triptych.core.transformer import TransformerConfig
from triptych.domains.music.model import ModelConfig
from triptych.domains.music.notes import SILENT
from triptych.domains.music.task import expected_parallels
from triptych.domains.music.tokenizers.attacks import AttackTokenizer
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.rules import NoParallels
from triptych.domains.music.voice_leading import VoiceLeading

N = 4


def numbers(term: VoiceLeading) -> Tensor:
    """By motion of the other voice, interval before and interval after."""
    return term.numbers.view(2, 12, 12)


def by_the_definition(term: VoiceLeading, ids: list[int]) -> Tensor:
    """A loop over the voices above the one that sings after `ids`: [V]."""
    pitches = [*term.pitches.tolist()]
    voice, total = len(ids) % N, torch.zeros(len(pitches), dtype=torch.float64)
    if len(ids) < N:
        return total
    own = pitches[ids[len(ids) - N]]
    for apart in range(1, voice + 1):
        if len(ids) - apart - N < 0:
            continue
        before, now = pitches[ids[len(ids) - apart - N]], pitches[ids[len(ids) - apart]]
        for id_, pitch in enumerate(pitches):
            if SILENT in (own, before, now, pitch):
                continue
            step = int(now != before), (before - own) % 12, (now - pitch) % 12
            total[id_] += numbers(term)[step]
    return total


@pytest.mark.parametrize("tokenizer", [ChoraleTokenizer(), AttackTokenizer()])
@torch.no_grad()
def test_the_term_is_the_sum_over_the_voices_above(tokenizer: ChoraleTokenizer) -> None:
    term = VoiceLeading(tokenizer.id_pitches, N).double()
    torch.nn.init.normal_(term.numbers)
    torch.manual_seed(1)
    ids = torch.randint(tokenizer.vocabulary_size, (3, 26))
    ids[:, 9], ids[:, 16] = tokenizer.rest, ids[:, 12]
    padded = torch.nn.functional.pad(ids, (term.reach, 0), value=-1).unfold(1, term.reach, 1)
    found = term(padded, torch.arange(27))
    for row, values in enumerate(ids.tolist()):
        for position in range(27):
            expected = by_the_definition(term, values[:position])
            torch.testing.assert_close(found[row, position], expected)


@torch.no_grad()
def test_the_expected_parallels_are_those_of_a_loop() -> None:
    tokenizer = AttackTokenizer()
    sizes = TransformerConfig(n_layers=1, d_model=8, n_heads=2, dropout=0.0, positions=Sinusoidal())
    model = with_random_head(
        ModelConfig(sizes, voice_leading=True, tokenizer=tokenizer).build(length=32)
    ).double()
    count = VoiceLeading(tokenizer.id_pitches, N)
    numbers(count)[1, 0, 0] = numbers(count)[1, 7, 7] = 1
    torch.manual_seed(2)
    ids, scored = torch.randint(40, 60, (6, 31)), torch.rand(6, 31) > 0.3
    p = model(ids).softmax(-1)
    total = sum(
        float(p[row, at] @ by_the_definition(count, ids[row, :at].tolist()))
        for row, at in scored.nonzero().tolist()
    )
    assert total > 0
    found = expected_parallels(model, model.features(ids), ids, scored)
    assert float(found) == pytest.approx(total / int(scored.sum()))


@torch.no_grad()
def test_what_makes_a_parallel_has_one_number() -> None:
    """With it at -infinity the term permits what `NoParallels` does, but for leaps of octaves."""
    pitches = AttackTokenizer().id_pitches
    term, rule = VoiceLeading(pitches, N), NoParallels(pitches, N)
    for interval in (0, 7):
        numbers(term)[1, interval, interval] = -torch.inf
    torch.manual_seed(0)
    seen = 0
    for _ in range(300):
        ids = torch.randint(12, 34, (1, N + int(torch.randint(1, N, ()))))
        past = torch.nn.functional.pad(ids, (term.reach - ids.shape[1], 0), value=-1)
        forbidden = term(past.unsqueeze(1), torch.tensor([ids.shape[1]]))[0, 0] == -torch.inf
        by_rule = rule(ids)[0]
        assert forbidden[by_rule].all()
        more = (forbidden & ~by_rule).nonzero().flatten()
        own = int(ids[0, -N]) + 36
        voices = ids.shape[1] - N
        moved = [int(ids[0, N + u] - ids[0, u]) for u in range(voices)]
        for id_ in more.tolist():
            step = int(pitches[id_]) - own
            assert any((step - up) % 12 == 0 and step * up <= 0 for up in moved), (step, moved)
        seen += int(by_rule.sum())
    assert seen > 50


def music(lowest: int, rows: int, generator: torch.Generator, *, strict: bool) -> Tensor:
    """Four voices of which each moves by at most 3 [rows, 8]; strict: without parallels."""

    def draw(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (rows, 1), generator=generator)

    rule = NoParallels(ChoraleTokenizer().id_pitches, N)
    ids = torch.cat([lowest + 7 * (N - 1 - voice) + draw(-1, 2) for voice in range(N)], 1)
    for voice in range(N):
        new = ids[:, voice, None] + draw(-3, 4)
        while strict and (wrong := rule(ids).gather(1, new)).any():
            new = torch.where(wrong, ids[:, voice, None] + draw(-3, 4), new)
        ids = torch.cat([ids, new], 1)
    return ids


def logits(term: VoiceLeading, ids: Tensor, position: int) -> Tensor:
    """Of a model of the term alone: [B, V]."""
    past = torch.nn.functional.pad(ids[:, :position], (term.reach, 0), value=-1)
    return term(past[:, None, -term.reach :], torch.tensor([position]))[:, 0]


def test_a_term_fitted_to_music_without_parallels_avoids_them_higher_up() -> None:
    pitches, generator = ChoraleTokenizer().id_pitches, torch.Generator().manual_seed(0)
    rule, new = NoParallels(pitches, N), music(15, 200, generator, strict=False)
    share = {}
    for strict in (False, True):
        term = VoiceLeading(pitches, N)
        optimizer = torch.optim.Adam(term.parameters(), lr=0.2)
        for _ in range(80):
            ids = music(8, 64, generator, strict=strict)
            losses = [
                torch.nn.functional.cross_entropy(logits(term, ids, at), ids[:, at])
                for at in range(N + 1, 2 * N)
            ]
            optimizer.zero_grad()
            torch.stack(losses).sum().backward()
            optimizer.step()
        with torch.no_grad():
            share[strict] = sum(
                float((logits(term, new, at).softmax(-1) * rule(new[:, :at])).sum())
                for at in range(N + 1, 2 * N)
            )
    assert share[True] < share[False] / 5


def test_music_without_voices_has_none() -> None:
    config = ModelConfig(voice_leading=True, tokenizer=EventTokenizer())
    with pytest.raises(ValueError, match="voice_leading"):
        config.build(length=64)
    with pytest.raises(ValueError, match="parallel_penalty"):
        ModelConfig(parallel_penalty=1.0).build(length=64)
