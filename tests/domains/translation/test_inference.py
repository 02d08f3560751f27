"""n lines in, n lines out; each line's text is its own, whatever stands beside it."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.state import DecodingState
from triptych.decoding.beams import SearchResult
from triptych.domains.translation import inference
from triptych.domains.translation import search as searching
from triptych.domains.translation.data import EncodedPairs
from triptych.domains.translation.inference import TranslationModel
from triptych.domains.translation.lines import one_line
from triptych.domains.translation.model import END, START
from triptych.domains.translation.search import FORBIDDEN, plan_rows
from triptych.domains.translation.sources import ParallelText
from triptych.domains.translation.task import TranslationTrainingModule
from triptych.errors import UserError
from triptych.text.tokenizer import PAD
from triptych.types import Dtype

LINES = [
    "seven",
    "",
    "two hundred and thirty-four",
    "   \t ",
    "five hundred 🎉 and seven",
    "nine hundred and ninety-nine\r",
    "\r",
    "eleven",
    "grüße an \u2028 alle",
]


@pytest.fixture(scope="module")
def translator(taught: TranslationTrainingModule) -> TranslationModel:
    return in_use(taught)


def in_use(task: TranslationTrainingModule, **options: Any) -> TranslationModel:
    return TranslationModel.of_run(task.config, task.model, task.tokenizers, **options)


def many_lines(count: int) -> list[str]:
    draw = random.Random(1)
    words = ["one", "seven", "hundred", "and", "ninety-nine", "thirty", ",", "🎉", "ü"]
    return [" ".join(draw.choices(words, k=draw.randrange(0, 9))) for _ in range(count)]


def test_as_many_lines_come_out_as_go_in_and_blank_ones_stay_blank(
    translator: TranslationModel,
) -> None:
    found = translator.translate(LINES, beam=2)
    assert len(found) == len(LINES)
    for line, text in zip(LINES, found, strict=True):
        assert text == "" or line.strip()
        assert "\n" not in text
        assert "\r" not in text
    assert found[0]
    assert translator.translate([]) == []


def test_blank_lines_need_no_run_of_the_model(
    translator: TranslationModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "beam_search", None)
    assert translator.translate(["", "  ", "\r", "\u3000"]) == ["", "", "", ""]
    assert translator.translate(["", ""], n_best=2) == [["", ""], ["", ""]]


@pytest.mark.parametrize("beam", [1, 4])
def test_the_text_is_the_same_at_every_batch_size(translator: TranslationModel, beam: int) -> None:
    lines = many_lines(60)
    together = translator.translate(lines, beam=beam, batch_size=64)
    for batch_size in (1, 7):
        assert translator.translate(lines, beam=beam, batch_size=batch_size) == together
    # Alone, without its neighbours.
    for place in (3, 17, 42):
        assert translator.translate([lines[place]], beam=beam) == [together[place]]
    order = list(range(60))
    random.Random(2).shuffle(order)
    shuffled = translator.translate([lines[place] for place in order], beam=beam)
    assert shuffled == [together[place] for place in order]


def test_sources_in_use_look_as_they_did_in_training(
    taught: TranslationTrainingModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same marks at both ends; a start or end on one side only would shift everything."""
    trained_on: list[torch.Tensor] = []
    used: list[torch.Tensor] = []
    encode = taught.model.encode
    lines = ["seven", "two hundred and thirty-four"]
    batch = EncodedPairs.of([(line, "x") for line in lines], taught.tokenizers).batch([1, 0])

    def spy(seen: list[torch.Tensor]) -> object:
        return lambda source, *rest: (seen.append(source), encode(source, *rest))[1]

    with torch.no_grad():
        monkeypatch.setattr(taught.model, "encode", spy(trained_on))
        taught.training_loss(batch)
        monkeypatch.setattr(taught.model, "encode", spy(used))
        in_use(taught).search(lines)
    assert used[0].tolist() == trained_on[0].tolist()  # the longest first in use


