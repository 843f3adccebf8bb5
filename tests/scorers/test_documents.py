"""Reading and cutting documents, and what is said of files that will not do."""

from __future__ import annotations

import os

import pytest
from msi_scorers import chunking, documents
from msi_scorers.chunking import chunked
from msi_scorers.documents import find_files, html_text, read_documents, read_file

from msi_engine import Evidence
from msi_engine.errors import ConfigError


def pdf(*texts):
    """A PDF of one page for each text, written out by hand."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(texts)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(texts)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, text in enumerate(texts):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * i} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    start = len(data)
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    size = len(objects) + 1
    data += f"xref\n0 {size}\n0000000000 65535 f \n{table}".encode()
    return data + f"trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()


PAGE = """<!doctype html><html><head><title>Tea</title><style>p { color: red }</style>
<script>var milk = "<p>no</p>";</script></head><body><h1>All about <em>tea</em></h1>
<p>Tea &amp; milk.<br>Hot,
 not   cold.</p><ul><li>green</li><li>black</li></ul></body></html>"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_bytes("\ufeffThe tide rises.".encode())
    (tmp_path / "sub" / "b.md").write_text("# Bees\n\nBees make honey.\n")
    (tmp_path / "sub" / "c.html").write_text(PAGE)
    (tmp_path / "d.pdf").write_bytes(pdf("Snow is cold.", "Rain is wet."))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0")
    return tmp_path


def test_every_kind_is_read_with_its_name_as_the_source(folder):
    found = {d.source: d.text.strip() for d in read_documents([str(folder)])}
    assert found == {
        "a.txt": "The tide rises.",
        "b.md": "# Bees\n\nBees make honey.",
        "c.html": "Tea\n\nAll about tea\n\nTea & milk.\n\nHot, not cold.\n\ngreen\n\nblack",
        "d.pdf": "Snow is cold.\n\nRain is wet.",
    }


def test_paths_patterns_and_folders_name_files_once(folder):
    names = [d.source for d in read_documents([str(folder / "a.txt"), str(folder / "*.txt")])]
    assert names == ["a.txt"]
    assert [p.name for p in find_files(str(folder / "**" / "*.md"))] == ["b.md"]
    assert [p.name for p in find_files(str(folder / "sub"))] == ["b.md", "c.html"]


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path):
    (tmp_path / "notes [1].txt").write_text("Tea.")
    assert read_documents([str(tmp_path / "notes [1].txt")])[0].text == "Tea."


@pytest.mark.parametrize(
    "source", ["", "<p", "<script>x", "</p></script><b>Tea", "&#xD800;&bogus;"]
)
def test_broken_html_is_read_as_far_as_it_goes(source):
    assert "x" not in html_text(source)


BAD = [
    ("gone.txt", None, "no document .*gone.txt"),
    ("*.doc", None, r"no document matches .*\*\.doc"),
    ("binary.txt", b"MZ\x90\0\x03" * 50, "binary.txt' is not text but binary"),
    ("latin.txt", "Größe".encode("latin-1"), "latin.txt' is not text in UTF-8"),
    ("empty.txt", b" \n", "empty.txt' has no text$"),
    ("broken.pdf", b"%PDF-1.4\n%%%%", "broken.pdf' is no readable PDF"),
    ("not.pdf", b"Tea is hot.", "not.pdf' is no readable PDF"),
    ("cut.pdf", pdf("Tea is hot.")[:200], "cut.pdf' (is no readable PDF|has no text)"),
    ("scan.pdf", pdf(""), r"scan.pdf' has no text \(a scan\?"),
    ("void.pdf", b"", "void.pdf' is no readable PDF"),
]


@pytest.mark.parametrize(("name", "content", "said"), BAD, ids=[name for name, *_ in BAD])
def test_what_cannot_be_read_is_one_line_with_its_name(name, content, said, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        read_documents([str(tmp_path / name)])
    assert "\n" not in str(caught.value)


def test_a_folder_without_documents_says_so(tmp_path):
    with pytest.raises(ConfigError, match="has no documents"):
        read_documents([str(tmp_path)])


def test_nothing_named_is_an_error():
    with pytest.raises(ConfigError, match="no documents are given"):
        read_documents([])


def test_a_file_of_50_mb_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(50_000_000)  # sparse: takes no disk
    with pytest.raises(ConfigError, match="has 50 MB, and at most 20 are read; split it"):
        read_file(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path):
    path = tmp_path / "secret.txt"
    path.write_text("Tea.")
    path.chmod(0)
    with pytest.raises(ConfigError, match=r"secret.txt' cannot be read: Permission denied"):
        read_file(path)


LONG = " ".join(f"Sentence {i} says that tea is hot." for i in range(200)) + "\n\nEnd. " * 9


@pytest.mark.parametrize("source", ["a.txt", "a.md"])
def test_chunks_are_within_the_size_and_lose_nothing(source):
    chunks = chunked([Evidence(LONG, source), Evidence("Short.", "b.txt")], size=300)
    assert max(len(chunk.text) for chunk in chunks) <= 300
    first = [chunk.text for chunk in chunks if chunk.source == source]
    assert " ".join(" ".join(first).split()) == " ".join(LONG.split())
    assert all(text.endswith(".") for text in first)
    assert chunks[-1] == Evidence("Short.", "b.txt")


def test_text_without_spaces_is_cut_all_the_same():
    chunks = chunked([Evidence("潮は月から来る。" * 300, "a.txt")], size=200)
    assert "".join(chunk.text for chunk in chunks) == "潮は月から来る。" * 300
    assert max(len(chunk.text) for chunk in chunks) <= 200


def test_too_many_chunks_are_refused(monkeypatch):
    monkeypatch.setattr(chunking, "MAX_CHUNKS", 10)
    with pytest.raises(ConfigError, match="more than 10 chunks of 40 characters"):
        chunked([Evidence(LONG)], size=40)


@pytest.mark.parametrize("what", ["pypdf", "semantic_text_splitter"])
def test_what_is_not_installed_is_named_with_the_command(what, monkeypatch, folder):
    import sys

    monkeypatch.setitem(sys.modules, what, None)
    with pytest.raises(ConfigError, match=r'needs.*pip install "llm-msi\[rag\]"'):
        chunked(read_documents([str(folder / "d.pdf")]))


def test_the_limit_is_the_one_that_is_tested():
    assert documents.MAX_BYTES == 20_000_000
