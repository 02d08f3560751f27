"""Laws of CUDA in training, on fake tensors: an update and the sums of metrics never wait."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from gpu.fake_cuda import fake_cuda
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException

from triptych.core.layers import GELU
from triptych.core.transformer import TransformerConfig
from triptych.training.callbacks.ema import WeightAverage
from triptych.training.engine.evaluate import MetricSums
from triptych.training.engine.muon import MuonAdamW, hidden_matrices
from triptych.training.engine.optim import TargetWeights
from triptych.training.engine.speed import Throughput

N_LAYERS = 6


def decoder() -> nn.Module:
    config = TransformerConfig(n_layers=N_LAYERS, d_model=16, n_heads=2, feed_forward=GELU(32))
    return config.decoder((8,))


def with_gradients(model: nn.Module) -> nn.Module:
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return model


@torch.no_grad()
def test_muon_launches_by_shape_and_not_by_matrix() -> None:
    model = decoder()
    with fake_cuda(model) as launches:
        with_gradients(model)
        matrices = hidden_matrices(model)
        others = [{"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}]
        optimizer = MuonAdamW(matrices, others, weight_decay=0.1, lr=0.01, fused=True)
        optimizer.step()  # makes the buffers
        launches.by_name.clear()
        optimizer._step_matrices(optimizer.param_groups[0])
        shapes = {matrix.shape for matrix in matrices}
        assert len(matrices) == 4 * N_LAYERS
        assert launches.count <= 30 * len(shapes), launches.by_name


def test_the_average_of_the_weights_takes_few_launches() -> None:
    model = decoder()
    module = SimpleNamespace(named_parameters=model.named_parameters, whole_step=True)
    average = WeightAverage(0.9)
    with fake_cuda(model) as launches:
        average.on_fit_start(None, module)  # type: ignore[arg-type]
        launches.by_name.clear()
        average.on_train_batch_end(None, module)  # type: ignore[arg-type]
        assert launches.count <= 2, launches.by_name


def test_sums_of_losses_and_metrics_stay_on_the_device_until_they_are_read() -> None:
    model = decoder()
    with fake_cuda(model):
        with_gradients(model)
        nats = torch.zeros((), device="cuda")
        sums, throughput, weights = MetricSums(), Throughput(), TargetWeights()
        for _ in range(2):
            sums.add({"nats": nats, "tokens": torch.zeros((), dtype=torch.int64, device="cuda")})
            throughput.add(targets=nats, loss_sum=nats)
            weights.weight(nats, nats)
        weights.rescale(model.parameters())
        for read in (sums.read, throughput.loss):  # a planted wait
            with pytest.raises(DataDependentOutputException):
                read()
