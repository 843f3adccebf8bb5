"""For tests, ours and third parties': a toy model, a driver of the decoder, a scorer check.

Needs neither MLX nor a model file nor a test framework.

    from msi_engine import DecodeConfig
    from msi_engine.testing import ToyModel, ToyTokenizer, run_toy

    tokenizer = ToyTokenizer()
    model = ToyModel.seeded(tokenizer.size, seed=1)
    for event in run_toy(DecodeConfig(k=2, max_tokens=8), model, tokenizer):
        print(event)
"""

from msi_engine.testing.conformance import ConformanceError, check_scorer
from msi_engine.testing.driver import ToyRunner, drive, make_toy_decoder, run_toy
from msi_engine.testing.embedder import ToyEmbedder
from msi_engine.testing.toy import ToyModel, ToyTokenizer

__all__ = [
    "ConformanceError",
    "ToyEmbedder",
    "ToyModel",
    "ToyRunner",
    "ToyTokenizer",
    "check_scorer",
    "drive",
    "make_toy_decoder",
    "run_toy",
]
