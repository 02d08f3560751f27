"""Documents of Word (.docx), an archive of XML: paragraphs, of which runs have a format each."""

import io
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any
from xml.dom import minidom
from xml.parsers.expat import ExpatError

from triptych.domains.translation.markup import Marked
from triptych.tools.translation.pages import Block, Document

Node = Any
"""Element of XML: the types of minidom say of most results that they may be None."""
PARTS = re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes)\.xml")
"""Files of the archive that have text."""
CONTAINERS = ("w:hyperlink", "w:smartTag")
"""Elements of a paragraph that have runs."""
NOT_READ = {
    "w:fldChar": "paragraphs with fields", "w:fldSimple": "paragraphs with fields",
    "w:ins": "paragraphs with tracked changes", "w:del": "paragraphs with tracked changes",
    "w:sdt": "paragraphs with form fields",
}  # fmt: skip
"""Elements with which a paragraph stays as it is, and what such paragraphs are called."""


def read_word(content: bytes) -> Document:
    """Read a document of Word; ValueError for a damaged one."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = {info: archive.read(info) for info in archive.infolist()}
        pages = {
            info: minidom.parseString(part)
            for info, part in files.items()
            if PARTS.fullmatch(info.filename)
        }
    except (zipfile.BadZipFile, ExpatError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"it is no archive of XML ({error})") from error
    if "word/document.xml" not in {info.filename for info in pages}:
        raise ValueError("it has no word/document.xml")
    left_out: Counter[str] = Counter()
    found = []
    for page in pages.values():
        for node in page.getElementsByTagName("w:p"):
            reason = next((n for n in NOT_READ if node.getElementsByTagName(n)), None)
            if reason is not None:
                left_out[NOT_READ[reason]] += 1
                continue
            paragraph = _Paragraph(node)
            if (marked := paragraph.block.marked()) is not None:
                found.append((paragraph, marked))

    def write(blocks: Sequence[Marked]) -> bytes:
        for (paragraph, _), block in zip(found, blocks, strict=True):
            paragraph.write(block)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for info, part in files.items():
                page = pages.get(info)
                archive.writestr(
                    info, part if page is None else page.toxml("utf-8", standalone=True)
                )
        return out.getvalue()

    return Document([marked for _, marked in found], write, left_out)


class _Paragraph:
    """A paragraph whose runs are elements; that of the most usual format has no tags."""

    def __init__(self, node: Node) -> None:
        self.node, self.block = node, Block()
        self.nodes: list[tuple[Node, Node | None]] = []
        """Node of each tag, whose text is its number, and the run of which it is a part."""
        sizes: Counter[str] = Counter()
        for run in _children(node, "w:r"):
            sizes[_format(run)] += len(_text(run))
        self.usual = max(sizes, key=lambda each: sizes[each], default="")
        self._add(node)

    def _add(self, parent: Node) -> None:
        nodes = [node for node in _elements(parent) if node.tagName not in ("w:pPr", "w:proofErr")]
        # Word splits words into runs of one format.
        for _, group in groupby(nodes, lambda node: _format(node) if _text(node) else id(node)):
            first, *others = group
            if first.tagName in CONTAINERS:
                self._tag(first, 1)
                self._add(first)
                self._tag(first, -1)
            elif not _text(first):
                self._tag(first)
            elif parent is self.node and _format(first) == self.usual:
                self._add_parts([first, *others])
            else:
                self._tag(first, 1)
                self._add_parts([first, *others])
                self._tag(first, -1)

    def _add_parts(self, runs: Sequence[Node]) -> None:
        for run in runs:
            for part in _elements(run):
                if part.tagName == "w:t":
                    self.block.add("".join(text.data for text in part.childNodes))
                elif part.tagName != "w:rPr":
                    self._tag(part, of_run=run)

    def _tag(self, node: Node, side: int = 0, of_run: Node | None = None) -> None:
        breaks = any(each.tagName in ("w:br", "w:tab") for each in [node, *_elements(node)])
        self.block.tag(str(len(self.nodes)), str(id(node)), side, breaks=breaks)
        self.nodes.append((node, of_run))

    def write(self, block: Marked) -> None:
        """Replace the content of the paragraph by the translation of its block."""
        runs = [run for run in _children(self.node, "w:r") if _format(run) == self.usual]
        usual = _empty(runs[0]) if runs else self.node.ownerDocument.createElement("w:r")
        parents, formats = [self.node], [usual]
        for child in list(self.node.childNodes):
            if getattr(child, "tagName", "") != "w:pPr":
                self.node.removeChild(child)
        last = 0
        for tag in [*block.tags, None]:
            text = block.text[last : tag.place if tag else None]
            if text:
                parents[-1].appendChild(_with_text(formats[-1], text))
            if tag is None:
                break
            last = tag.place
            if not tag.text.isdigit():  # emoji
                parents[-1].appendChild(_with_text(formats[-1], tag.text))
                continue
            node, of_run = self.nodes[int(tag.text)]
            if not tag.side:
                run = parents[-1] if of_run is None else parents[-1].appendChild(_empty(of_run))
                run.appendChild(node)
            elif node.tagName == "w:r":
                formats = [*formats, _empty(node)] if tag.side > 0 else formats[:-1]
            elif tag.side > 0:
                parents.append(parents[-1].appendChild(node.cloneNode(False)))
            else:
                parents.pop()


def _elements(node: Node) -> list[Node]:
    return [each for each in node.childNodes if each.nodeType == each.ELEMENT_NODE]


def _children(node: Node, name: str) -> list[Node]:
    return [each for each in _elements(node) if each.tagName == name]


def _text(run: Node) -> str:
    texts = (text.data for part in _children(run, "w:t") for text in part.childNodes)
    return "".join(texts)


def _format(run: Node) -> str:
    return "".join(part.toxml() for part in _children(run, "w:rPr"))


def _empty(run: Node) -> Node:
    """Return a run of the same format without text."""
    copy = run.cloneNode(False)
    for part in _children(run, "w:rPr"):
        copy.appendChild(part.cloneNode(True))
    return copy


def _with_text(run: Node, text: str) -> Node:
    copy = run.cloneNode(True)
    part = run.ownerDocument.createElement("w:t")
    part.setAttribute("xml:space", "preserve")
    part.appendChild(run.ownerDocument.createTextNode(text))
    copy.appendChild(part)
    return copy
