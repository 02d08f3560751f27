"""What serves a model, made by the function that its domain names, and bodies of requests."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field


class TranslateRequest(BaseModel):
    """Body of POST /translate; other fields of LibreTranslate's, such as api_key, are ignored."""

    q: str | list[str]
    source: str = "auto"
    target: str
    format: str = Field("text", pattern="^(text|html)$")
    alternatives: int = Field(0, ge=0)
    model: str | None = None

    def fits(self, model: str, sources: list[str], target: str) -> bool:
        """Return whether a model may serve the request; its name and languages."""
        named = self.model in (None, model)
        return named and self.target == target and self.source in ("auto", *sources)


class SampleRequest(BaseModel):
    """Body of POST /sample; fields are called as the options of `triptych sample`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: str | None = None
    domain: str | None = None
    count: int = Field(1, ge=1)
    seed: int = Field(0, ge=0, lt=2**63)
    temperature: float = Field(1.0, ge=0)
    top_k: int | None = Field(None, ge=1)
    top_p: float | None = Field(None, gt=0, le=1)
    label: int | None = None
    seconds: float | None = Field(None, gt=0, le=120)
    prompt: str | None = None
    length: int | None = Field(None, ge=1)

    def fits(self, model: str, domain: str) -> bool:
        """Return whether a model may serve the request; its name and domain."""
        return self.model in (None, model) and self.domain in (None, domain)


class Translator(NamedTuple):
    """Model that translates."""

    sources: list[str]
    """Codes of the languages that it reads."""
    target: str
    """Code of the language that it writes."""
    translate: Callable[..., list[list[str]]]
    """Takes lines and the keywords beam, n_best, batch_size and progress; returns the translations
    of each line, best first."""
    translate_html: Callable[..., list[list[str]]] | None = None
    """As `translate`, of texts in HTML and without n_best; None where nothing aligns words."""


class Sampler(NamedTuple):
    """Model that samples."""

    media_type: str
    """Of a sample; samples other than text are in base64."""
    fields: set[str]
    """Fields of `SampleRequest` that not all models have."""
    sample: Callable[..., list[str]]
    """Takes the fields of a request and progress; returns the samples as JSON has them."""


def translation(model: Any) -> Translator:
    """Return what serves a `TranslationModel`."""

    def translate(lines: list[str], **options: Any) -> list[list[str]]:
        found = model.translate(lines, **options)
        return [[best] if isinstance(best, str) else best for best in found]

    def translate_html(texts: list[str], **options: Any) -> list[list[str]]:
        from triptych.tools.translation import documents

        return [[one] for one in documents.translate_html(model, texts, **options)]

    settings = model.settings
    return Translator(
        settings.source_languages, settings.target_language, translate, translate_html
    )


def image(model: Any) -> Sampler:
    """Return what serves an `ImageModel`; UserError for one that needs small images."""
    from triptych.domains.pictures.render import png_content, to_bytes

    model.needs_no_small_image("serving")

    def sample(**options: Any) -> list[str]:
        images = to_bytes(model.sample(**options), model.full_model.levels)
        return [b64encode(png_content(each)).decode() for each in images]

    return Sampler("image/png", {"label"}, sample)


def music(model: Any) -> Sampler:
    """Return what serves a `MusicModel`; UserError for one that needs a melody."""
    model.check_melody(given=False)

    def sample(**options: Any) -> list[str]:
        return [b64encode(made.midi).decode() for made in model.sample(**options)]

    return Sampler("audio/midi", {"seconds"}, sample)


def language(model: Any) -> Sampler:
    """Return what serves a `LanguageModel`."""
    return Sampler("text/plain", {"prompt", "length"}, model.sample)
