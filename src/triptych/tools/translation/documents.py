"""Documents of which the sentences are translated, and all else stays as it is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triptych.domains.options import counted
from triptych.domains.translation.domain import TranslationRequest
from triptych.domains.translation.inference import TranslationModel
from triptych.domains.translation.kept import Translator
from triptych.domains.translation.markup import Marked
from triptych.errors import UserError
from triptych.tools.translation.office import read_word
from triptych.tools.translation.pages import html_parts, html_text, read_html, read_markdown
from triptych.types import Progress

READERS = {
    ".html": read_html, ".htm": read_html, ".xhtml": read_html, ".md": read_markdown,
    ".markdown": read_markdown, ".docx": read_word,
}  # fmt: skip
"""Ends of the names of documents."""


def translate_html(model: TranslationModel, texts: Sequence[str], **options: Any) -> list[str]:
    """Return translations of HTML, whole pages or parts of them; UserError for a damaged one.

    options: as in `translate`; `keep` is true. progress: as in `search`, of each search.
    """
    try:
        every = [html_parts(text)[0] for text in texts]
    except ValueError as error:
        raise UserError(f"the HTML is damaged: {error}") from error
    blocks = [part for parts in every for part in parts if isinstance(part, Marked)]
    written = iter(map(html_text, translate_blocks(model, blocks, **options)))
    return [
        "".join(part if isinstance(part, str) else next(written) for part in parts)
        for parts in every
    ]


def translate_document(model: TranslationModel, path: str, **options: Any) -> tuple[bytes, str]:
    """Return the content of a translated file, and a sentence that counts its parts.

    path: of an .html, .md or .docx file; options: as in `translate`, `keep` is true. Raises
    UserError for a kind of file that is not read, and for a damaged one.
    """
    kind = Path(path).suffix.lower()
    if kind not in READERS:
        raise UserError(
            f"--document {path} is no {', '.join(READERS)} file, by the end of its name"
        )
    try:
        document = READERS[kind](Path(path).read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    content = document.write(translate_blocks(model, document.blocks, **options))
    parts = counted(len(document.blocks), "block of text", "blocks of text")
    others = ", ".join(f"{what} ({number})" for what, number in document.left_out.items())
    return content, f"{parts} translated" + (f"; left as they are: {others}" if others else "")


def translate_blocks(
    model: TranslationModel,
    blocks: Sequence[Marked],
    *,
    progress: Progress | None = None,
    **options: Any,
) -> list[Marked]:
    """Return the translations of blocks, sentence by sentence, with all tags."""
    request = TranslationRequest(**{**options, "keep": True})
    pairs = Translator.of(model, request, progress).marked(blocks, sentences=True)
    return [block.of(pair) for block, pair in zip(blocks, pairs, strict=True)]
