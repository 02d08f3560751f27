"""Training on music: the loss, honest nats per token and per note, sample pieces."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pretty_midi
import torch
from torch import Tensor

from triptych.config.schema import from_plain, to_plain
from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.sampling import Sampling
from triptych.decoding.speculative import Draft
from triptych.domains.music import render
from triptych.domains.music.baselines import ladder
from triptych.domains.music.data import (
    PADDING,
    Batch,
    DataConfig,
    crop_lengths,
    evaluation_loader,
    training_loader,
)
from triptych.domains.music.model import ModelConfig
from triptych.domains.music.representation import REPRESENTATIONS, Representation
from triptych.domains.music.sampling import Progress, extend
from triptych.errors import UserError
from triptych.training.data import FixedBatches, ResumableLoader, generator_for, padding_share
from triptych.training.loggers.media import Media
from triptych.training.metric_sums import in_double
from triptych.training.module import TrainingModule
from triptych.training.optim import OptimConfig
from triptych.training.run_settings import RunConfig

MOST_DRAFTED = 4
"""Pieces at a time up to which guessing held notes pays."""


@dataclass(frozen=True)
class Config:
    """All settings of a run on music."""

    data: DataConfig = field(default_factory=DataConfig)
    """Pieces, windows and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Sizes, attention and positions."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimiser and learning rate."""
    run: RunConfig = field(default_factory=RunConfig)
    """Name, place and seed of the run."""


class MusicTask(TrainingModule):
    """An autoregressive model of music, scored in nats per token."""

    domain: ClassVar[str] = "music"
    monitor: ClassVar[str] = "nats_per_token"
    model: DecoderOnly

    def __init__(self, config: Config) -> None:
        representation = config.data.source.representation
        model = config.model.build(representation, length=config.data.length)
        metadata = {
            "domain": self.domain,
            "config": to_plain(config),
            "vocabulary": vocabulary_of(representation),
        }
        super().__init__(
            model, config.optim, d_model=config.model.transformer.d_model, metadata=metadata
        )
        self.config = config
        self.representation: Representation = representation

    def training_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Mean nats per scored token, and their number."""
        count = batch.scored.sum()
        return self.nll(batch).sum() / count, count

    def score(self, batch: Batch) -> dict[str, Tensor]:
        """Sums of nats, of scored tokens and of notes that begin at them."""
        return self.sums(batch, self.nll(batch))

    def sums(self, batch: Batch, nats: Tensor) -> dict[str, Tensor]:
        """What `score` gives, from the nats of a batch."""
        return {
            "nats": in_double(nats).sum(),
            "tokens": in_double(batch.scored.sum()),
            "notes": in_double(batch.onsets.sum()),
        }

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Nats per token, and all nats per note, over everything that was scored."""
        return {
            "nats_per_token": totals["nats"] / totals["tokens"],
            "nats_per_note": totals["nats"] / max(totals["notes"], 1.0),
        }

    def draw(
        self,
        count: int,
        *,
        seconds: float | None = None,
        length: int | None = None,
        prompt: np.ndarray | None = None,
        seed: int = 0,
        sampling: Sampling | None = None,
        progress: Progress | None = None,
        compile: bool = False,
    ) -> Tensor:
        """Sample pieces as tokens, each beginning with the prompt's: int64 [count, T].

        See `MusicModel.sample`; behind the end of a performance stands only its end.
        """
        kind, data = self.representation, self.config.data
        first = np.zeros(0, dtype=np.int64) if prompt is None else prompt
        prompts = torch.from_numpy(first).to(self.device).expand(count, -1)
        return extend(
            self.model,
            prompts,
            n_new=kind.n_tokens(seconds=seconds, length=length),
            length=data.length,
            context=data.context,
            sampling=sampling or Sampling(),
            generator=torch.Generator(self.device).manual_seed(seed),
            end=kind.end,
            forbid=kind.forbid(count, seconds=seconds, n_prompt=len(first)),
            progress=progress,
            compile=compile,
            draft=None if compile else self._draft(count),
        )

    def _draft(self, count: int) -> Draft | None:
        """Guess held notes where that pays: the same pieces in less time.

        Tokens a second with a draft over those without (chorales, d 256, CPU): one piece 1.85, two
        2.0, three 1.6, four 1.2, six 1.0, eight 0.95, for all rows wait for the worst guess.
        """
        lag = self.representation.repeats_after
        if lag is None or count > MOST_DRAFTED or self.device.type != "cpu":
            return None
        return Draft(lag)

    def to_midi(
        self, tokens: Tensor, *, seconds: float | None, n_prompt: int = 0
    ) -> list[pretty_midi.PrettyMIDI]:
        """What `draw` drew as music; seconds: as they were given there."""
        kind = self.representation
        return [
            kind.to_midi(kind.within(row, seconds=seconds, n_prompt=n_prompt))
            for row in tokens.cpu().numpy()
        ]

    def log_samples(self, folder: Path) -> list[Media]:
        """Sampled pieces at temperature 1, from the same random numbers every time."""
        data = self.config.data
        if not data.samples:
            return []
        tokens = self.draw(data.samples, seconds=data.sample_seconds, seed=self.config.run.seed)
        pieces = self.to_midi(tokens, seconds=data.sample_seconds)
        media = []
        for number, midi in enumerate(pieces):
            name = f"piece-{number:02d}"
            path = render.write_midi(midi, folder / f"{name}.mid")
            media.append(Media("midi", name, path=path))
            path = folder / f"{name}.wav"
            caption = f"played by {render.write_wav(midi, path)}"
            media.append(Media("audio", f"{name}-sound", path=path, caption=caption))
            path = render.write_piano_roll(midi, folder / f"{name}.png")
            media.append(Media("image", f"{name}-roll", path=path, caption="temperature 1"))
        return media

    def nll(self, batch: Batch) -> Tensor:
        """Nats of every position, 0 where it is not scored: [B, L]."""
        # Padding stands behind the music, where no causal model looks; any id does for its input.
        values = batch.values.masked_fill(batch.values == PADDING, 0)
        nats = self.model.nll(values, previous=batch.previous)  # [B, L]
        return nats.masked_fill(~batch.scored, 0.0)


