"""Tokens to text, one token at a time, exactly.

Knows a tokenizer's vocabulary and decoder and nothing of models, paths or boundaries. The text of
a token sequence is what ``tokenizer.decode(tokens, skip_special_tokens=True,
clean_up_tokenization_spaces=False)`` gives: control tokens have no text and white space is never
tidied up. What `Detokenizer.push` and `Detokenizer.flush` return adds up to that text, and nothing
is returned for a character whose bytes are not all there.

One exception, where a stream cannot know better: a run of byte-fallback tokens that turns out
to be invalid UTF-8 is replaced as a whole by ``decode``; characters of that run which were whole
have been returned by then and stay.
"""

from msi_engine.text.detokenizer import Detokenizer
from msi_engine.text.vocabulary import Vocabulary

__all__ = ["Detokenizer", "Vocabulary"]
