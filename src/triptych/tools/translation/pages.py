"""Blocks of text in HTML and Markdown, and all else as it is.

A block is the text between two tags of blocks; what is inside a block (bold text, links, images)
are its tags.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from triptych.domains.translation.kept import VOID, marked_line
from triptych.domains.translation.markup import Marked, Tag, hidden
from triptych.errors import library

INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "cite", "data", "del", "dfn", "em",
    "font", "i", "img", "ins", "label", "mark", "q", "s", "small", "span", "strike", "strong",
    "sub", "sup", "time", "tt", "u", "wbr",
}  # fmt: skip
"""Elements of HTML that a sentence goes through."""
CODE = {"code", "kbd", "samp", "var", "svg", "math"}
"""Elements of HTML inside a sentence whose content is no text."""
WHITE = " \t\r\n\f"
LEFT_OUT = {
    "script": "scripts", "style": "style sheets", "pre": "preformatted texts",
    "textarea": "text fields",
}  # fmt: skip
"""Elements of HTML that are blocks without sentences, and what they are called."""


MARKS = re.compile(r"[\\`*\[\]|]|(?<!\w)_|_(?!\w)|~~|<(?=[A-Za-z/!?])|&(?=#?\w+;)")
"""What would be markup in Markdown, and is text."""


class Document(NamedTuple):
    """The texts of a document."""

    blocks: list[Marked]
    write: Callable[[Sequence[Marked]], bytes]
    """Takes the translations of the blocks; returns the content of the translated file."""
    left_out: Counter[str]
    """Number of parts that are not translated, by what they are."""


class Block:
    """A block of text in the making."""

    def __init__(self) -> None:
        self.text = ""
        self.tags: list[Tag] = []

    def add(self, text: str) -> None:
        """Append text, of which emoji are tags."""
        last = self.tags[-1] if self.tags else None
        between = self.text[-1:] in ("", " ") and text[:1] == " " != text
        if last and last.name == "img" and last.place == len(self.text) and between:
            self.tags[-1], text = last._replace(text=f"{last.text} "), text[1:]
        marked = marked_line(text, in_markup=False)
        self.tags += [tag._replace(place=tag.place + len(self.text)) for tag in marked.tags]
        self.text += marked.text

    def tag(self, text: str, name: str = "", side: int = 0, *, breaks: bool = False) -> None:
        """Append a tag."""
        self.tags.append(Tag(len(self.text), text, name, side, breaks))

    def marked(self) -> Marked | None:
        """Return the block; None where it has no letters."""
        return Marked(self.text, self.tags) if any(map(str.isalpha, self.text)) else None


class _Events(HTMLParser):
    """Places and kinds of what HTML consists of."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.lines = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.events: list[tuple[int, str, str]] = []
        self.feed(text)
        if self.rawdata.lstrip().startswith("<"):
            raise ValueError("it ends inside a tag")
        self.close()
        self.events.append((len(text), "end", ""))

    def _add(self, kind: str, name: str = "") -> None:
        line, column = self.getpos()
        self.events.append((self.lines[line - 1] + column, kind, name))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        no = ("translate", "no") in attrs and tag not in VOID
        self._add("no" if no else "open", tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("alone", tag)

    def handle_endtag(self, tag: str) -> None:
        self._add("close", tag)

    def handle_data(self, data: str) -> None:
        self._add("text")

    def handle_entityref(self, name: str) -> None:
        self._add("text")

    handle_charref = handle_entityref

    def handle_comment(self, data: str) -> None:
        self._add("comment")

    def handle_decl(self, decl: str) -> None:
        self._add("comment")

    handle_pi = unknown_decl = handle_comment


def html_parts(text: str) -> tuple[list[str | Marked], Counter[str]]:
    """Return HTML in parts, blocks of text among them, and the number of those left out by kind.

    Joined, with `html_text` of the blocks, they are the document. Raises ValueError for HTML that
    ends inside a tag, or a script.
    """
    parts: list[str | Marked] = []
    left_out: Counter[str] = Counter()
    block, begun = Block(), 0
    inside: list[str] = []  # open elements of the name of the one that is left out

    def finish(end: int) -> None:
        nonlocal block, begun
        raw, marked = text[begun:end], block.marked()
        if marked is None:
            parts.append(raw)
        else:
            inner = raw.strip(WHITE)
            lead, _, trail = raw.partition(inner)
            # Each is one space in the text, or belongs to an emoji.
            cut = len(lead) > 0 and marked.text[0] == " "
            stop = len(marked.text) - (len(trail) > 0 and marked.text[-1] == " ")
            places = (min(max(0, tag.place - cut), stop - cut) for tag in marked.tags)
            tags = [tag._replace(place=at) for tag, at in zip(marked.tags, places, strict=True)]
            parts.extend([lead, Marked(marked.text[cut:stop], tags), trail])
        block, begun = Block(), end

    start_of_code = 0
    for (start, kind, name), (end, *_) in pairwise(_Events(text).events):
        raw = text[start:end]
        if inside:
            if name == inside[0]:
                inside += [name] * (kind in ("open", "no"))
                inside = inside[1:] if kind == "close" else inside
            if not inside and name in INLINE | CODE:
                block.text += hidden(text[start_of_code:end])
            elif not inside:
                parts.append(text[begun:end])
                begun = end
        elif kind == "text":
            block.add(html.unescape(re.sub(rf"[{WHITE}]+", " ", raw)))
        elif kind in ("open", "no") and (kind == "no" or name in CODE or name in LEFT_OUT):
            inside, start_of_code = [name], start
            if name not in INLINE | CODE:
                finish(start)
                left_out[LEFT_OUT.get(name, "parts with translate=no")] += 1
        elif kind == "comment" or name in INLINE:
            side = {"open": 1, "close": -1}.get(kind, 0) * (name not in VOID)
            block.tag(raw, name, side, breaks=name == "br")
        else:
            finish(start)
            parts.append(raw)
            begun = end
    if inside:
        raise ValueError(f"it ends inside <{inside[0]}>")
    finish(len(text))
    return parts, left_out


def html_text(block: Marked) -> str:
    """Return a block as HTML."""
    return block.written(lambda text: html.escape(text, quote=False))


def read_html(content: bytes) -> Document:
    """Read a page in UTF-8 or in the encoding that it names; ValueError for a damaged one."""
    named = re.search(rb"""<meta[^>]*charset\s*=\s*["']?([\w-]+)""", content[:2048], re.IGNORECASE)
    encoding = named[1].decode() if named else "utf-8"
    text = _decoded(content, encoding)
    parts, left_out = html_parts(text)

    def write(blocks: Sequence[Marked]) -> bytes:
        written = iter(blocks)
        every = [part if isinstance(part, str) else html_text(next(written)) for part in parts]
        return "".join(every).encode(encoding, "xmlcharrefreplace")

    return Document([part for part in parts if isinstance(part, Marked)], write, left_out)


def _decoded(content: bytes, encoding: str = "utf-8") -> str:
    try:
        text = content.decode(encoding)
    except LookupError:
        raise ValueError(f"its encoding {encoding} is unknown") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not {encoding}") from None
    if "\0" in text:
        raise ValueError("it has NUL bytes, as binary files have")
    return text


def read_markdown(content: bytes) -> Document:
    """Read Markdown in UTF-8 with tables; a paragraph is one line then."""
    text = _decoded(content)
    kind: Any = library("markdown_it", "Markdown", "documents").MarkdownIt
    reader = kind("commonmark").enable(["table", "strikethrough"])
    reader.normalizeLink, reader.validateLink = str, bool
    head = re.match(r"\ufeff?(---\r?\n.*?\n---\r?\n)?", text, re.DOTALL)
    first = head.end() if head else 0
    body = text.replace("\r\n", "\n")
    first = len(text[:first].replace("\r\n", "\n"))
    lines = body.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    found: list[tuple[int, int, Marked]] = []
    left_out: Counter[str] = Counter({"front matter": 1} if head and head[1] else {})
    last = 0
    # Blank lines in place of what is before it keep the numbers of lines.
    for token in reader.parse("\n" * body[:first].count("\n") + body[first:]):
        what = {"fence": "code blocks", "code_block": "code blocks", "html_block": "HTML blocks"}
        if token.type in what:
            left_out[what[token.type]] += 1
        if token.type != "inline":
            continue
        if box := re.match(r"\[[ xX]\] +", token.content):  # of a list of tasks
            token.content = token.content[box.end() :]
            token.children[0].content = token.children[0].content[box.end() :]
        at, places = token.map[0], list[tuple[int, int]]()
        for number, part in enumerate(token.content.split("\n"), start=at):
            begin = body.find(part, max(last, starts[number]), starts[number + 1])
            places.append((begin, begin + len(part)))
        lead = "\n" + body[starts[at + 1] : places[1][0]] if len(places) > 1 else "\n"
        if min(places)[0] < 0:
            left_out["blocks of text that are not found again"] += 1
        elif (marked := _markdown_block(token.children, lead)) is not None:
            found.append((places[0][0], last := places[-1][1], marked))

    def write(blocks: Sequence[Marked]) -> bytes:
        joined, last = "", 0
        for (start, end, source), block in zip(found, blocks, strict=True):
            written = _markdown_text(block)
            if _kinds(reader, written) != _kinds(reader, _markdown_text(source)):
                written = body[start:end]
                left_out["blocks of text whose markup would break"] += 1
            joined, last = joined + body[last:start] + written, end
        joined += body[last:]
        return (joined.replace("\n", "\r\n") if "\r\n" in text else joined).encode()

    return Document([marked for _, _, marked in found], write, left_out)


def _kinds(reader: Any, text: str) -> list[str]:
    tokens = [each for token in reader.parse(text) for each in [token, *(token.children or [])]]
    return sorted(token.type for token in tokens if "text" not in token.type)


def _markdown_text(block: Marked) -> str:
    text = block.written(lambda part: MARKS.sub(r"\\\g<0>", part))
    return re.sub(r"^(\d*)(?=[-+#>=.)])", r"\1\\", text)


def _markdown_block(tokens: Sequence[Any], lead: str) -> Marked | None:
    """Return the text of a block; lead: line end and what the next line begins with."""
    block, ends, automatic = Block(), list[str](), False
    for token in tokens:
        if automatic:  # <https://...>
            block.text += hidden(f"<{token.content}>" if token.type == "text" else "")
            automatic = token.type == "text"
        elif token.type == "link_open":
            automatic = token.markup == "autolink"
            if not automatic:
                ends.append(_address(token.attrs["href"], token.attrs.get("title")))
                block.tag("[", "a", 1)
        elif token.type == "link_close":
            block.tag("]" + ends.pop(), "a", -1)
        elif token.type == "image":
            address = _address(token.attrs["src"], token.attrs.get("title"))
            block.tag(f"![{token.content}]{address}", "img")
        elif token.type == "code_inline":
            pad = " " * ("`" in token.content[:1] + token.content[-1:])
            block.text += hidden(f"{token.markup}{pad}{token.content}{pad}{token.markup}")
        elif token.type == "html_inline":
            for tag in marked_line(token.content).tags or [Tag(0, token.content)]:
                block.tag(tag.text, tag.name, tag.side, breaks=tag.name == "br")
        elif token.type == "hardbreak":
            block.tag("\\" + lead, breaks=True)
        elif token.nesting:
            block.tag(token.markup, token.tag, token.nesting)
        else:
            block.add(" " if token.type == "softbreak" else token.content)
    return block.marked()


def _address(href: str, title: str | None) -> str:
    href = f"<{href}>" if re.search(r"[\s()]", href) or not href else href
    quoted = "" if title is None else ' "' + title.replace('"', '\\"') + '"'
    return f"({href}{quoted})"
