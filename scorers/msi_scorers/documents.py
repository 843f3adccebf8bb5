"""Reading documents: text, Markdown, HTML and PDF, by path, pattern or folder."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable
from html.parser import HTMLParser
from pathlib import Path

from msi_engine.errors import ConfigError
from msi_engine.evidence import Evidence

MAX_BYTES = 20_000_000  # of one file: some ten thousand pages
KINDS = (".txt", ".md", ".markdown", ".rst", ".html", ".htm", ".pdf")  # looked for in folders
_HTML = (".html", ".htm")
_SPECIAL = "*?["


def read_documents(places: Iterable[str]) -> tuple[Evidence, ...]:
    """Read files. Their names are the sources.

    Args:
        places: Paths of files, of folders (their text, Markdown, HTML and PDF files, at any
            depth), or patterns such as ``notes/*.md`` and ``docs/**/*.txt``.

    Raises:
        ConfigError: If nothing is found, or a file is missing, too large, unreadable or not text.
    """
    paths = [path for place in places for path in find_files(place)]
    if not paths:
        raise ConfigError("no documents are given; name a file, a folder or a pattern")
    return tuple(Evidence(read_file(path), path.name) for path in dict.fromkeys(paths))


def find_files(place: str) -> list[Path]:
    """The files that a path or pattern stands for, sorted; at least one.

    Raises:
        ConfigError: If there is none.
    """
    path = Path(place).expanduser()
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix.lower() in KINDS)
        if not found:
            raise ConfigError(f"folder {place!r} has no documents ({', '.join(KINDS)})")
        return found
    if path.exists():
        return [path]
    if not any(mark in place for mark in _SPECIAL):
        raise ConfigError(f"no document {place!r}; check the path")
    matches = map(Path, glob.glob(str(path), recursive=True))
    found = sorted(p for p in matches if p.is_file())
    if not found:
        raise ConfigError(f"no document matches {place!r}; check the pattern")
    return found


def read_file(path: Path) -> str:
    """The text of one file.

    Raises:
        ConfigError: If it is too large, cannot be read, is not text or has none.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(
                f"document {str(path)!r} has {size / 1e6:.0f} MB, and at most "
                f"{MAX_BYTES / 1e6:.0f} are read; split it"
            )
        kind = path.suffix.lower()
        text = _pdf(path) if kind == ".pdf" else _decoded(path, path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"document {str(path)!r} cannot be read: {error.strerror or error}"
        ) from None
    if kind in _HTML:
        text = html_text(text)
    if not text.strip():
        scan = " (a scan? It needs text recognition first)" if kind == ".pdf" else ""
        raise ConfigError(f"document {str(path)!r} has no text{scan}")
    return text


def html_text(source: str) -> str:
    """What a page says, its blocks separated by blank lines; scripts and styles say nothing."""
    parser = _Page()
    parser.feed(source)
    parser.close()
    lines = (" ".join(line.split()) for line in "".join(parser.parts).split("\n"))
    return "\n\n".join(line for line in lines if line)


class _Page(HTMLParser):
    _SILENT = frozenset({"script", "style", "template", "noscript"})
    _INLINE = frozenset(
        {
            *("a", "abbr", "b", "bdi", "bdo", "cite", "code", "data"),
            *("del", "dfn", "em", "font", "i", "ins", "kbd", "mark"),
            *("q", "rp", "rt", "ruby", "s", "samp", "small", "span"),
            *("strong", "sub", "sup", "time", "tt", "u", "var", "wbr"),
        }
    )

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in self._SILENT
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        self._silent = max(0, self._silent - (tag in self._SILENT))
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data.replace("\n", " "))

    def _break(self, tag: str) -> None:
        if tag not in self._INLINE:
            self.parts.append("\n")


def _decoded(path: Path, data: bytes) -> str:
    if b"\0" in data:
        raise ConfigError(f"document {str(path)!r} is not text but binary; leave it out")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(
            f"document {str(path)!r} is not text in UTF-8; convert it, or leave it out"
        ) from None


def _pdf(path: Path) -> str:
    try:
        import pypdf
    except ImportError:
        raise ConfigError(
            f'reading {str(path)!r} needs pypdf: pip install "llm-msi[rag]"'
        ) from None
    return _quietly(lambda: _pages(pypdf.PdfReader(path)), path)


def _pages(reader: object) -> str:
    return "\n\n".join(page.extract_text() for page in reader.pages)  # type: ignore[attr-defined]


def _quietly(read: Callable[[], str], path: Path) -> str:
    """Run a reader that complains by the log; what it raises becomes one line.

    Raises:
        ConfigError: If it raises anything but an OSError.
    """
    import logging

    log = logging.getLogger("pypdf")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        return read()
    except OSError:
        raise
    except Exception as error:  # a damaged file may raise anything
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"document {str(path)!r} is no readable PDF: {text:.120}") from error
    finally:
        log.setLevel(level)
