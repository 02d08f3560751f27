"""Documents translated with their layout: what is no text stays, byte by byte."""

from __future__ import annotations

import io
import random
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triptych.domains.translation.domain import TranslationRequest
from triptych.domains.translation.kept import Translator
from triptych.domains.translation.markup import Pair, Word
from triptych.domains.translation.terms import Terms
from triptych.errors import UserError
from triptych.tools.translation import documents
from triptych.tools.translation.documents import translate_document, translate_html
from triptych.tools.translation.pages import html_parts, html_text, read_html, read_markdown

TOKEN = re.compile(r"\w+|[^\w\s]")


class Shouting(Translator):
    """Translates into capitals, a part at a time, and notes the parts; code is no text."""

    seen: list[str]

    def _parts(self, texts: Sequence[str], terms: Sequence[Terms]) -> list[Pair]:
        self.seen.extend(texts)
        words = [[Word(*m.span(), m.start()) for m in TOKEN.finditer(text)] for text in texts]
        return [Pair(text, text.upper(), each) for text, each in zip(texts, words, strict=True)]


@pytest.fixture
def shouting(monkeypatch: pytest.MonkeyPatch) -> Shouting:
    settings = SimpleNamespace(target_language="de")
    model: Any = SimpleNamespace(name_unread=lambda lines: None, settings=settings)
    translator = Shouting(model, TranslationRequest(keep=True), Terms({}))
    object.__setattr__(translator, "seen", [])
    monkeypatch.setattr(documents, "Translator", SimpleNamespace(of=lambda model, *_: model))
    return translator


PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>a &amp; b</title>
<style>p > b { c: d; }</style><script>if (a < b && c) { w("<p>e</p>"); }</script></head>
<body><h1 class="x">f <em>g</em></h1>
  <p>
    h <b>i</b> <a href="https://e.org/?a=1&amp;b=2">j k</a>.  L
    m.<br>N <img src="a.png" alt="o"> p <code>q <b>r</b></code>s&nbsp;t.
  </p><!-- u -->
  <ul><li>v<li>w <span translate="no">x</span> y</ul><pre>z
  z</pre><div translate="no"><div>a</div> b</div>1 &lt; 2 <svg><text>c</text></svg>
</body></html>
"""
SHOUTED = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>A &amp; B</title>
<style>p > b { c: d; }</style><script>if (a < b && c) { w("<p>e</p>"); }</script></head>
<body><h1 class="x">F <em>G</em></h1>
  <p>
    H <b>I</b> <a href="https://e.org/?a=1&amp;b=2">J K</a>. L M.<br>N <img src="a.png" alt="o"> P \
<code>q <b>r</b></code>S\u00a0T.
  </p><!-- u -->
  <ul><li>V<li>W <span translate="no">x</span> Y</ul><pre>z
  z</pre><div translate="no"><div>a</div> b</div>1 &lt; 2 <svg><text>c</text></svg>
</body></html>
"""


def test_a_page_keeps_all_but_its_text(shouting: Shouting, tmp_path: Path) -> None:
    (tmp_path / "a.HTML").write_text(PAGE, encoding="utf-8")
    content, sentence = translate_document(shouting, str(tmp_path / "a.HTML"))
    assert content.decode() == SHOUTED
    assert "h i j k." in shouting.seen
    assert "L m." in shouting.seen
    assert sentence == (
        "5 blocks of text translated; left as they are: style sheets (1), scripts (1), "
        "preformatted texts (1), parts with translate=no (1)"
    )


def soup(draw: random.Random) -> str:
    parts = ["a b", "x &amp; y", "<b>", "</b>", '<a href="&amp;">', "</a>", "<p>", "</p>", "<br>",
             "<img src='x>y'>", "<!-- <p> -->", "<code>a<b>&lt;</code>", "<pre> <code></pre>", " ",
             "<script><p></script>", "é.", "< 5", "<div translate=no>a<div></div></div>", "\n<hr/>",
             "<svg/>", "1", "👩‍🎓", "<?x?>", "</div>"]  # fmt: skip
    return "".join(draw.choices(parts, k=draw.randrange(1, 14)))


def test_any_html_without_a_change_of_its_text_is_the_same() -> None:
    draw, blocks = random.Random(0), 0
    for _ in range(3000):
        text = soup(draw)
        parts, _ = html_parts(text)
        found = "".join(part if isinstance(part, str) else html_text(part) for part in parts)
        text = re.sub(r"<(?= 5)", "&lt;", text) if "<" in text else text
        # In text white space is one space, and < is written as &lt;.
        assert re.sub(r"\s+", " ", found.replace("< 5", "&lt; 5")) == re.sub(r"\s+", " ", text)
        blocks += sum(not isinstance(part, str) for part in parts)
    assert blocks > 1000


