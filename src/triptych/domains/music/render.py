"""A piece as files to play, hear and see: .mid, .wav, .png."""

from triptych.domains.music.audio import write_wav
from triptych.domains.music.midi import write_midi
from triptych.domains.music.pianoroll import write_piano_roll

__all__ = ["write_midi", "write_piano_roll", "write_wav"]
