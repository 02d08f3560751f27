"""All settings of a run on text."""

from dataclasses import dataclass, field

from triptych.domains.language.model import N_SPECIALS, LanguageSettings, ModelConfig, Task
from triptych.domains.language.sources import Source, TextFiles
from triptych.domains.language.tasks.masked import MaskedTokens
from triptych.text.tokenizer import TokenizerConfig
from triptych.text.word_piece import WordPiece
from triptych.training.run.settings import RunSettings
from triptych.types import at_least

MIN_LENGTH = 8
"""Smallest length of an example: two segments of two tokens each and the special ids."""


@dataclass(frozen=True)
class DataConfig:
    """Source of the text, vocabulary and batches."""

    source: Source = field(default_factory=TextFiles)
    """Source of the text, by class path: TextFiles; for a task with labels TabSeparated."""
    tokenizer: TokenizerConfig = field(default_factory=WordPiece)
    """Kind of tokens, by class path: WordPiece."""
    vocabulary_size: int = 8_000
    """Maximum size of the vocabulary in tokens, special ids included; a small text gives fewer."""
    max_tokens: int = 4_096
    """Maximum size of a batch in tokens, padding included; each process has its own batch."""
    max_length: int = 128
    """Maximum length of an example in tokens, special ids included; longer documents are cut."""

    def __post_init__(self) -> None:
        at_least(self, N_SPECIALS + self.tokenizer.min_pieces, "vocabulary_size")
        if not MIN_LENGTH <= self.max_length <= self.max_tokens:
            raise ValueError(
                f"max_length is {self.max_length}; expected at least {MIN_LENGTH} tokens and at "
                f"most max_tokens {self.max_tokens}, so that the longest example fits into a batch"
            )


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a run on text."""

    data: DataConfig = field(default_factory=DataConfig)
    """Source of the text, vocabulary and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Sizes of the model."""
    task: Task = field(default_factory=MaskedTokens)
    """What is trained, by class path: MaskedTokens, NextToken, Classification, Entailment,
    Similarity, MultipleChoice or SpanAnswer."""

    def __post_init__(self) -> None:
        holds = self.task.reads.holds
        if not isinstance(self.data.source, self.task.reads):
            raise ValueError(
                f"task is {type(self.task).__name__}, which reads {holds}, and data.source is "
                f"{type(self.data.source).__name__}; expected a source of {holds}"
            )

    def model_settings(self) -> LanguageSettings:
        return LanguageSettings(self.model, self.task, max_length=self.data.max_length)
