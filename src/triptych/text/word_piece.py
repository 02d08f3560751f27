"""WordPiece (Schuster and Nakajima 2012), the tokenizer of BERT."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from triptych.text.tokenizer import TextTokenizer, TokenizerConfig

CONTINUES = "##"
"""Prefix of a piece that continues a word."""
LONGEST = 500
"""Letters of a word that is encoded whole, as those of scripts without spaces; a longer one is cut,
because the time to encode a word grows faster than its length."""
ACCENTS = Regex(r"(?<=[\p{Latin}\p{Greek}])\p{Mn}+")
"""Marks that are accents; in other scripts, such as Hindi's or Thai's, they are letters."""
UNKNOWN = "[UNK]"
"""Name and text of the token for every word that the vocabulary cannot write."""


@dataclass(frozen=True)
class WordPiece(TokenizerConfig):
    """Frequent words are one token, rare ones several; a word with unknown letters is [UNK].

    Text is split at spaces and around punctuation and Chinese characters, as by BERT, so that
    decoding gives the words back and not the number of spaces.
    """

    lowercase: bool = True
    """Whether capital letters, and accents of Latin and Greek letters, are removed."""

    def build(self, lines: Iterable[str], size: int, specials: Sequence[str]) -> TextTokenizer:
        lines, size = list(lines), size - len(specials)
        # The library numbers letters that continue a word in a random order, which also decides
        # between equally frequent pieces; named beforehand, they keep their order.
        letters = [name for name in self._learn(lines, 0, []) if name.startswith(CONTINUES)]
        ids = self._learn(lines, size, sorted(letters))
        # Made anew, as the library would read the characters "[UNK]" as an added token.
        return TextTokenizer(self._tokenizer(ids), specials)

    def _learn(self, lines: list[str], size: int, first: list[str]) -> dict[str, int]:
        """Return the ids of the pieces; the first ones are UNKNOWN and those of `first`."""
        learner = self._tokenizer({})
        trainer = trainers.WordPieceTrainer(
            vocab_size=size,
            limit_alphabet=max(1000, size // 2),
            special_tokens=[UNKNOWN, *first],
            continuing_subword_prefix=CONTINUES,
            show_progress=False,
        )
        learner.train_from_iterator(lines, trainer)
        return learner.get_vocab()

    def _tokenizer(self, ids: dict[str, int]) -> Tokenizer:
        model = models.WordPiece(ids, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST)
        tokenizer = Tokenizer(model)
        # Accents are removed from decomposed letters; NFC puts those of Korean together again.
        bert = normalizers.BertNormalizer(lowercase=self.lowercase, strip_accents=False)
        plain = [normalizers.NFD(), normalizers.Replace(ACCENTS, "")] if self.lowercase else []
        tokenizer.normalizer = normalizers.Sequence([bert, *plain, normalizers.NFC()])
        cut = pre_tokenizers.Split(Regex(rf"[\s\S]{{1,{LONGEST}}}"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), cut])
        tokenizer.decoder = decoders.WordPiece(prefix=CONTINUES, cleanup=True)
        return tokenizer
