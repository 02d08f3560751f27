"""A tiny translation model that a few steps have taught something."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from number_tables import write_numbers

from triptych.core.layers import GELU
from triptych.core.transformer import TransformerConfig
from triptych.domains.translation.config import Config, DataConfig, ModelConfig
from triptych.domains.translation.task import TranslationTrainingModule, prepare
from triptych.training.engine.optim import Constant
from triptych.training.run.settings import OptimConfig


@pytest.fixture(scope="session")
def tiny_config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("numbers")
    return Config(
        data=DataConfig(
            source=write_numbers(folder, train_size=200, validation_size=30, test_size=40),
            vocabulary_size=320,
            max_tokens=512,
            max_length=64,
            validation_lines=10,
        ),
        model=ModelConfig(
            TransformerConfig(n_layers=1, d_model=32, n_heads=2, feed_forward=GELU(64), dropout=0.1)
        ),
        optim=OptimConfig(learning_rate=5e-3, schedule=Constant(warmup_steps=10)),
    )


@pytest.fixture(scope="session")
def teach() -> Callable[[Config, int], TranslationTrainingModule]:
    """Train for so many steps, without Lightning: (config, steps) -> task in eval mode."""

    def run(config: Config, steps: int) -> TranslationTrainingModule:
        task, loader, _ = prepare(config)
        optimizer = torch.optim.Adam(task.parameters(), lr=config.optim.learning_rate)
        task.train()
        while steps > 0:
            for batch in loader:
                loss, _ = task.training_loss(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps -= 1
                if steps == 0:
                    break
        return task.eval()

    return run


@pytest.fixture(scope="session")
def taught(
    tiny_config: Config, teach: Callable[[Config, int], TranslationTrainingModule]
) -> TranslationTrainingModule:
    torch.manual_seed(0)
    return teach(tiny_config, 60)