def test_tags_of_any_html_are_there_once(shouting: Shouting) -> None:
    draw = random.Random(1)
    texts = [soup(draw) for _ in range(500)]
    tag = r"<[a-z/!?][^<>]*>"
    for text, found in zip(texts, translate_html(shouting, texts), strict=True):
        assert sorted(re.findall(tag, found)) == sorted(re.findall(tag, text)), (text, found)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<p>a</p><b", "ends inside a tag"),
        (b'<p>a <a href="x', "ends inside a tag"),
        (b"<p>a<!-- b", "ends inside a tag"),
        (b"<p>a</p><pre>b", "ends inside <pre>"),
        (b"<p>\xff</p>", "byte 3 is not utf-8"),
        (b"<p>a\0</p>", "NUL bytes"),
        (b"<meta charset=klingon>", "klingon is unknown"),
    ],
)
def test_damaged_html_is_refused(
    shouting: Shouting, tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / "a.html").write_bytes(content)
    with pytest.raises(UserError, match=f"a.html is damaged: .*{says}"):
        translate_document(shouting, str(tmp_path / "a.html"))


def test_the_encoding_that_a_page_names(shouting: Shouting) -> None:
    document = read_html(b'<meta http-equiv=x content="text/html; charset=iso-8859-1"><p>\xfc</p>')
    assert [block.text for block in document.blocks] == ["ü"]
    found = document.write([document.blocks[0].of(Pair("ü", "ü한", []))])
    assert found.endswith(b"<p>\xfc&#54620;</p>")


