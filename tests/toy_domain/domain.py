"""Sequences that repeat a motif of three numbers, and the whole domain around them."""

from dataclasses import dataclass, field

import torch

from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import raster
from triptych.core.transformer import TransformerConfig
from triptych.decoding.generate import generate
from triptych.decoding.sampling import SampleRequest
from triptych.domains.base import Domain, TrainedModel
from triptych.domains.options import SampleOptions
from triptych.files.progress import display
from triptych.training.engine.evaluate import Evaluation, sum_scores
from triptych.training.engine.module import TrainingModule
from triptych.training.loading.batches import shuffled_batches
from triptych.training.loading.loader import FixedBatches, ResumableLoader
from triptych.training.run.checkpoint import ModelSettings
from triptych.training.run.settings import RunSettings
from triptych.types import Sampling

LENGTH, NUMBERS, ITEMS = 12, 5, 32


@dataclass(frozen=True)
class ModelConfig:
    """Model of the toy."""

    transformer: TransformerConfig = field(default_factory=lambda: TransformerConfig(1, 32, 2))
    """Sizes and parts of the decoder."""


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a toy run."""

    data: int = ITEMS
    """Sequences per batch."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Decoder."""

    def model_settings(self):
        return ToySettings(self.model)


@dataclass(frozen=True)
class ToySettings(ModelSettings):
    """What use of a toy model needs."""

    model: ModelConfig
    """Decoder."""

    def build_model(self, vocabulary):
        parts = self.model.transformer
        positions = parts.positions.build(parts.d_model, raster((LENGTH,)))
        embedding = TokenEmbedding(vocabulary, parts.d_model)
        head = CategoricalHead(parts.d_model, vocabulary)
        decoder = parts.decoder((LENGTH,))
        return DecoderOnly(embedding, positions, decoder, head, d_model=parts.d_model)


def make_batch(items, generator):
    """New motifs for training; the same ones, by item, for scoring: [B, L]."""
    seeded = [generator or torch.Generator().manual_seed(item) for item in items]
    motifs = torch.stack([torch.randint(NUMBERS, (3,), generator=each) for each in seeded])
    return motifs.repeat(1, LENGTH // 3)


class Scores:
    """Sums of a batch and their ratio, for the training module and the trained model."""

    domain, monitor = "toy_domain", "nats_per_number"

    def score(self, batch):
        return {
            "nats": self.model.nll(batch).double().sum(),
            "numbers": torch.tensor(batch.numel()),
        }

    def metrics(self, totals):
        return {"nats_per_number": totals["nats"] / totals["numbers"]}


class ToyModule(Scores, TrainingModule):
    def training_loss(self, batch):
        return self.model.nll(batch).mean(), batch.numel()


class TrainedToy(Scores, TrainedModel):
    settings_class = ToySettings

    def score_split(self, request, progress=None):
        count = request.limit or ITEMS
        batches = FixedBatches([range(count)], make_batch)
        totals = sum_scores(self.model, self.score, batches, progress)
        return Evaluation(self.domain, request.split, self.metrics(totals), count)

    def write_samples(self, options, out):
        request = SampleRequest(
            options.count,
            LENGTH,
            sampling=Sampling(temperature=options.temperature),
            seed=options.seed,
            progress=display("numbers"),
        )
        rows = generate(self.model, request)
        path = out.write("numbers.txt", "".join(f"{row}\n" for row in rows.tolist()).encode())
        return f"{options.count} sequences in {path}"


def prepare(config, vocabulary=None):
    torch.manual_seed(config.run.seed)
    module = ToyModule(config.build_model(NUMBERS), config, NUMBERS)
    plan = shuffled_batches(10 * ITEMS, config.data)
    train = ResumableLoader(10 * ITEMS, plan, make_batch, seed=config.run.seed)
    return module, train, FixedBatches([range(ITEMS)], make_batch)


class ToyDomain(Domain):
    name, sample_options, page = "toy_domain", SampleOptions, "toy_domain.page"
    limits = "Motifs of more than three numbers."


DOMAIN, restore = ToyDomain(), TrainedToy.restore
