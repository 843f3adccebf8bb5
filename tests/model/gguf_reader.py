"""A slow GGUF reader and a float64 Llama in NumPy: the truth that ours is held against.

Written from the format's description; shares no code with the package and uses no MLX. Rotary
positions are applied to interleaved pairs, as the file stores them, so that nothing here knows of
the reordering under test.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS[12] = "d"


class Gguf:
    def __init__(self, path: Path) -> None:
        self._data = memoryview(path.read_bytes())
        self._at = 0
        assert bytes(self._data[:4]) == b"GGUF"
        self._at = 8
        tensors, entries = self._take("QQ")
        self.metadata = {self._string(): self._value(self._take("I")[0]) for _ in range(entries)}
        self._infos = {}
        for _ in range(tensors):
            name = self._string()
            (dims,) = self._take("I")
            shape = self._take("Q" * dims)[::-1]
            kind, offset = self._take("IQ")
            self._infos[name] = (shape, kind, offset)
        align = self.metadata.get("general.alignment", 32)
        self._base = -(-self._at // align) * align

    @property
    def names(self) -> set[str]:
        return set(self._infos)

    def tensor(self, name: str) -> np.ndarray:
        """Values as float64."""
        shape, kind, offset = self._infos[name]
        count = int(np.prod(shape))
        start = self._base + offset
        if kind == 0:
            return np.frombuffer(self._data, "<f4", count, start).reshape(shape).astype(np.float64)
        if kind == 8:  # Q8_0: scale, 32 signed bytes
            block = np.dtype([("d", "<f2"), ("q", "i1", 32)])
            blocks = np.frombuffer(self._data, block, count // 32, start)
            return (blocks["q"] * blocks["d"].astype(np.float64)[:, None]).reshape(shape)
        assert kind == 3, f"{name} has type {kind}"  # Q4_1: scale, minimum, 32 nibbles
        block = np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)])
        blocks = np.frombuffer(self._data, block, count // 32, start)
        nibbles = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1)  # (blocks, 32)
        d, m = (blocks[k].astype(np.float64)[:, None] for k in "dm")
        return (nibbles * d + m).reshape(shape)

    def _take(self, layout: str) -> tuple:
        values = struct.unpack_from("<" + layout, self._data, self._at)
        self._at += struct.calcsize("<" + layout)
        return values

    def _string(self) -> str:
        (length,) = self._take("Q")
        self._at += length
        return bytes(self._data[self._at - length : self._at]).decode("utf-8")

    def _value(self, kind: int):
        if kind == 8:
            return self._string()
        if kind == 9:
            inner, length = self._take("IQ")
            return [self._value(inner) for _ in range(length)]
        return self._take(_SCALARS[kind])[0]


def llama_logits(gguf: Gguf, tokens: list[int], rope_base: float | None = None) -> np.ndarray:
    """Logits of every position, shape ``(L, V)``, float64, straight from the file."""
    meta = {k.removeprefix("llama."): v for k, v in gguf.metadata.items() if k[:6] == "llama."}
    heads, kv_heads = meta["attention.head_count"], meta["attention.head_count_kv"]
    eps, base = meta["attention.layer_norm_rms_epsilon"], rope_base or meta["rope.freq_base"]
    embedding = gguf.tensor("token_embd.weight")
    x = embedding[tokens]
    length = len(tokens)
    mask = np.triu(np.full((length, length), -np.inf), 1)
    for i in range(meta["block_count"]):
        w = {n: gguf.tensor(f"blk.{i}.{n}.weight") for n in _BLOCK}
        h = _norm(x, w["attn_norm"], eps)
        q = _rotate((h @ w["attn_q"].T).reshape(length, heads, -1), base)
        k = _rotate((h @ w["attn_k"].T).reshape(length, kv_heads, -1), base)
        v = (h @ w["attn_v"].T).reshape(length, kv_heads, -1)
        k, v = (np.repeat(a, heads // kv_heads, axis=1) for a in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1]) + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", weights, v).reshape(length, -1) @ w["attn_output"].T
        h = _norm(x, w["ffn_norm"], eps)
        gate = h @ w["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
    return _norm(x, gguf.tensor("output_norm.weight"), eps) @ embedding.T


_BLOCK = (
    *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"),
    *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
)


def _norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def _rotate(x: np.ndarray, base: float) -> np.ndarray:
    """Turn the pairs (0, 1), (2, 3), ... of each head by its position; x is ``(L, H, D)``."""
    length, _, width = x.shape
    angles = np.arange(length)[:, None] * base ** (-np.arange(0, width, 2) / width)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)
