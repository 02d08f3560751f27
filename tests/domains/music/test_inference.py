import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from pretty import midi_bytes, notes_of, pretty, write_midi
from tiny_music import Chorales, Performances, tiny_model, windows_of

from triptych.core.attention.full import Full
from triptych.core.attention.relative import Relative
from triptych.decoding.sampling import SampleRequest
from triptych.domains.music.config import Config, DataConfig
from triptych.domains.music.domain import MusicScoreRequest
from triptych.domains.music.generation import continue_tokens
from triptych.domains.music.inference import MusicModel, restore
from triptych.domains.music.midi import parse_midi
from triptych.domains.music.notes import on_grid
from triptych.domains.music.sources.chorales import JSBChorales
from triptych.domains.music.sources.midi_folder import MidiFolder
from triptych.domains.music.statistics import means_and_deviations, piece_statistics, text_lines
from triptych.domains.music.task import MusicTrainingModule
from triptych.domains.music.tokenizers.chorales import SECONDS_PER_STEP, ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.key_events import END, SHIFT, EventGrammar
from triptych.errors import UserError
from triptych.types import Sampling

CHORALES = ChoraleTokenizer()

PIECES = Chorales((50, 50, 50))


def model_of(source, *, length=128, overlap=64, attention=None):
    tokenizer = EventTokenizer() if isinstance(source, MidiFolder) else source.tokenizer
    return tiny_model(
        source, length=length, overlap=overlap, attention=attention, tokenizer=tokenizer
    )


def statistics_of(model: MusicModel, count: int, **options: Any) -> dict[str, Any]:
    return model.sample_statistics(MusicScoreRequest(statistics=count, **options))


@pytest.fixture(scope="module")
def choir():
    return model_of(PIECES)


@pytest.fixture(scope="module")
def pianist():
    return model_of(Performances(), length=60, overlap=20)


def grid_to_midi(grid):
    return pretty(CHORALES.to_score(CHORALES.encode(grid)))


def grid_of(midi):
    return CHORALES.from_midi(parse_midi(midi_bytes(midi), name="x"))


def test_length_counts_16th_steps_for_chorales(choir):
    piece = choir.sample(1, length=50)[0]
    assert len(CHORALES.from_midi(piece.score)) == 50
    assert pretty(choir.sample(1, seconds=4)[0]).get_end_time() == pytest.approx(
        4, abs=SECONDS_PER_STEP
    )


def test_the_same_seed_gives_the_same_pieces(choir):
    one, two, other = (
        [midi_bytes(piece.score) for piece in choir.sample(2, length=40, seed=seed)]
        for seed in (3, 3, 4)
    )
    assert one == two
    assert one != other
    assert one[0] != one[1]


def test_a_continuation_begins_with_the_primer(choir, tmp_path):
    primer = np.random.default_rng(0).integers(0, 5, (20, 4)) + np.array([75, 65, 55, 45])
    path = write_midi(grid_to_midi(primer), tmp_path / "primer.mid")
    for given in (path, str(path), grid_to_midi(primer)):
        for midi in map(pretty, choir.sample(2, length=60, primer=given)):
            assert [len(part.notes) > 0 for part in midi.instruments] == [True] * 4
            line = [midi.instruments[0], primer[:, 0]]
            # Voices may cross in what is new, so the first steps are read voice by voice.
            for step, pitch in enumerate(line[1]):
                time = (step + 0.5) * SECONDS_PER_STEP
                assert [n.pitch for n in line[0].notes if n.start <= time < n.end] == [pitch]
            assert midi.get_end_time() <= 80 * SECONDS_PER_STEP + 1e-6


def test_a_bad_primer_is_told_by_name(choir, tmp_path, make_piano):
    (tmp_path / "bad.mid").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"bad\.mid"):
        choir.sample(1, length=4, primer=tmp_path / "bad.mid")
    path = write_midi(make_piano([(100, 0, 1, 64)]), tmp_path / "high.mid")
    with pytest.raises(UserError, match=r"high\.mid has the MIDI pitch 100"):
        choir.sample(1, length=4, primer=path)


def test_progress_counts_over_windows(choir):
    calls = []
    choir.sample(1, length=100, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(n + 1, 400) for n in range(400)]


# The window that moves on


