"""Domain of music: what its commands do and write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from triptych.domains.base import Domain, FolderCommand, ProgressFactory
from triptych.domains.files import OutputFolder
from triptych.domains.music.options import (
    DRAWING,
    NUMBERS,
    PIECE,
    MusicAttentionOptions,
    MusicEvaluateOptions,
    MusicSampleOptions,
)
from triptych.domains.options import counted

if TYPE_CHECKING:
    from triptych.domains.music.inference import MusicModel
    from triptych.training.data import FixedBatches, ResumableLoader
    from triptych.training.module import TrainingModule


def write_samples(
    model: MusicModel, options: MusicSampleOptions, out: OutputFolder, report: ProgressFactory
) -> str:
    """Sample pieces and write each as MIDI, sound and piano roll."""
    from triptych.domains.music.midi import write_midi
    from triptych.domains.music.render import write_piano_roll, write_wav

    # A performance ends where the model or the seconds end it, mostly long before the most events.
    at_most = model.tokenizer.end is not None
    pieces = model.sample(
        options.count,
        seconds=options.seconds,
        length=options.length,
        primer=options.primer,
        progress=report("sampled tokens", at_most=at_most),
        **options.settings(),
    )
    synthesiser = ""
    for index, piece in enumerate(pieces):
        path = out.path / f"piece-{index:02d}"
        write_midi(piece, path.with_suffix(".mid"))
        synthesiser = write_wav(piece, path.with_suffix(".wav"))
        write_piano_roll(piece, path.with_suffix(".png"))
    made = counted(options.count, "piece", "pieces")
    return f"{made} (.mid, .wav, .png) in {out}; sound by {synthesiser}"


def write_attention(
    model: MusicModel, options: MusicAttentionOptions, out: OutputFolder, report: ProgressFactory
) -> str:
    """Write the attention weights that predicted one note of a piece."""
    from triptych.domains.music.midi import midi_bytes
    from triptych.domains.music.render import attention_png

    found = model.attention(
        primer=options.primer,
        seconds=options.seconds,
        seed=options.seed,
        at=options.at,
        layer=options.layer,
        head=options.head,
    )
    midi = model.tokenizer.to_midi(found.tokens)
    out.write(DRAWING, attention_png(found, midi))
    out.write(PIECE, midi_bytes(midi))
    window = found.tokens[found.first : found.query + 1]
    numbers = {
        "layer": found.layer,
        "head": found.head,
        "query": found.query,
        "first": found.first,
        "tokens": [model.tokenizer.symbols[token] for token in window],
        "seconds": found.seconds.tolist(),
        "weights": found.weights.tolist(),
        "heads": found.heads.tolist(),
    }
    out.write_json(NUMBERS, numbers)
    return (
        f"{DRAWING}, {NUMBERS} and {PIECE} in {out}: the note at {found.seconds[-1]:.2f} s, "
        f"token {found.query} of {len(found.tokens)}"
    )


class MusicDomain(Domain):
    """Music as sequences of events or of notes on a grid."""

    name: ClassVar[str] = "music"
    evaluate_options = MusicEvaluateOptions
    sample = FolderCommand(MusicSampleOptions, "Sample pieces of music.", write_samples)
    attention = FolderCommand(
        MusicAttentionOptions,
        "Draw the attention weights that predicted a note: arcs over the piano roll, and each head "
        "over time.",
        write_attention,
    )

    def config_class(self) -> type[Any]:
        from triptych.domains.music.config import Config

        return Config

    def prepare(
        self, config: Any, vocabulary: Any = None
    ) -> tuple[TrainingModule, ResumableLoader, FixedBatches]:
        from triptych.domains.music.task import prepare

        return prepare(config, vocabulary)

    def restore(self, checkpoint: dict[str, Any], device: str = "auto") -> MusicModel:
        from triptych.domains.music.inference import restore

        return restore(checkpoint, device=device)


DOMAIN = MusicDomain()
