"""Domain of music: what its commands do and write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from triptych.domains.base import Domain, Report, Verb
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
    model: MusicModel, options: MusicSampleOptions, out: OutputFolder, report: Report
) -> str:
    """Sample pieces and write each as MIDI, sound and piano roll."""
    from triptych.domains.music import render

    # A performance ends where the model or the seconds end it, mostly long before the most events.
    at_most = model.task.representation.end is not None
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
        render.write_midi(piece, path.with_suffix(".mid"))
        synthesiser = render.write_wav(piece, path.with_suffix(".wav"))
        render.write_piano_roll(piece, path.with_suffix(".png"))
    made = counted(options.count, "piece", "pieces")
    return f"{made} (.mid, .wav, .png) in {out}; sound by {synthesiser}"


def write_attention(
    model: MusicModel, options: MusicAttentionOptions, out: OutputFolder, report: Report
) -> str:
    """Write the attention weights that predicted one note of a piece."""
    from triptych.domains.music.attention import attend, check, query_at, tokens_of
    from triptych.domains.music.attention_picture import draw
    from triptych.domains.music.midi import midi_bytes

    task = model.task
    check(task, layer=options.layer, head=options.head)  # before a piece is sampled
    primer = None if options.primer is None else Path(options.primer)
    tokens = tokens_of(task, primer=primer, seconds=options.seconds, seed=options.seed)
    query = query_at(task, tokens, options.at)
    attended = attend(task, tokens, query, layer=options.layer, head=options.head)
    midi = task.representation.to_midi(tokens)
    out.write(DRAWING, draw(attended, midi))
    out.write(PIECE, midi_bytes(midi))
    vocabulary = task.representation.vocabulary
    numbers = {
        "layer": attended.layer,
        "head": attended.head,
        "query": attended.query,
        "first": attended.first,
        "tokens": [vocabulary[token] for token in tokens[attended.first : query + 1]],
        "seconds": attended.seconds.tolist(),
        "weights": attended.reads.tolist(),
        "heads": attended.heads.tolist(),
    }
    out.write_json(NUMBERS, numbers)
    return (
        f"{DRAWING}, {NUMBERS} and {PIECE} in {out}: the note at {attended.seconds[-1]:.2f} s, "
        f"token {query} of {len(tokens)}"
    )


class MusicDomain(Domain):
    """Music as sequences of events or of notes on a grid."""

    name: ClassVar[str] = "music"
    evaluate_options = MusicEvaluateOptions
    sample = Verb(MusicSampleOptions, "Sample pieces of music.", write_samples)
    attention = Verb(
        MusicAttentionOptions,
        "Draw the attention weights that predicted a note: arcs over the piano roll, and each head "
        "over time.",
        write_attention,
    )

    def config_class(self) -> type[Any]:
        from triptych.domains.music.task import Config

        return Config

    def prepare(
        self, config: Any, vocabulary: Any = None
    ) -> tuple[TrainingModule, ResumableLoader, FixedBatches]:
        from triptych.domains.music.task import prepare

        return prepare(config, vocabulary)

    def restore(self, checkpoint: dict[str, Any], device: str = "auto") -> MusicModel:
        from triptych.domains.music.inference import load

        return load(checkpoint, device=device)


DOMAIN = MusicDomain()