def test_scores_of_a_row_are_those_of_the_row_alone_to_double_precision(
    translator: TranslationModel, taught: TranslationTrainingModule
) -> None:
    model = translator.double_model
    assert next(model.parameters()).dtype == torch.float64
    assert next(taught.model.parameters()).dtype == torch.float32  # training's stay what they are
    pairs = [taught.tokenizers.source.encode(line) for line in ("seven", "nine hundred and six")]
    short, long = ([*ids, 2] for ids in pairs)
    alone = torch.tensor([short])
    beside = torch.tensor([[*short, *[PAD] * (len(long) - len(short))], long])
    start = torch.full((1, 1), START)
    with torch.no_grad():
        one = model(alone, alone == PAD, start)
        two = model(beside, beside == PAD, start.expand(2, 1))
    assert (one[0] - two[0]).abs().max() < 1e-12


def test_what_single_precision_cannot_decide_is_searched_in_double(
    translator: TranslationModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = many_lines(12)
    expected = translator.translate(lines, beam=2)
    search, asked = inference.search_sources, []

    def doubtful(
        model: torch.nn.Module, sources: dict[int, list[int]], *options: Any
    ) -> Iterator[tuple[int, SearchResult]]:
        if model is translator.double_model:
            asked.append(len(sources))
        for place, (line, result) in enumerate(search(model, sources, *options)):  # type: ignore[arg-type]
            # Every second line comes out wrong, by a decision that was too close.
            if model is not translator.double_model and place % 2 == 0:
                wrong = replace(result.best[0], tokens=[5, 5, 5])
                result = SearchResult([wrong], inference.SAFE_MARGIN * 0.99)
            yield line, result

    monkeypatch.setattr(inference, "search_sources", doubtful)
    calls: list[tuple[int, int]] = []
    found = translator.translate(lines, beam=2, progress=lambda *done: calls.append(done))
    assert found == expected
    filled = sum(bool(line.strip()) for line in lines)
    assert asked == [(filled + 1) // 2]  # all together, and no others
    assert calls[-1] == (12, 12)
    assert calls == sorted(calls)
    loose = TranslationModel(translator.settings, translator.full_model, translator.vocabulary)
    loose.repeats_near_ties = False
    assert loose.translate(lines, beam=2) != expected


def test_double_precision_is_made_only_where_it_is_needed(
    taught: TranslationTrainingModule,
) -> None:
    class NoDouble(TranslationModel):
        @property
        def double_model(self) -> EncoderDecoder:  # type: ignore[override]
            raise AssertionError("asked for")

    lines = ["seven", "nine hundred and four"]
    found = NoDouble.of_run(taught.config, taught.model, taught.tokenizers).translate(lines, beam=2)
    assert found == in_use(taught).translate(lines, beam=2)


def test_n_best_gives_different_texts_best_first(translator: TranslationModel) -> None:
    found = translator.translate(["seven hundred and five", ""], beam=4, n_best=3)
    assert [len(best) for best in found] == [3, 3]
    assert len(set(found[0])) > 1
    assert found[0][0] == translator.translate(["seven hundred and five"], beam=4)[0]


def test_a_translation_has_at_most_fifty_tokens_more_than_its_source(
    translator: TranslationModel, taught: TranslationTrainingModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[list[int]] = []
    search = searching.beam_search

    def spy(*arguments: object, **options: object) -> object:
        limits.append(options["max_lengths"])  # type: ignore[attr-defined]
        return search(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(searching, "beam_search", spy)
    lines = ["seven", "nine hundred and ninety-nine"]
    translator.translate(lines)
    ids = taught.tokenizers.source.encode_batch(lines)
    assert sorted(limits[0]) == sorted(len(row) + 1 + 50 for row in ids)  # its end counts


def test_free_memory_limits_a_batch_on_a_gpu(
    translator: TranslationModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = translator.model
    assert searching.max_positions(model, 4) == searching.MAX_POSITIONS
    monkeypatch.setattr(searching, "device_of", lambda _: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (8_000_000, 16_000_000))
    sizes = translator.settings.model.transformer
    key_and_value = 2 * 4 * sizes.d_model * sizes.n_layers  # bytes
    assert searching.max_positions(model, 4) == 4_000_000 // (4 * key_and_value)


def test_a_model_that_never_ends_is_stopped(taught: TranslationTrainingModule) -> None:
    class Endless(torch.nn.Module):
        """Says one token for ever; it has the model's parts that the search needs."""

        decodes_padded_sources = True

        def __init__(self, token: int) -> None:
            super().__init__()
            self.token = token
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def encode(self, source: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
            return torch.zeros(*source.shape, 1)

        def init_state(self, batch: int, *_: object, **more: object) -> object:
            return DecodingState([], [], torch.zeros(batch, 1))

        def state_view(self, state: object, _: int) -> object:
            return state

        def step(self, token: torch.Tensor, *_: object) -> torch.Tensor:
            logits = torch.full((*token.shape, len(taught.tokenizers.target)), -50.0)
            logits[..., self.token] = 50.0
            return logits

    newline = taught.tokenizers.target.encode("\n")
    assert len(newline) == 1
    endless: Any = Endless(newline[0])
    found = TranslationModel.of_run(taught.config, endless, taught.tokenizers).translate(
        ["six"], beam=1
    )
    length = len(taught.tokenizers.source.encode("six")) + 1 + 50
    assert found == [" " * length]  # and what it says holds no line end


def test_line_ends_become_blanks_and_other_letters_stay() -> None:
    assert one_line("a\nb\r\nc\u2028d") == "a b  c\u2028d"


def test_rows_are_planned_by_length_and_long_ones_get_room() -> None:
    lengths = [5, 9_000, 7, 1_000, 3, 1_000, 6, 1_500]
    batches = plan_rows(dict(enumerate(lengths)), 3)
    assert sorted(row for batch in batches for row in batch) == list(range(8))
    assert batches[0] == [1]
    flat = [lengths[row] for batch in batches for row in batch]
    assert flat == sorted(lengths, reverse=True)
    for batch in batches:
        assert len(batch) <= 3
        longest = max(lengths[row] for row in batch)
        assert len(batch) == 1 or len(batch) * (2 * longest + 50) <= 8_192
    assert plan_rows({}, 3) == []
    assert [len(batch) for batch in plan_rows(dict.fromkeys(range(10), 4), 4)] == [4, 4, 2]


def test_other_mistakes_are_named(translator: TranslationModel) -> None:
    with pytest.raises(UserError, match="length_penalty must be 0"):
        translator.translate(["seven"], length_penalty="long")
    with pytest.raises(TypeError, match="not one string"):
        translator.translate("seven")


# Other precisions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_other_precisions_translate_much_alike(translator: TranslationModel, dtype: Dtype) -> None:
    lines = [line for line in many_lines(80) if line.strip()]
    other = translator.with_dtype(dtype)
    other.__dict__["double_model"] = None  # near-ties are not searched again
    found, plain = other.translate(lines, beam=2), translator.translate(lines, beam=2)
    assert sum(map(str.__eq__, found, plain)) > 0.3 * len(lines)


def test_dtypes_that_cannot_be_are_refused(taught: TranslationTrainingModule) -> None:
    with pytest.raises(UserError, match="dtype is fp32, bf16, int8, got fp16"):
        in_use(taught).with_dtype("fp16")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="int8 needs a CPU"):
        in_use(copy.deepcopy(taught).to("meta")).with_dtype("int8")


def test_a_hypothesis_has_the_log_probability_of_the_training_pass(
    translator: TranslationModel,
) -> None:
    lines = [line for line in many_lines(20) if line.strip()]
    model, tokenizers = translator.double_model, translator.vocabulary
    hypotheses = TranslationModel(translator.settings, model, tokenizers).search(
        lines, beam=3, n_best=3
    )
    for line, found in zip(lines, hypotheses, strict=True):
        (ids,) = tokenizers.source.encode_batch([line])
        for one in found:
            target = torch.tensor([*one.tokens, END] if one.finished else one.tokens)  # [T]
            entered = torch.cat([torch.tensor([START]), target[:-1]])  # [T]
            with torch.no_grad():
                logits = model(torch.tensor([[*ids, END]]), None, entered.unsqueeze(0))[0]  # [T, V]
            logits[:, list(FORBIDDEN)] = -torch.inf  # as in the search
            log_p = logits.log_softmax(-1).gather(-1, target.unsqueeze(-1)).sum()
            assert one.log_probability == pytest.approx(float(log_p))


def test_a_split_is_scored_in_the_precision_in_use(translator: TranslationModel) -> None:
    plain = translator.evaluate("test", beam=1)
    other = translator.with_dtype("bf16").evaluate("test", beam=1)
    assert (plain.details["dtype"], other.details["dtype"]) == ("fp32", "bf16")
    assert other.details["sentences_per_second"] > 0
    nats = [result.metrics["nats_per_token"] for result in (plain, other)]
    assert nats[0] != nats[1]
    assert nats[0] == pytest.approx(nats[1], rel=0.05)
    assert next(translator.full_model.parameters()).dtype == torch.float32


# Evaluation --------------------------------------------------------------------------------------


def test_a_split_is_scored_whole_with_signatures_and_samples(translator: TranslationModel) -> None:
    result = translator.evaluate("test", beam=1)
    assert (result.domain, result.split, result.count) == ("translation", "test", 40)
    names = {"nats_per_token", "bleu", "chrf", "exact_match", "character_accuracy"}
    assert result.metrics.keys() == names
    pairs = translator.data_settings.source.items("test")
    translations = result.details["hypotheses"]
    assert translations == translator.translate([source for source, _ in pairs], beam=1)
    right = sum(text == target for text, (_, target) in zip(translations, pairs, strict=True))
    assert result.metrics["exact_match"] == pytest.approx(right / 40)
    assert "tok:char" in result.details["signatures"]["bleu"]
    assert len(result.details["samples"]) == 20
    assert result.details["samples"][0]["reference"] == pairs[0][1]
    assert result.details["vocabulary"]["target"] == len(translator.vocabulary.target)


def test_an_evaluation_searches_as_it_is_told(translator: TranslationModel) -> None:
    pairs = translator.data_settings.source.items("test")
    sources = [source for source, _ in pairs]
    found = []
    for search in (
        {"beam": 3, "length_penalty": "none"},
        {"beam": 3, "length_penalty": "gnmt:5"},
        {"beam": 3, "length_penalty": "gnmt:5", "no_repeat_ngram": 1},
    ):
        result = translator.evaluate("test", **search)
        unset = {"no_repeat_ngram": None}
        assert result.details["search"] == unset | search
        found.append(result.details["hypotheses"])
        assert found[-1] == translator.translate(sources, **search)
    assert found[0] != found[1]
    assert found[1] != found[2]


def test_another_folder_may_hold_the_data(
    taught: TranslationTrainingModule, tmp_path: Path
) -> None:
    corpus = ParallelText(directory="/nowhere", files={"test": ["t.{language}"]})
    config = replace(taught.config, data=replace(taught.config.data, source=corpus))
    task = TranslationTrainingModule(config, taught.tokenizers)
    task.load_state_dict(taught.state_dict())
    (tmp_path / "t.en").write_text("seven\n\nnine\n")
    (tmp_path / "t.de").write_text("sieben\nnichts\nneun\n")
    translator = in_use(task)
    result = translator.evaluate(data=tmp_path, beam=1)
    assert (
        result.count == 3
    )  # the empty source is scored too: lines of a test set are never left out
    assert "tok:13a" in result.details["signatures"]["bleu"]
    pytest.importorskip("sacremoses")
    assert 0 <= result.metrics["bleu_papers"] <= 100
    assert "sacremoses[de" in result.details["signatures"]["bleu_papers"]
    with pytest.raises(UserError, match=r"no split 'dev'; they have test"):
        translator.evaluate("dev", data=tmp_path)
    with pytest.raises(UserError, match=r"/nowhere/t\.en does not exist"):
        translator.evaluate()


def test_rows_of_equal_lengths_share_a_batch_where_no_other_may() -> None:
    lengths = dict(enumerate([5, 3, 5, 4, 3, 3, 5]))
    batches = plan_rows(lengths, 2, equal_lengths=True)
    assert sorted(key for batch in batches for key in batch) == list(range(7))
    assert all(len({lengths[key] for key in batch}) == 1 for batch in batches)
    assert max(map(len, batches)) == 2
