"""All settings of a translation run."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from triptych.domains.translation.model import N_SPECIALS, ModelConfig, TranslationSettings
from triptych.domains.translation.sources import Corpus, Pair, ParallelText
from triptych.text.byte_level import BytePairs
from triptych.text.tables import read_columns
from triptych.text.tokenizer import TokenizerConfig
from triptych.training.run.settings import RunSettings
from triptych.types import Checked, NonNegativeInt, at_least


@dataclass(frozen=True)
class DataConfig(Checked):
    """Settings of the corpus, the vocabulary, the batches and the decoding in validation."""

    source: Corpus = field(default_factory=ParallelText)
    """Corpus, by class path: ParallelText or TabSeparated."""
    tokenizer: TokenizerConfig = field(default_factory=BytePairs)
    """Kind of tokens, by class path: BytePairs, Characters, Words or ReplacedCharacters."""
    additional_pairs: tuple[str, ...] = ()
    """Tab-separated files with the columns source and target, whose pairs are training pairs too,
    such as those of the recipe phrases."""
    vocabulary_size: int = 8_000
    """Maximum size of the vocabulary in tokens, special ids included, and 256 bytes for byte-level
    BPE; a small corpus gives fewer."""
    shared_vocabulary: bool = True
    """Whether one vocabulary is learnt from both languages together, or one from each."""
    max_tokens: int = 4_096
    """Maximum size of a batch in tokens, padding included, on the source side and on the target
    side; each process has its own batch."""
    max_length: int = 256
    """Maximum length of a training pair in tokens, end included, on either side; longer pairs are
    left out of training, and of nothing else."""
    validation_lines: NonNegativeInt = 200
    """Number of validation lines to translate after each validation, by greedy search, for BLEU,
    chrF and exact match; 0 for none. Nats per token always covers the whole split."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, N_SPECIALS + self.tokenizer.min_pieces, "vocabulary_size")
        if not 2 <= self.max_length <= self.max_tokens:
            raise ValueError(
                f"max_length is {self.max_length}; expected at least 2 tokens and at most "
                f"max_tokens {self.max_tokens}, so that the longest pair fits into a batch"
            )

    def more_pairs(self) -> Iterator[Pair]:
        """Yield the pairs of `additional_pairs`; UserError as `read_columns`."""
        for name in self.additional_pairs:
            columns = read_columns(Path(name).expanduser(), ("source", "target"))
            yield from ((source, target) for (source, target), _ in columns)


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a translation run."""

    data: DataConfig = field(default_factory=DataConfig)
    """Sentence pairs, vocabulary and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Sizes of the model and label smoothing."""

    def __post_init__(self) -> None:
        if self.model.share_embeddings == "all" and not self.data.shared_vocabulary:
            raise ValueError(
                "model.share_embeddings is all, which needs one vocabulary for both sides, and "
                "data.shared_vocabulary is false; expected share_embeddings target or none"
            )

    def model_settings(self) -> TranslationSettings:
        source = self.data.source
        return TranslationSettings(
            self.model,
            source.source_language.split("+"),
            source.target_language,
            summaries=source.targets == "summaries",
            max_length=self.data.max_length,
        )
