"""Heads that follow relations: chosen by their scores, and the sentences are what they say."""

from __future__ import annotations

import importlib.util
import random
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
import torch
from lectures import roles

SCRIPT = Path(__file__).parents[2] / "scripts/relation_heads"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("relation_heads", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def test_relations_of_made_sentences_are_those_of_their_grammar(script: ModuleType) -> None:
    generator = random.Random(3)
    seen = set()
    for _ in range(2000):
        words, relations = script.make_sentence(generator)
        assert len(words) <= roles.LENGTH
        who, what, whom, it = relations.values()
        for verb in (place for place, other in what.items() if place == other):
            passive = words[verb - 1] == "was"
            before, after = (whom, who) if passive else (who, whom)
            assert before[verb] < verb < after[verb]
            seen.add((passive, words[before[verb]]))
        for place, other in it.items():
            assert words[place] == "it"
            (adjective,) = set(words) & {*script.ADJECTIVES["animal"], *script.ADJECTIVES["place"]}
            kind = "animal" if adjective in script.ADJECTIVES["animal"] else "place"
            assert words[other] in {"animal": script.ANIMALS, "place": script.PLACES}[kind]
    nouns = {noun for _, noun in seen}
    assert {(passive, noun) for passive in (False, True) for noun in nouns - {"i", "me"}} <= seen


@pytest.mark.slow
def test_the_shipped_heads_are_those_with_the_highest_scores(script: ModuleType) -> None:
    known = roles.trained()
    accuracy, weights = script.scores(known.model)
    assert min(accuracy.values()) > 0.98
    assert known.words == script.WORDS
    chosen = script.chosen_heads(weights)
    assert chosen.keys() == known.chosen.keys()
    for name, (head, weight) in known.chosen.items():
        assert chosen[name] == (head, pytest.approx(weight, abs=1e-3))
        assert weight > 4 / 13  # of about 13 words


def test_what_is_drawn_are_weights_of_the_last_layer() -> None:
    known = roles.trained()
    weights = known.read(roles.KICKED)
    assert weights.shape == (roles.N_HEADS, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(roles.N_HEADS, 5))
    who, whom = (known.chosen[name][0] - 1 for name in ("who", "to whom"))
    assert weights[who, 1].argmax() == 0  # kicked reads i
    assert weights[whom, 1].argmax() == 3  # kicked reads ball