MARKDOWN = """---
title: a
---

Setext *b*
==========

# c *d* #

e **f** [g h](https://e.org/a_b "i") j
k. L\\
m `n  o` ![p](q.png "r") s.

> t
> u

- v
  w
- [x] y
1. z_a_b \\* <https://e.org> [c][ref] <b>d</b>.

```python
e
```

    f

| g | h \\| i |
|---|:-:|
| `j` | **k** l |

<div>m</div>

[ref]: https://e.org/ref
"""
CAPITALS = """---
title: a
---

SETEXT *B*
==========

# C *D* #

E **F** [G H](https://e.org/a_b "i") J K. L\\
M `n  o` ![p](q.png "r") S.

> T U

- V W
- [x] Y
1. Z_A_B \\* <https://e.org> [C](https://e.org/ref) <b>D</b>.

```python
e
```

    f

| G | h \\| i |
|---|:-:|
| `j` | **K** L |

<div>m</div>

[ref]: https://e.org/ref
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_markdown_keeps_all_but_its_text(shouting: Shouting, tmp_path: Path, end: str) -> None:
    pytest.importorskip("markdown_it", reason="markdown-it-py is not installed (extra documents)")
    (tmp_path / "a.md").write_bytes(MARKDOWN.replace("\n", end).encode())
    content, sentence = translate_document(shouting, str(tmp_path / "a.md"))
    assert content.decode() == CAPITALS.replace("\n", end)
    assert sentence.startswith("9 blocks of text translated")
    for what in ("front matter (1)", "code blocks (2)", "HTML blocks (1)", "not found again (1)"):
        assert what in sentence


def test_text_never_becomes_markdown(shouting: Shouting) -> None:
    markdown_it = pytest.importorskip("markdown_it", reason="extra documents")
    draw = random.Random(0)
    parts = ["*", "_", "`", "[", "]", "(x)", "a", " ", "~~", "<b>", "&amp;", "#", "1.", "|", "\\"]
    for _ in range(1000):
        text = "a " + "".join(draw.choices(parts, k=6))
        document = read_markdown(b"- x")
        block = document.blocks[0].of(Pair("x", text, []))
        html = markdown_it.MarkdownIt("commonmark").render(document.write([block]).decode())
        shown = re.sub(
            r"&(lt|gt|amp|quot);", lambda m: {"lt": "<", "gt": ">", "amp": "&"}[m[1]], html
        )
        assert shown == f"<ul>\n<li>{text.strip()}</li>\n</ul>\n"


def test_markup_that_would_break_leaves_the_block(shouting: Shouting) -> None:
    pytest.importorskip("markdown_it", reason="extra documents")
    document = read_markdown(b"# a\n\n*b* c\n")
    first, second = document.blocks
    broken = second.of(Pair(second.text, "", []))
    assert document.write([first.of(Pair("a", "x", [])), broken]) == b"# x\n\n*b* c\n"
    assert document.left_out == {"blocks of text whose markup would break": 1}


W = 'xmlns:w="http://w" xmlns:r="http://r" xmlns:mc="http://mc" mc:Ignorable="w"'
BOLD = "<w:rPr><w:b/></w:rPr>"


def run(text: str, form: str = "") -> str:
    return f'<w:r>{form}<w:t xml:space="preserve">{text}</w:t></w:r>'


def word(body: str, **others: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", f"<w:document {W}>{body}</w:document>")
        archive.writestr("word/media/a.png", b"\x89PNG\xff")
        for name, part in others.items():
            archive.writestr(f"word/{name}.xml", f"<w:x {W}>{part}</w:x>")
    return out.getvalue()


def shout_word(shouting: Shouting, path: Path, content: bytes) -> tuple[dict[str, bytes], str]:
    path.write_bytes(content)
    content, sentence = translate_document(shouting, str(path))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}, sentence


def test_a_document_of_word_keeps_all_but_its_text(shouting: Shouting, tmp_path: Path) -> None:
    style, drawing = '<w:pPr><w:pStyle w:val="x"/></w:pPr>', "<w:r><w:drawing>{}</w:drawing></w:r>"
    box = f"<w:p>{run('inside')}</w:p>"
    link = f'<w:hyperlink r:id="r1">{run("a", BOLD)}{run(" link")}</w:hyperlink>'
    body = (
        f"<w:p>{style}{run('a b ')}{run('c', BOLD)}<w:proofErr/>{run('d', BOLD)}{run(' e')}</w:p>"
        f"<w:p>{run('f. ')}<w:r><w:br/></w:r>{run('G ')}{link}{drawing.format(box)}{run('.')}</w:p>"
        f"<w:p>{run('42')}</w:p><w:p>{run('h')}<w:fldSimple/></w:p><w:p/>"
        f"<w:tbl><w:p><w:r>{BOLD}<w:t>i</w:t><w:tab/><w:t>j</w:t></w:r></w:p></w:tbl>"
    )
    files, sentence = shout_word(shouting, tmp_path / "a.docx", word(body, header1=box, other=box))
    end = "</w:drawing></w:r>"
    expected = (
        f"<w:p>{style}{run('A B ')}{run('CD', BOLD)}{run(' E')}</w:p>"
        f"<w:p>{run('F. ')}<w:r><w:br/></w:r>{run('G ')}"
        f'<w:hyperlink r:id="r1">{run("A", BOLD)}{run(" ")}{run("LINK")}</w:hyperlink>'
        f"{drawing.format(box.upper().replace('W:', 'w:'))}{run('.')}</w:p>"
        f"<w:p>{run('42')}</w:p><w:p>{run('h')}<w:fldSimple/></w:p><w:p/>"
        f"<w:tbl><w:p>{run('I', BOLD)}<w:r>{BOLD}<w:tab/></w:r>{run('J', BOLD)}</w:p></w:tbl>"
    )
    found = files["word/document.xml"].decode()
    inside = run("INSIDE")
    assert inside in found
    expected = re.sub(
        r"<w:drawing>.*?</w:drawing>", f"<w:drawing><w:p>{inside}</w:p></w:drawing>", expected
    )
    assert end in found
    assert found.partition("?>")[2] == f"<w:document {W}>{expected}</w:document>"
    assert inside in files["word/header1.xml"].decode()
    assert files["word/other.xml"] == f"<w:x {W}>{box}</w:x>".encode()
    assert files["word/media/a.png"] == b"\x89PNG\xff"
    assert sentence.endswith("left as they are: paragraphs with fields (1)")
    assert "ab c" not in shouting.seen
    assert "a b cd e" in shouting.seen


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PK", "no archive"),
        (word("<w:p>")[:-30], "no archive"),
        (word("<w:p>"), "mismatched tag"),
        (word("").replace(b"word/document", b"word/documenT"), "no word/document.xml"),
    ],
)
def test_a_damaged_document_of_word_is_refused(
    shouting: Shouting, tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / "a.docx").write_bytes(content)
    with pytest.raises(UserError, match=f"a.docx is damaged: .*{says}"):
        translate_document(shouting, str(tmp_path / "a.docx"))


def test_other_kinds_of_files_are_refused(shouting: Shouting, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.pdf is no \.html"):
        translate_document(shouting, "a.pdf")
    with pytest.raises(UserError, match=r"gone\.md cannot be read"):
        translate_document(shouting, str(tmp_path / "gone.md"))
    assert set(documents.READERS) >= {".html", ".md", ".docx"}
