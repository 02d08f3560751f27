"""Sequences that repeat a motif of three numbers, and the whole domain around them."""

from dataclasses import dataclass, field

import torch

from triptych.config.schema import from_plain
from triptych.core.embeddings import TokenEmbedding
from triptych.core.generation_order import raster
from triptych.core.heads import Categorical
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.transformer import TransformerConfig
from triptych.decoding.generate import generate
from triptych.decoding.sampling import Sampling
from triptych.domains.base import Domain, TrainedModel
from triptych.domains.options import SampleOptions
from triptych.training.checkpoint import load_weights
from triptych.training.data import FixedBatches, ResumableLoader, cut, shuffled_batches
from triptych.training.evaluate import Evaluation, sum_scores
from triptych.training.module import TrainingModule
from triptych.training.run_config import RunSettings

LENGTH, NUMBERS, ITEMS = 12, 5, 32


@dataclass(frozen=True)
class DataConfig:
    """Data of the toy."""

    batch_size: int = 32
    """Sequences per batch."""


@dataclass(frozen=True)
class ModelConfig:
    """Model of the toy."""

    transformer: TransformerConfig = field(default_factory=lambda: TransformerConfig(1, 32, 2))
    """Sizes and parts of the decoder."""

    def build(self) -> DecoderOnly:
        parts = self.transformer
        return DecoderOnly(
            TokenEmbedding(NUMBERS, parts.d_model),
            parts.positions.build(parts.d_model, raster((LENGTH,))),
            parts.decoder((LENGTH,)),
            Categorical().build(parts.d_model, levels=NUMBERS, channels=1),
            d_model=parts.d_model,
        )


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a toy run."""

    data: DataConfig = field(default_factory=DataConfig)
    """Sequences."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Decoder."""


def make_batch(items: list[int], generator: torch.Generator | None) -> torch.Tensor:
    """New motifs for training; the same ones, by item, for scoring: [B, L]."""
    seeded = [generator or torch.Generator().manual_seed(item) for item in items]
    motifs = torch.stack([torch.randint(NUMBERS, (3,), generator=each) for each in seeded])
    return motifs.repeat(1, LENGTH // 3)


def sums(model: DecoderOnly, batch: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"nats": model.nll(batch).double().sum(), "numbers": torch.tensor(batch.numel())}


def metrics(totals: dict[str, float]) -> dict[str, float]:
    return {"nats_per_number": totals["nats"] / totals["numbers"]}


class ToyModule(TrainingModule):
    domain, monitor = "toy_domain", "nats_per_number"

    def __init__(self, config: Config) -> None:
        super().__init__(config.model.build(), config, NUMBERS)

    def training_loss(self, batch):
        return self.model.nll(batch).mean(), batch.numel()

    def score(self, batch):
        return sums(self.model, batch)

    def metrics(self, totals):
        return metrics(totals)


class TrainedToy(TrainedModel):
    domain = "toy_domain"

    def evaluate(self, split="test", *, data=None, batch_size=None, limit=None, progress=None):
        count = limit or ITEMS
        batches = FixedBatches(cut(range(count), batch_size or ITEMS), make_batch)
        totals = sum_scores(self.model, lambda batch: sums(self.model, batch), batches, progress)
        return Evaluation(self.domain, split, metrics(totals), count)

    def write_samples(self, options, out, report) -> str:
        rows = generate(
            self.model,
            batch=options.count,
            length=LENGTH,
            sampling=Sampling(temperature=options.temperature),
            generator=torch.Generator().manual_seed(options.seed),
            progress=report("sampled numbers"),
        )
        path = out.write("numbers.txt", "".join(f"{row}\n" for row in rows.tolist()).encode())
        return f"{options.count} sequences in {path}"


class ToyDomain(Domain):
    name = "toy_domain"
    sample_options = SampleOptions

    def config_class(self):
        return Config

    def prepare(self, config, vocabulary=None):
        torch.manual_seed(config.run.seed)
        plan = shuffled_batches(10 * ITEMS, config.data.batch_size)
        train = ResumableLoader(10 * ITEMS, plan, make_batch, seed=config.run.seed)
        validation = FixedBatches(cut(range(ITEMS), ITEMS), make_batch)
        return ToyModule(config), train, validation

    def restore(self, checkpoint, device="auto"):
        config = from_plain(Config, checkpoint["triptych"]["config"])
        model = config.model.build()
        load_weights(model, checkpoint["state_dict"])
        trained = TrainedToy(config, model)
        trained.header = checkpoint["triptych"]
        return trained


DOMAIN = ToyDomain()
