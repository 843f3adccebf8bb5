"""Write the generated parts of the documentation: README's options, CONTRIBUTING's rooms.

Run it after changing an option or adding a module: ``python scripts/update_docs.py``. A test fails
until then.
"""

from __future__ import annotations

import ast
from pathlib import Path

from llm_msi.options import bounds, choices_of, show
from msi_engine.config import DecodeConfig

ROOT = Path(__file__).resolve().parent.parent


def options_table() -> str:
    """The options as a Markdown table: name, default, values, meaning."""
    lines = ["| option | default | values | meaning |", "|---|---|---|---|"]
    for name, info in DecodeConfig.model_fields.items():
        choices = choices_of(info.annotation)
        values = ", ".join(f"`{choice}`" for choice in choices) or bounds(info)
        default = show(info.get_default(call_default_factory=True))
        lines.append(f"| `{name}` | {default} | {values} | {info.description} |")
    return "\n".join(lines) + "\n"


def rooms_table() -> str:
    """The engine's modules as a Markdown table: name, first line of the docstring."""
    lines = ["| room | what lives there |", "|---|---|"]
    for path in sorted((ROOT / "msi_engine").iterdir()):
        source = path / "__init__.py" if path.is_dir() else path
        if source.suffix != ".py" or not source.is_file() or path.name == "__init__.py":
            continue
        docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
        sentence = " ".join(docstring.partition("\n\n")[0].split())
        lines.append(f"| `{path.stem}{'/' if path.is_dir() else ''}` | {sentence} |")
    return "\n".join(lines) + "\n"


TABLES = {"README.md": ("options", options_table), "CONTRIBUTING.md": ("rooms", rooms_table)}


def updated(name: str) -> str:
    """A document's text with its table as it should be.

    Raises:
        ValueError: If the marks around the table are missing.
    """
    title, table = TABLES[name]
    start = f"<!-- {title}: written by scripts/update_docs.py -->\n"
    end = f"<!-- end of {title} -->\n"
    before, found, rest = (ROOT / name).read_text(encoding="utf-8").partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{name} lacks the lines {start.strip()!r} and {end.strip()!r}")
    return f"{before}{start}{table()}{end}{after}"


if __name__ == "__main__":
    for document in TABLES:
        (ROOT / document).write_text(updated(document), encoding="utf-8")
