"""Read a llama-like GGUF file and write it as MLX models.

Knows the format's names and its storage conventions; MLX itself unpacks the blocks. Knows nothing
of where the file came from. Imports mlx, so import it only when it is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from msi_engine.errors import ModelFileError, UnsupportedModelError
from msi_engine.model.gguf_tokenizer import tokenizer_files
from msi_engine.model.progress import OnProgress, Progress

_GROUP = 32  # values in a block of the GGUF types that MLX reads natively

_TENSORS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_TOP_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


@dataclass(frozen=True, slots=True)
class Quantization:
    """Bits a weight and weights a group of MLX's affine quantisation."""

    bits: int
    group_size: int


class GgufFile:
    """One GGUF file of a llama-like model."""

    def __init__(self, path: Path) -> None:
        """Open a file.

        Raises:
            ModelFileError: If it is missing, truncated or no GGUF file.
            UnsupportedModelError: If it holds another architecture than llama.
        """
        self.path = path
        if not path.is_file():
            raise ModelFileError(f"{path} does not exist")
        try:
            loaded: Any = mx.load(str(path), format="gguf", return_metadata=True)
        except (RuntimeError, ValueError) as error:
            raise ModelFileError(f"{path} cannot be read as GGUF: {error}") from None
        arrays, metadata = loaded
        self._arrays: dict[str, mx.array] = arrays
        self.metadata: dict[str, Any] = {k: _plain(v) for k, v in metadata.items()}
        architecture = self.metadata.get("general.architecture")
        if architecture != "llama":
            raise UnsupportedModelError(
                f"{path} holds architecture {architecture!r}; only llama can be read from GGUF"
            )

    def config(self) -> dict[str, Any]:
        """The model as ``config.json`` describes it, without its quantisation."""
        heads = self._integer("attention.head_count")
        width = self._integer("embedding_length")
        end = self.metadata["tokenizer.ggml.eos_token_id"]
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": width,
            "num_hidden_layers": self._integer("block_count"),
            "intermediate_size": self._integer("feed_forward_length"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._integer("attention.head_count_kv"),
            "head_dim": width // heads,
            "rms_norm_eps": self._rounded("attention.layer_norm_rms_epsilon"),
            "vocab_size": len(self.metadata["tokenizer.ggml.tokens"]),
            "max_position_embeddings": self._integer("context_length"),
            # At the top level, where mlx-lm looks. A wrong base still gives fluent, worse text.
            "rope_theta": self._rounded("rope.freq_base"),
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": "output.weight" not in self._arrays,
            "bos_token_id": self.metadata["tokenizer.ggml.bos_token_id"],
            "eos_token_id": self._ends(end),
            "torch_dtype": "float16",
        }

    def weights(self) -> Iterator[tuple[str, mx.array]]:
        """Each weight under its Hugging Face name, float32, in full: norms, linears, embedding."""
        for name in self._arrays:
            stem, dot, kind = name.rpartition(".")
            if kind == "weight" and dot:
                yield _hugging_face_name(stem) + ".weight", self._unpermuted(stem)

    def write_mlx(
        self, targets: Mapping[Path, Quantization], on_progress: OnProgress, stage: str
    ) -> None:
        """Write the model once for each quantisation, tokenizer included.

        Args:
            targets: Folder to make, and its quantisation.
            on_progress: Told after each tensor.
            stage: What to call it there.
        """
        written: dict[Path, dict[str, mx.array]] = {folder: {} for folder in targets}
        total = sum(name.endswith(".weight") for name in self._arrays)
        for done, (name, weight) in enumerate(self.weights()):
            on_progress(Progress(stage, done, total, "tensors"))
            for folder, quantization in targets.items():
                arrays = _quantized(name, weight, quantization)
                mx.eval(arrays)
                written[folder].update(arrays)
        for folder, quantization in targets.items():
            folder.mkdir(parents=True)
            block = {"group_size": quantization.group_size, "bits": quantization.bits}
            files = {"config.json": {**self.config(), "quantization": block}}
            files |= tokenizer_files(self.metadata)
            for name, content in files.items():
                text = json.dumps(content, ensure_ascii=False, indent=1)
                (folder / name).write_text(text, encoding="utf-8")
            path = str(folder / "model.safetensors")
            mx.save_safetensors(path, written[folder], metadata={"format": "mlx"})
        on_progress(Progress(stage, total, total, "tensors"))

    def _integer(self, key: str) -> int:
        return int(self.metadata[f"llama.{key}"])

    def _rounded(self, key: str) -> float:
        # The file holds float32: 1e-5 must not become 9.999999747378752e-06.
        return float(f"{self.metadata[f'llama.{key}']:.7g}")

    def _ends(self, end: int) -> list[int]:
        # Without its chat template the model ends with the pre-training's end of text.
        tokens = self.metadata["tokenizer.ggml.tokens"]
        others = [tokens.index(t) for t in ("<|endoftext|>",) if t in tokens]
        return list(dict.fromkeys([int(end), *others]))

    def _full(self, stem: str) -> mx.array:
        weight = self._arrays[f"{stem}.weight"]
        scales = self._arrays.get(f"{stem}.scales")
        if scales is None:
            return weight.astype(mx.float32)
        bits = weight.shape[-1] // scales.shape[-1]
        biases = self._arrays[f"{stem}.biases"].astype(mx.float32)
        return mx.dequantize(weight, scales.astype(mx.float32), biases, _GROUP, bits)

    def _unpermuted(self, stem: str) -> mx.array:
        """A weight with rotary halves apart, as Hugging Face stores them; GGUF interleaves them."""
        weight = self._full(stem)
        heads = {"attn_q": "head_count", "attn_k": "head_count_kv"}.get(stem.rpartition(".")[2])
        if heads is None:
            return weight
        count = self._integer(f"attention.{heads}")
        half = weight.shape[0] // count // 2
        return weight.reshape(count, half, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def _hugging_face_name(stem: str) -> str:
    if stem in _TOP_TENSORS:
        return _TOP_TENSORS[stem]
    match stem.split("."):
        case ["blk", number, name] if name in _TENSORS:
            return f"model.layers.{number}.{_TENSORS[name]}"
    raise UnsupportedModelError(f"GGUF tensor {stem!r} has no place in a llama model")


def _quantized(name: str, weight: mx.array, q: Quantization) -> dict[str, mx.array]:
    """A weight as MLX stores it: matrices quantised, the rest float16.

    Float16 and not bfloat16: eight bits of a weight would be lost in a scale of eight bits.
    """
    if weight.ndim < 2:
        return {name: weight.astype(mx.float16)}
    packed, scales, biases = mx.quantize(weight, group_size=q.group_size, bits=q.bits)
    stem = name.removesuffix("weight")
    return {
        name: packed,
        stem + "scales": scales.astype(mx.float16),
        stem + "biases": biases.astype(mx.float16),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, mx.array):
        return value.tolist()
    return value
