"""`triptych sample music`: new pieces, or continuations, as MIDI, sound and piano-roll picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from triptych.cli.options import (
    ProgressOnStderr,
    check_checkpoint,
    check_file,
    check_output,
    counted,
    open_model,
    read_options,
)
from triptych.cli.shared_options import SamplingOptions


@dataclass(frozen=True, kw_only=True)
class Options(SamplingOptions):
    """Options of `triptych sample music`."""

    out: str
    """Folder for one .mid, .wav and .png a piece; made where it is missing."""
    count: int = 2
    """Pieces to make."""
    primer: str | None = None
    """MIDI file to continue; null to begin from nothing."""
    seconds: float | None = None
    """Length of new music in seconds, the primer not counted; give this or length."""
    length: int | None = None
    """Length of new music in the model's own unit, sixteenths of chorales or events of
    performances; give this or seconds, or neither for 30 seconds."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that cannot be drawn with."""
        super().__post_init__()
        if self.seconds is not None and self.length is not None:
            raise ValueError("seconds and length were both given; expected one of them")
        for name in ("seconds", "length"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")


def run(arguments: Sequence[str]) -> int:
    """Sample pieces and say where they are; raises UserError for what a user got wrong."""
    options, flags = read_options(
        Options,
        arguments,
        prog="triptych sample music",
        description="Sample pieces. Existing files are kept unless --overwrite is given.",
        flags={"overwrite": "Replace files of the same names in the output folder."},
    )
    path = check_checkpoint(options.checkpoint)
    primer = None
    if options.primer is not None:
        primer = check_file(options.primer, "primer", expected="a MIDI file")
    stems = [f"piece-{index:02d}" for index in range(options.count)]
    names = [f"{stem}.{ending}" for stem in stems for ending in ("mid", "wav", "png")]
    out = check_output(options.out, names, overwrite="overwrite" in flags)

    from triptych.domains.music import render  # after the checks: it imports matplotlib

    model, _ = open_model(path, domain="music", device=options.device)
    # A performance ends where the model or the seconds end it, mostly long before so many events.
    progress = ProgressOnStderr("drawn tokens", at_most=model.task.representation.end is not None)
    pieces = model.with_dtype(options.dtype).sample(
        options.count,
        seconds=options.seconds,
        length=options.length,
        primer=primer,
        progress=progress,
        **options.drawing(),
    )
    progress.end()
    out.mkdir(parents=True, exist_ok=True)
    synthesiser = ""
    for stem, piece in zip(stems, pieces, strict=True):
        render.write_midi(piece, out / f"{stem}.mid")
        synthesiser = render.write_wav(piece, out / f"{stem}.wav")
        render.write_piano_roll(piece, out / f"{stem}.png")
    print(
        f"{counted(options.count, 'piece', 'pieces')} (.mid, .wav, .png) in {out}; "
        f"sound by {synthesiser}",
        file=sys.stderr,
    )
    return 0