@pytest.mark.parametrize("attention", [Relative(max_distance=9), Relative(window=16), Full()])
@pytest.mark.parametrize("n_prompt", [0, 1, 7, 64, 100, 127, 128, 129, 300])
def test_sampling_beyond_the_window_sees_what_the_evaluation_sees(attention, n_prompt):
    """Greedy tokens must be the best ones given exactly the window of the evaluation."""
    length, overlap = 128, 32
    model = model_of(PIECES, attention=attention).model.double()
    prompt = torch.randint(47, (2, n_prompt), generator=torch.Generator().manual_seed(1))
    tokens = continue_tokens(
        model,
        SampleRequest(prefix=prompt, length=n_prompt + 150, sampling=Sampling(temperature=0)),
        windows_of(length, overlap),
    )
    assert tokens.shape == (2, n_prompt + 150)
    assert torch.equal(tokens[:, :n_prompt], prompt)
    with torch.no_grad():
        for place in range(n_prompt, n_prompt + 150, 7):
            start = max(0, -(-(place - length + 1) // (length - overlap))) * (length - overlap)
            previous = tokens[:, start - 1] if start else None
            logits = model(tokens[:, start : place + 1], previous=previous)[:, -1]
            assert torch.equal(logits.argmax(-1), tokens[:, place])


def test_a_model_can_end_its_piece(pianist):
    bias = pianist.model.head.logits.bias
    before = bias.detach().clone()
    with torch.no_grad():
        bias[END] += 100
    try:
        calls = []
        pieces = pianist.sample(2, length=500, progress=lambda *call: calls.append(call))
        assert [len(piece.score.notes) for piece in pieces] == [0, 0]
        assert calls == [(1, 500), (1, 1)]
    finally:
        with torch.no_grad():
            bias.copy_(before)


@pytest.mark.parametrize("overlap", [0, 1, 20])
def test_a_row_that_has_ended_stays_ended_in_later_windows(overlap):
    """Without context the next window shows nothing of the end."""
    model = model_of(Performances(), length=40, overlap=overlap).model
    with torch.no_grad():
        model.head.logits.bias[END] += 2.5
    tokens = continue_tokens(
        model,
        SampleRequest(prefix=torch.zeros(40, 0, dtype=torch.int64), length=150, seed=0, end=END),
        windows_of(40, overlap),
    )
    ended = (tokens == END).cumsum(1) > 0
    assert (tokens[ended] == END).all()
    assert 5 < ended[:, 39].sum() < 35  # some end in the first window, some do not
    assert ended[:, 60:].sum() > 0


def test_seconds_of_a_performance_end_in_time(pianist):
    for midi in map(pretty, pianist.sample(3, seconds=5, seed=2)):
        assert midi.get_end_time() <= 5 + 1e-6
        assert midi_bytes(midi)


def test_a_performance_continues_its_primer(pianist, make_piano, sounding):
    rows = [(60 + n, n * 0.5, n * 0.5 + 0.4, 66) for n in range(8)]
    for piece in pianist.sample(2, length=200, primer=make_piano(rows)):
        notes = sounding(piece.score)
        early = notes.onset < 3.4
        assert [*zip(notes.pitch[early], notes.onset[early], strict=True)][:7] == [
            (pitch, onset) for pitch, onset, _, _ in rows[:7]
        ]


def test_a_constraint_reads_the_tokens_of_all_windows(pianist):
    read = []

    def nothing(values):
        read.append(values.tolist())
        return torch.zeros(len(values), END + 1, dtype=torch.bool)

    prefix = torch.zeros(2, 0, dtype=torch.int64)
    request = SampleRequest(prefix=prefix, length=150, constraint=nothing)
    tokens = continue_tokens(pianist.model, request, windows_of(60, 20))
    assert read == [tokens[:, :place].tolist() for place in range(150)]


def test_every_written_performance_is_possible(busy_piece, sounding):
    for seed in range(4):
        ids = torch.tensor([[*EventTokenizer().encode(sounding(busy_piece(seed))), END]])
        rule = EventGrammar(1)
        for place in range(ids.shape[1]):
            assert not rule(ids[:, :place])[0, ids[0, place]]


# Evaluation


def test_an_evaluation_names_its_counts(choir):
    result = choir.evaluate("validation")
    assert (result.domain, result.split, result.count) == ("music", "validation", 3)
    assert set(result.metrics) == {"nats_per_token", "nats_per_note"}
    assert result.details["tokens"] == 600
    assert result.details["vocabulary_size"] == 47
    assert round(result.details["nats_per_token_of"]["uniform"], 3) == 3.85
    assert len(result.details["nats_per_token_of"]) == 3


def test_data_names_another_folder(choir, tmp_path, busy_piece):
    with pytest.raises(UserError, match="gives no piece for the split test"):
        choir.evaluate(data=tmp_path)
    model = model_of(
        MidiFolder("gone", validation_share=0.4, test_share=0.4), length=60, overlap=20
    )
    for seed in range(9):
        write_midi(busy_piece(seed), tmp_path / f"{seed}.mid")
    result = model.evaluate("test", data=str(tmp_path))
    assert 0 < result.count < 9
    assert list(result.details["nats_per_token_of"]) == ["uniform"]
    with pytest.raises(UserError, match="gone"):
        model.evaluate("test")


def test_a_checkpoint_is_enough(tmp_path):
    source = JSBChorales(str(tmp_path / "gone"))
    data = DataConfig(source=source, sequence_length=128, overlap=64)
    task = MusicTrainingModule(Config(data=data, model=model_of(PIECES).settings.model))
    checkpoint = {"triptych": task.metadata, "state_dict": task.state_dict()}
    expected = midi_bytes(MusicModel.of_run(task.config, task.model).sample(1, length=20)[0].score)
    for device in ("cpu", "auto"):
        again = restore(checkpoint, device=device)
        assert not again.model.training
        again.model.to("cpu")
        assert midi_bytes(again.sample(1, length=20)[0].score) == expected


def test_the_last_wait_is_cut_to_the_seconds_that_were_asked_for():
    """0.4 s and then 0.7 s, behind a prompt of a second: of 0.5 s 0.1 s are left."""
    tokens = np.array([SHIFT + 99, 60, SHIFT + 39, 60, SHIFT + 69, END, END])
    kind = EventTokenizer()
    cut = kind.trim(tokens, seconds=0.5, n_prompt=2)
    assert cut.tolist() == [SHIFT + 99, 60, SHIFT + 39, 60, SHIFT + 9, END, END]
    for seconds in (None, 1.1, 9.0):
        assert kind.trim(tokens, seconds=seconds, n_prompt=2).tolist() == tokens.tolist()
    nothing = np.array([SHIFT + 99, 60, END])
    assert kind.trim(nothing, seconds=0.5, n_prompt=2).tolist() == nothing.tolist()


# Statistics


def test_samples_are_as_long_as_the_median_piece_and_named(choir):
    found = statistics_of(choir, 2, split="validation", seed=5)
    statistics, shared = found["statistics"], found["memorisation"]
    assert (statistics["sample_length"], statistics["sample_unit"]) == (50, "sixteenths")
    assert statistics["pieces"] == {"validation": 3, "samples": 2}
    assert set(statistics["groups"]) == {"validation", "samples"}
    assert statistics["groups"]["samples"]["n_pitches"]["pieces"] == 2
    assert shared["training_pieces"] == 3
    runs = shared["runs"]["tokens"]["samples"]["runs"]
    assert [run["piece"] for run in runs] == ["sample-00", "sample-01"]
    json.dumps(found, allow_nan=False)


def test_statistics_of_samples_are_those_of_the_pieces_that_sample_returns(choir):
    found = statistics_of(choir, 2, sample_length=24, seed=3)["statistics"]["groups"]["samples"]
    pieces = [
        piece_statistics(on_grid(notes_of(pretty(made)), CHORALES.steps_per_second), CHORALES)
        for made in choir.sample(2, length=24, seed=3)
    ]
    assert found == means_and_deviations(pieces)


def test_a_sample_length_cuts_the_pieces_too(choir):
    whole, cut = (
        statistics_of(choir, 1, sample_length=length)["statistics"]["groups"]["test"]
        for length in (None, 10)
    )
    expected = [
        piece_statistics(
            on_grid(notes_of(grid_to_midi(piece.content[:10])), CHORALES.steps_per_second),
            CHORALES,
        )
        for piece in PIECES.load("test", CHORALES)
    ]
    assert cut == means_and_deviations(expected)
    assert cut["n_pitches"]["mean"] < whole["n_pitches"]["mean"]


def test_training_pieces_are_not_looked_for_in_themselves(choir):
    shared = statistics_of(choir, 1, split="train", sample_length=8)["memorisation"]
    assert list(shared["runs"]["intervals"]) == ["samples"]


@dataclass(frozen=True)
class OnlyHeldOut(Chorales):
    def stream(self, split, tokenizer):
        if split == "train":
            raise UserError("the training pieces are gone")
        return super().stream(split, tokenizer)


def test_without_training_pieces_only_statistics_are_computed():
    found = statistics_of(model_of(OnlyHeldOut((50, 50, 50))), 1, sample_length=8)
    assert found["statistics"]["groups"]["test"]
    assert found["memorisation"] == {"not_computed": "the training pieces are gone"}
    assert any("gone" in line for line in text_lines(found))


def test_statistics_of_performances(pianist, tmp_path, busy_piece):
    with pytest.raises(UserError, match="the split test has no pieces"):
        statistics_of(pianist, 1)
    model = model_of(
        MidiFolder(str(tmp_path), validation_share=0.3, test_share=0.3), length=60, overlap=20
    )
    for seed in range(9):
        write_midi(busy_piece(seed), tmp_path / f"{seed}.mid")
    found = statistics_of(model, 2, sample_length=80)
    assert "groove_consistency" not in found["statistics"]["groups"]["samples"]
    assert found["memorisation"]["training_pieces"] > 0
    assert len(text_lines(found)) > 8
    json.dumps(found, allow_nan=False)
