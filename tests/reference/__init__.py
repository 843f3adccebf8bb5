"""A slow second implementation of the decoder, written from the specification alone.

K full caches, one row a pass, and everything recomputed from nothing at every step. It shares no
code with the decoder: only boundary predicates and detokenisers (which have their own tests),
mlx-lm's penalties and the chrF library. Greedy only: what is drawn at random has tests of its own.
"""
