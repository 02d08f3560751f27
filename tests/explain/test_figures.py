"""The numbers that the figures show, against independent computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from lectures import layers, masks, music, outputs, positions, training

from triptych.tools.explain.figure import descriptions, find_figure


@pytest.mark.parametrize("seed", [0, 5])
def test_the_mask_hides_later_keys_and_the_rest_is_a_softmax(seed: int) -> None:
    found = masks.masking(seed)
    for query in range(5):
        total = sum(math.exp(found.logits[query, key]) for key in range(query + 1))
        for key in range(5):
            seen = key <= query
            assert found.mask[query, key] == (0 if seen else -math.inf)
            weight = math.exp(found.logits[query, key]) / total if seen else 0
            assert found.weights[query, key] == pytest.approx(weight, abs=1e-12)


def test_skewed_logits_are_those_of_the_distance_to_each_key() -> None:
    found = positions.logits_before_and_after(3)
    length = len(found.queries)
    vector_of = {length - 1 - row: vector for row, vector in enumerate(found.vectors)}
    for query in range(length):
        for distance, vector in vector_of.items():
            brute = float(found.queries[query] @ vector)
            assert found.by_distance[query, length - 1 - distance] == pytest.approx(brute)
        for key in range(query + 1):
            brute = float(found.queries[query] @ vector_of[query - key])
            assert found.by_key[query, key] == pytest.approx(brute)


def test_norms_read_the_axes_that_their_definitions_average_over() -> None:
    at = (1, 2, 3)
    found = {name: layers.read_by(layer, at) for name, layer in layers.norm_layers().items()}
    sentence, position, feature = np.indices(found["layer norm"].shape)
    np.testing.assert_array_equal(found["batch norm"], feature == 3)
    np.testing.assert_array_equal(found["layer norm"], (sentence == 1) & (position == 2))


@pytest.mark.parametrize("order", ["raster", "blocks"])
def test_local_2d_blocks_are_rectangles_cut_by_the_order(order: masks.Order) -> None:
    side, size, halo = masks.SIDE, masks.BLOCK, masks.HALO
    cells = [(row, column) for row in range(side) for column in range(side)]
    if order == "blocks":
        cells.sort(key=lambda cell: (cell[0] // size, cell[1] // size, *cell))
    rank = np.empty((side, side), dtype=int)
    for number, cell in enumerate(cells):
        rank[cell] = number
    row, column = np.indices((side, side))
    for pixel, step in zip(masks.PIXELS, masks.steps(order), strict=True):
        top, left = pixel[0] // size * size, pixel[1] // size * size
        block = (row // size == top // size) & (column // size == left // size)
        near = (row >= top - halo) & (row < top + size)
        near &= (column >= left - halo) & (column < left + size + halo)
        np.testing.assert_array_equal(step.before, rank < rank[pixel])
        np.testing.assert_array_equal(step.query_block, block)
        np.testing.assert_array_equal(step.visible, near & (rank <= rank[pixel]))
        np.testing.assert_array_equal(step.memory_block, near & (rank <= rank[block].max()))


def test_sampling_settings_are_those_of_their_formulas() -> None:
    found, p = outputs.distributions(), outputs.PROBABILITIES
    roots = [x**0.5 for x in p]
    wanted = {
        "temperature 0.5": [x**2 / sum(y**2 for y in p) for x in p],
        "temperature 2": [x / sum(roots) for x in roots],
        "top-k 3": [x / sum(p[:3]) if index < 3 else 0 for index, x in enumerate(p)],
        "top-p 0.75": [x / sum(p[:4]) if index < 4 else 0 for index, x in enumerate(p)],
    }
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, atol=1e-12)


def test_the_mass_of_a_level_is_that_of_its_bin() -> None:
    found = outputs.masses()
    assert found.levels.sum() == pytest.approx(1)
    np.testing.assert_allclose(found.of_components.sum(0), found.levels, atol=1e-12)
    last = outputs.LEVELS - 1
    for level in range(outputs.LEVELS):
        total = 0.0
        for weight, mean, scale in zip(outputs.WEIGHTS, outputs.MEANS, outputs.SCALES, strict=True):
            low, high = ((level + half) * 2 / last - 1 for half in (-0.5, 0.5))
            below = 0 if level == 0 else 1 / (1 + math.exp(-(low - mean) / scale))
            above = 1 if level == last else 1 / (1 + math.exp(-(high - mean) / scale))
            total += weight * (above - below)
        assert found.levels[level] == pytest.approx(total, abs=1e-9)


def test_patterns_are_those_of_their_definitions() -> None:
    found = list(masks.visible().values())
    row, column = np.indices((24, 24))
    past = column <= row
    compressed = np.where(column < (row + 1) // 3 * 3, 0.5, 1.0) * past
    wanted = {0: np.ones_like(past), 1: past, 2: past & (column > row - 6),
              3: past & (column >= row // 6 * 6 - 6), 5: compressed}  # fmt: skip
    for index, keys in wanted.items():
        np.testing.assert_array_equal(found[index].keys, keys)
        if index != 5:
            assert found[index].n_pairs == keys.sum()
    assert found[5].n_pairs == sum((query + 1) // 3 + (query + 1) % 3 for query in range(24))


def test_relations_are_those_of_the_notes() -> None:
    found, pitches = music.relations_of_notes(), music.PITCHES
    for query in range(len(pitches)):
        for key in range(query + 1):
            assert found.distance[query, key] == query - key
            assert found.time[query, key] == query // 4 - (key - 1) // 4
            if key:  # the pitches that were read are those one position before
                interval = pitches[key - 1] - pitches[query - 1]
                assert found.interval[query, key] == interval
            else:
                assert np.isnan(found.interval[query, key])


def test_events_happen_at_the_times_of_their_notes() -> None:
    found, expected = music.events_of_notes(), []
    for pitch, begin, end, _ in music.NOTES:
        expected += [(f"note_on_{pitch}", begin), (f"note_off_{pitch}", end)]
    notes = {event.symbol: event.time for event in found if event.symbol.startswith("note")}
    assert len(notes) == sum(event.symbol.startswith("note") for event in found)
    assert notes == {symbol: pytest.approx(time, abs=0.005) for symbol, time in expected}
    assert [event.time for event in found] == sorted(event.time for event in found)


def test_activations_and_slopes_are_those_of_the_formulas() -> None:
    def formula(name: str, z: float) -> float:
        return {
            "ReLU": max(0.0, z),
            "GELU": z * 0.5 * (1 + math.erf(z / math.sqrt(2))),
            "Swish": z / (1 + math.exp(-z)),
        }[name]

    found, h = layers.curves(), 1e-6
    assert found.values.keys() == found.slopes.keys() == {"ReLU", "GELU", "Swish"}
    for name in found.values:
        for index in (0, 100, 170, 230, 400):
            z = found.z[index]
            assert found.values[name][index] == pytest.approx(formula(name, z), abs=1e-12)
            slope = (formula(name, z + h) - formula(name, z - h)) / (2 * h)
            assert found.slopes[name][index] == pytest.approx(slope, abs=1e-8)


def test_bleu_is_that_of_the_ngrams_that_are_drawn() -> None:
    found = outputs.matches()
    reference, translation = (text.split() for text in (outputs.REFERENCE, outputs.TRANSLATION))
    assert [len(row) for row in found.right] == [len(translation) - n for n in range(4)]
    for n, row in enumerate(found.right, start=1):
        grams, in_reference = (
            [words[i : i + n] for i in range(len(words) - n + 1)]
            for words in (translation, reference)
        )
        for gram in grams:
            right = sum(r for r, other in zip(row, grams, strict=True) if other == gram)
            assert right == min(grams.count(gram), in_reference.count(gram))
    assert sum(found.right[0]) < sum(word in reference for word in translation)
    log_precision = sum(math.log(sum(row) / len(row)) for row in found.right) / 4
    assert found.brevity < 1
    assert found.bleu == pytest.approx(100 * found.brevity * math.exp(log_precision))


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_input_of_bert_is_two_texts_of_which_some_tokens_are_hidden(seed: int) -> None:
    found = training.reading(seed)
    first, second = (text.replace("playing", "play ##ing").split() for text in training.TEXTS)
    assert found.tokens == ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
    assert "".join(found.segments) == "A" * (len(first) + 2) + "B" * (len(second) + 1)
    kinds = set()
    for read, predicted in zip(found.read, found.predicted, strict=True):
        for token, word, hidden in zip(found.tokens, read, predicted, strict=True):
            assert hidden or word == token
            assert not (hidden and token in ("[CLS]", "[SEP]"))
            kinds |= {"mask" if word == "[MASK]" else word == token} if hidden else set()
    assert seed or kinds == {"mask", True, False}


def test_inputs_of_tasks_are_those_of_the_papers() -> None:
    cute, small = ["my", "dog", "is", "cute"], ["my", "dog", "is", "small"]
    choices = [["he", "likes", "to", "[SEP]", word, "[SEP]"] for word in ("play", "park")]
    wanted = {
        "Classification": [[*cute, "[SEP]"]],
        "Entailment": [[*small, "[SEP]", *cute, "[SEP]"]],
        "Similarity": [[*small, "[SEP]", *cute, "[SEP]"], [*cute, "[SEP]", *small, "[SEP]"]],
        "MultipleChoice": choices,
    }
    for task, texts in training.TASKS.items():
        rows = wanted[type(task).__name__]
        assert training.task_rows(task, texts, encoder=False) == rows
        assert training.task_rows(task, texts, encoder=True) == [["[CLS]", *row] for row in rows]


def test_hinge_losses_are_flat_beyond_the_margin_and_the_circle_shrinks() -> None:
    found = training.losses()
    for index in (0, 40, 60, 77, 120):
        logit = float(found.logits[index])
        assert float(found.real[index]) == pytest.approx(max(0, 1 - logit))
        assert float(found.generated[index]) == pytest.approx(max(0, 1 + logit))
        assert float(found.generator[index]) == pytest.approx(-logit)
    unit, stretched, normalised = (circle.norm(dim=0) for circle in training.circles())
    largest = np.linalg.svd(np.array(training.WEIGHT))[1].max()
    assert unit.tolist() == pytest.approx([1] * len(unit))
    assert float(stretched.max()) == pytest.approx(largest, rel=1e-3)
    assert float(normalised.max()) == pytest.approx(1, rel=1e-3)


def test_every_figure_says_what_it_shows_and_names_its_own_files() -> None:
    found = descriptions()
    files = [find_figure(name).file for name in found]
    assert len(files) == len(set(files))
    assert all(summary.endswith(".") for summary in found.values())
