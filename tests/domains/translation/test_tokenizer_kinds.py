"""What every kind of tokenizer gives, and what characters and words do not know."""

from __future__ import annotations

import json

import pytest

from triptych.domains.translation.model import END, N_SPECIALS, SPECIALS, START, Tokenizers
from triptych.errors import UserError
from triptych.text.byte_level import UNKNOWN, BytePairs, Characters, Words
from triptych.text.tokenizer import TextTokenizer, TokenizerConfig

KINDS: list[TokenizerConfig] = [BytePairs(), Characters(), Words(min_count=1)]
LINES = ["Ein Hund läuft, läuft!", "Zwei 12 Hunde — 여섯 🎉", "  a\tb  \u2028c\n", "Große Straße."]


@pytest.fixture(params=KINDS, ids=lambda kind: type(kind).__name__)
def tokenizer(request: pytest.FixtureRequest) -> TextTokenizer:
    kind: TokenizerConfig = request.param
    return kind.build(LINES, 400, SPECIALS)


def test_known_text_comes_back_and_so_do_the_bytes_of_its_ids(tokenizer: TextTokenizer) -> None:
    pieces = tokenizer.token_bytes
    assert len(pieces) == len(tokenizer) == len(tokenizer.symbols)
    assert pieces[:N_SPECIALS] == [b""] * N_SPECIALS
    for line, ids in zip(LINES, tokenizer.encode_batch(LINES), strict=True):
        assert tokenizer.decode([START, *ids, END]) == line
        assert b"".join(pieces[token] for token in ids) == line.encode()
        assert tokenizer.knows(line)
        again = TextTokenizer.from_json(json.loads(json.dumps(tokenizer.to_json())), SPECIALS)
        assert again.encode(line) == ids


def test_a_text_is_its_first_words_and_the_rest(tokenizer: TextTokenizer) -> None:
    for line in LINES:
        for end in range(1, len(line) + 1):
            stem, rest = tokenizer.split_last(line[:end])
            before = line[: end - len(rest.decode())]
            assert before.encode() + rest == line[:end].encode()
            assert stem == tokenizer.encode(before)
    assert tokenizer.split_last("Ein Hund")[1] in (b" Hund", b"d")


def test_a_first_word_has_the_tokens_of_the_middle() -> None:
    lines = ["여섯 Hunde", "Hunde 여섯", "机器 Hunde"] * 3
    plain = BytePairs().build(lines, 400, SPECIALS)
    spaced = BytePairs(first_as_others=True).build(lines, 400, SPECIALS)
    spaced = TextTokenizer.from_json(json.loads(json.dumps(spaced.to_json())), SPECIALS)
    for word in ("여섯", "Hunde"):
        first, middle = spaced.encode(word), spaced.encode(f"机器 {word}")
        assert middle[-len(first) :] == first
        assert plain.encode(f"机器 {word}")[-1] != plain.encode(word)[-1]
        assert spaced.split_last(word) == ([], f" {word}".encode())
    assert spaced.encode("机器") == spaced.encode("Hunde机器")[-len(spaced.encode("机器")) :]
    for line in ("Hunde 여섯", "机器 x", "  y", "", "z"):
        assert spaced.decode(spaced.encode(line)) == line.removeprefix(" ")
        [(ids, places)] = spaced.located([line])
        assert ids == spaced.encode(line)
        assert [place[1] for place in places[-1:]] == [len(line)] * (line != "")
        assert all(0 <= start <= end <= len(line) for start, end in places)
    with pytest.raises(UserError, match="changes a text"):
        spaced.to_tokenizer_json()


def test_characters_and_words_have_one_id_for_all_they_do_not_know() -> None:
    characters = Characters().build(LINES, 400, SPECIALS)
    assert [len(ids) for ids in characters.encode_batch(LINES)] == [len(line) for line in LINES]
    assert characters.decode(characters.encode("Hxnd")) == f"H{UNKNOWN}nd"
    words = Words(min_count=1).build(LINES, 400, SPECIALS)
    assert words.decode(words.encode("Zwei Katze, läuft")) == f"Zwei{UNKNOWN}, läuft"
    for made in (characters, words):
        assert UNKNOWN in made.symbols
        assert made.token_bytes[made.symbols.index(UNKNOWN)] == b""
        assert not made.knows("xyz")
        assert not made.knows("Ein xyz")
        # The characters <unk> are text like any other.
        assert made.encode("<unk>") != [made.symbols.index(UNKNOWN)]
    bpe = BytePairs().build(LINES, 400, SPECIALS)
    assert bpe.knows("Ein xyz 漢字")


def test_the_most_frequent_units_are_kept() -> None:
    lines = ["a a a b b c"] * 2 + ["d"]
    assert Words(min_count=2).build(lines, 100, SPECIALS).symbols[3:] == [
        UNKNOWN,
        "Ġa",
        "Ġb",
        "a",
        "Ġc",
    ]
    assert Words(min_count=1).build(lines, 6, SPECIALS).symbols[3:] == [UNKNOWN, "Ġa", "Ġb"]
    assert Characters().build(lines, 6, SPECIALS).symbols[3:] == [UNKNOWN, "Ġ", "a"]
    twice = [Words().build(LINES * 2, 100, SPECIALS).to_json() for _ in range(2)]
    assert twice[0] == twice[1]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, BytePairs(first_as_others=True)], ids=str)
def test_both_sides_survive_the_checkpoint(kind: TokenizerConfig, shared: bool) -> None:
    trained = Tokenizers.train(LINES, LINES[:2], kind=kind, vocabulary_size=300, shared=shared)
    again = Tokenizers.from_plain(json.loads(json.dumps(trained.to_plain())))
    assert again.shared is shared
    for side in ("source", "target"):
        before, after = getattr(trained, side), getattr(again, side)
        assert before.symbols == after.symbols
        assert before.encode_batch(LINES) == after.encode_batch(LINES)
