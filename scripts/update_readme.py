"""Write the table of options in README.md from `DecodeConfig`.

Run it after changing an option: ``python scripts/update_readme.py``. A test fails until then.
"""

from __future__ import annotations

from pathlib import Path

from llm_msi.options import bounds, choices_of, show
from msi_engine.config import DecodeConfig

README = Path(__file__).resolve().parent.parent / "README.md"
START = "<!-- options: written by scripts/update_readme.py -->\n"
END = "<!-- end of options -->\n"


def options_table() -> str:
    """The options as a Markdown table: name, default, values, meaning."""
    lines = ["| option | default | values | meaning |", "|---|---|---|---|"]
    for name, info in DecodeConfig.model_fields.items():
        choices = choices_of(info.annotation)
        values = ", ".join(f"`{choice}`" for choice in choices) or bounds(info)
        default = show(info.get_default(call_default_factory=True))
        lines.append(f"| `{name}` | {default} | {values} | {info.description} |")
    return "\n".join(lines) + "\n"


def updated(text: str) -> str:
    """The README's text with the table as it should be.

    Raises:
        ValueError: If the marks around the table are missing.
    """
    before, mark, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"README.md lacks the lines {START.strip()!r} and {END.strip()!r}")
    return f"{before}{START}{options_table()}{END}{after}"


if __name__ == "__main__":
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
