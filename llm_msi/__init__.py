"""The `llm` plugin."""