def vocabulary_of(representation: Representation) -> dict[str, Any]:
    """What a checkpoint says of its symbols."""
    return {"representation": representation.name, "symbols": list(representation.vocabulary)}


def prepare(
    config: Config, vocabulary: dict[str, Any] | None = None
) -> tuple[MusicTask, ResumableLoader, FixedBatches]:
    """Read the pieces, build the model and both loaders.

    vocabulary: that of the weights which the run starts with. Raises UserError for missing or
    damaged data and for settings or weights that do not fit it.
    """
    data = config.data
    kind = data.source.representation
    if vocabulary is not None and vocabulary != vocabulary_of(kind):
        raise UserError(
            f"the music is written as {kind.name!r} with {len(kind.vocabulary)} symbols; the "
            f"weights that the run starts with read {vocabulary['representation']!r} with "
            f"{len(vocabulary['symbols'])}"
        )
    torch.manual_seed(config.run.seed)
    try:  # before the pieces are read, which takes minutes
        task = MusicTask(config)
    except ValueError as error:  # a variant that cannot serve this length says so in a sentence
        raise UserError(f"the model does not fit the music: {error}") from error
    train, validation = data.source.load("train"), data.source.load("validation")
    written = [kind.tokens(piece) for piece in train]
    steps = ladder(kind, written, [kind.tokens(piece) for piece in validation])
    print(
        f"{len(train):,} pieces ({sum(map(len, written)):,} tokens) to train and "
        f"{len(validation):,} to validate; to beat in nats per token: "
        + ", ".join(f"{name} {nats:.3f}" for name, nats in steps.items()),
        file=sys.stderr,
    )
    loader = training_loader(train, data, seed=config.run.seed)
    lengths = crop_lengths(train, data, generator_for(config.run.seed))
    share = padding_share(loader.batches_of(0), lengths)
    if share >= 0.0005:  # pieces shorter than the window; what is varied differs by a little
        print(f"about {share:.1%} of the tokens in a batch are padding", file=sys.stderr)
    return task, loader, evaluation_loader(validation, data, batch_size=data.batch_size)


def restore(checkpoint: dict[str, Any]) -> MusicTask:
    """The task of a checkpoint, without its training data."""
    header = checkpoint["triptych"]
    vocabulary = header["vocabulary"]
    kind = REPRESENTATIONS.get(vocabulary["representation"])
    if kind is None or list(kind.vocabulary) != vocabulary["symbols"]:
        raise UserError(
            f"the checkpoint writes music as {vocabulary['representation']!r} with "
            f"{len(vocabulary['symbols'])} symbols, which this version of Triptych does not have."
        )
    task = MusicTask(from_plain(Config, header["config"]))
    task.load_state_dict(checkpoint["state_dict"])
    return task
