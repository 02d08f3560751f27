"""`triptych complexity`: costs of whole models."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from triptych.cli.main import main
from triptych.core.layers import ReLU
from triptych.core.models.recurrent import recurrent_layers
from triptych.core.transformer import TransformerConfig
from triptych.core.universal import Universal
from triptych.tools.complexity import flop_counter, model_cost
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


@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3)])
def test_recurrent_layers_count_their_real_positions(cell, gates):
    x = nn.utils.rnn.pack_sequence([torch.randn(4, 6), torch.randn(2, 6)])
    task = Task(recurrent_layers(cell, 6, 5, 1, 0.0), x)
    task.training_loss = lambda batch: (task.layer(x)[0].data.sum(), 6)
    cost = model_cost(task, None)
    assert cost.flops == 2 * (4 + 2) * gates * 5 * (6 + 5)
    assert cost.length == 4


@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3)])
@pytest.mark.parametrize("kernel", ["of the CPU", "of cuDNN"])
def test_kernels_of_whole_recurrent_layers_are_counted(cell, gates, kernel):
    layers, x = recurrent_layers(cell, 6, 5, 2, 0.0), torch.randn(3, 4, 6)
    with flop_counter() as counter:
        if kernel == "of the CPU":
            layers(x)
        else:  # as PyTorch calls it on a GPU
            weights, mode = [w.to("meta") for w in layers.parameters()], {"lstm": 2, "gru": 3}[cell]
            state = torch.zeros(2, 3, 5, device="meta")
            sizes = (mode, 5, 0, 2, True, 0.0, False, False, [], None)
            torch.ops.aten._cudnn_rnn(x.to("meta"), weights, 4, None, state, state, *sizes)
    assert counter.get_total_flops() == 2 * 3 * 4 * gates * 5 * (6 + 5 + 5 + 5)


def test_a_shared_block_counts_as_often_as_it_is_applied():
    one = TransformerConfig(1, 8, 2).encoder((5,))
    shared = TransformerConfig(3, 8, 2, depth=Universal()).encoder((5,))
    of_one, of_shared = (training_flops(m, 5) - training_flops(m) for m in (one, shared))
    assert of_shared == pytest.approx(3 * of_one)


def test_the_costs_are_printed(capsys):
    assert main(["complexity", "image", "--config", CONFIG, *SMALL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "sequences of at most 64:" in lines[1]


def test_a_settings_file_is_needed(capsys):
    assert main(["complexity", "image"]) == 2
    assert "--config" in capsys.readouterr().err
