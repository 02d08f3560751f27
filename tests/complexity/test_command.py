"""`triptych complexity`: costs of whole models and the printed table."""

from __future__ import annotations

import pytest
import torch
from gpu.attention_cases import EXAMPLES, Example
from torch import nn

from triptych.cli.main import main
from triptych.core.attention.compressed import Compressed
from triptych.core.attention.local1d import Local1D
from triptych.core.layers import ReLU
from triptych.core.models.recurrent import recurrent_layers
from triptych.core.transformer import TransformerConfig
from triptych.core.universal import Universal
from triptych.tools.complexity.measure import model_cost, own_layers, width_and_heads
from triptych.training.engine.speed import training_flops

CONFIG = "configs/image/digits.yaml"
SMALL = ["--model.transformer.n_layers", "1"]


class Task(nn.Module):
    """Stands for a training module: the sum of a layer's output is the loss."""

    def __init__(self, layer: nn.Module, x: torch.Tensor) -> None:
        super().__init__()
        self.layer, self.x = layer, x

    def training_loss(self, batch):
        y = self.layer(self.x)
        return (y if isinstance(y, torch.Tensor) else y[0]).sum(), 7


def test_the_cost_of_a_stack_is_the_sum_of_its_products():
    config = TransformerConfig(2, 8, 2, dropout=0.0, feed_forward=ReLU(12))
    task = Task(config.encoder((5,)), torch.randn(3, 5, 8))
    cost = model_cost(task, None)
    of_layer = 8 * 5 * 8**2 + 4 * 5**2 * 8 + 2 * 2 * 5 * 8 * 12
    assert (cost.flops, cost.targets, cost.length) == (3 * 2 * of_layer, 7, 5)
    assert cost.parameters == sum(p.numel() for p in task.parameters())
    assert cost.kept_bytes > 3 * 5 * 8 * 4
    assert width_and_heads(task) == (8, 2)
    assert [kind.width for kind in own_layers(task).values()] == [8]


@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3)])
def test_recurrent_layers_count_their_real_positions(cell, gates):
    x = nn.utils.rnn.pack_sequence([torch.randn(4, 6), torch.randn(2, 6)])
    task = Task(recurrent_layers(cell, 6, 5, 1, 0.0), x)
    task.training_loss = lambda batch: (task.layer(x)[0].data.sum(), 6)
    cost = model_cost(task, None)
    assert cost.flops == 2 * (4 + 2) * gates * 5 * (6 + 5)
    assert cost.length == 4
    assert width_and_heads(task) == (5, 1)


def test_a_shared_block_counts_as_often_as_it_is_applied():
    one = TransformerConfig(1, 8, 2).encoder((5,))
    shared = TransformerConfig(3, 8, 2, depth=Universal()).encoder((5,))
    of_one, of_shared = (training_flops(m, 5) - training_flops(m) for m in (one, shared))
    assert of_shared == pytest.approx(3 * of_one)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: repr(example.config))
def test_a_layer_has_the_name_of_its_variant(example: Example):
    config = TransformerConfig(2, 8, 2, attention=example.config)
    stack = (config.decoder if example.causal else config.encoder)(example.shape)
    name = type(example.config).__name__
    assert list(own_layers(stack)) == [name if example.causal else f"{name}, both directions"]


def test_a_decoder_that_alternates_has_both_variants():
    config = TransformerConfig(2, 8, 2, attention=Local1D(), second_attention=Compressed())
    assert list(own_layers(config.decoder((16,)))) == ["Local1D", "Compressed"]


@pytest.mark.slow
def test_the_table_is_printed(capsys):
    assert main(["complexity", "image", "--config", CONFIG, *SMALL, "--length", "9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("self-attention") and " 9 " in line]
    assert [line for line in lines if line.startswith("Full ") and " 64 " in line]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--window", "1"], "window"),
        (["--length", "0"], "length"),
        (["--length", "10000000"], "length"),
        (["--kernel", "x"], "kernel"),
    ],
)
def test_bad_options_end_in_one_sentence(options, named, capsys):
    assert main(["complexity", "image", "--config", CONFIG, *options]) == 2
    error = capsys.readouterr().err
    assert named in error
    assert len(error.splitlines()) == 1


def test_a_settings_file_is_needed(capsys):
    assert main(["complexity", "image"]) == 2
    assert "--config" in capsys.readouterr().err
