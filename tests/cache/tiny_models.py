"""Tiny random models of mlx-lm's architectures, built from the names of their configuration fields.

`VALUES` gives a small value for every size that occurs under some name; `OVERRIDES` what a single
architecture needs besides. Nothing is loaded or fetched.
"""

from __future__ import annotations

import copy
import importlib
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

VOCAB = 96
WINDOW = 16

VALUES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "num_vocab": VOCAB,
    "vocab_size_per_layer_input": VOCAB,
    "hidden_size": 64,
    "hidden_dim": 64,
    "d_model": 64,
    "model_dim": 64,
    "n_embd": 64,
    "num_hidden_layers": 4,
    "num_layers": 4,
    "n_layer": 4,
    "n_layers": 4,
    "num_transformer_layers": 4,
    "intermediate_size": 96,
    "shared_intermediate_size": 96,
    "ff_intermediate_size": 96,
    "ffn_hidden_size": 96,
    "expert_ffn_hidden_size": 32,
    "intermediate_size_mlp": 96,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "share_expert_dim": 32,
    "n_inner": 96,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
    "n_kv_heads": 2,
    "head_dim": 16,
    "global_head_dim": 16,
    "kv_channels": 16,
    "hidden_size_per_head": 16,
    "rotary_dim": 8,
    "max_position_embeddings": 512,
    "n_positions": 512,
    "n_ctx": 512,
    "block_size": 512,
    "model_max_length": 512,
    "original_max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "norm_eps": 1e-5,
    "layer_norm_eps": 1e-5,
    "layernorm_epsilon": 1e-5,
    "layer_norm_epsilon": 1e-5,
    "norm_epsilon": 1e-5,
    "rope_theta": 10000.0,
    "swa_rope_theta": 10000.0,
    "rotary_emb_base": 10000,
    "rotary_pct": 0.5,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "use_bias": False,
    "use_conv_bias": True,
    "conv_bias": False,
    "use_qk_norm": True,
    "use_qkv_bias": False,
    "num_experts": 4,
    "num_local_experts": 4,
    "moe_num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_topk": 2,
    "moe_top_k": 2,
    "moe_k": 2,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "num_shared_expert": 1,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "first_k_dense_replace": 1,
    "num_dense_layers": 1,
    "moe_layer_freq": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "index_head_dim": 16,
    "index_n_heads": 2,
    "index_topk": 12,
    "sliding_window": WINDOW,
    "sliding_window_size": WINDOW,
    "window_size": WINDOW,
    "attention_window_size": WINDOW,
    "loop_window_size": WINDOW,
    "sliding_window_pattern": 2,
    "state_size": 16,
    "ssm_state_size": 16,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "conv_kernel": 4,
    "conv_L_cache": 3,
    "time_step_rank": 8,
    "time_step_limit": (0.001, 100.0),
    "n_groups": 1,
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "mamba_n_heads": 4,
    "mamba_n_groups": 1,
    "mamba_d_head": 16,
    "mamba_d_ssm": 64,
    "mamba_expand": 2,
    "mamba_proj_bias": False,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "partial_rotary_factor": 0.5,
    "query_pre_attn_scalar": 16,
    "group_norm_size": 1,
    "layer_group_size": 2,
    "dim_model_base": 64,
    "scale_depth": 1.4,
    "scale_emb": 1.0,
    "embedding_multiplier": 1.0,
    "logits_scaling": 1.0,
    "attention_multiplier": 0.25,
    "residual_multiplier": 1.0,
}

_SLIDING_AND_FULL = ["sliding_attention", "full_attention"] * 2
_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
_YARN = {
    "type": "yarn",
    "rope_type": "yarn",
    "factor": 2.0,
    "rope_theta": 10000.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 256,
    "llama_4_scaling_beta": 0.1,
}
_ROPE_BY_TYPE = {"full_attention": _ROPE, "sliding_attention": _ROPE}
_DELTA = {"kda_layers": [1, 3], "full_attn_layers": [2, 4], "num_heads": 2, "head_dim": 32}
_DELTA["short_conv_kernel_size"] = 4

# What a single architecture needs besides `VALUES`. A value that is a name in parentheses, as in
# "(llama)", stands for the tiny configuration of that architecture.
OVERRIDES: dict[str, dict[str, Any]] = {
    "afm7": {"num_kv_reuse_layers": 2, "num_layers": 3},
    "afmoe": {"layer_types": _SLIDING_AND_FULL},
    "apertus": {"post_norm": False, "qk_norm": True},
    "baichuan_m1": {"sliding_window_layers": [0, 2], "conv_window": 2},
    "dbrx": {
        "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
    },
    "deepseek_v2": {"rope_scaling": _YARN, "topk_method": "greedy", "scoring_func": "softmax"},
    "exaone4": {"rope_scaling": None, "sliding_window_pattern": "LG"},
    "exaone_moe": {"layer_types": _SLIDING_AND_FULL, "is_moe_layer": [False, True] * 2},
    "gear": {"layer_types": ["sliding_attention", "conv_mixer", "full_attention", "conv_mixer"]},
    "gemma3": {"text_config": "(gemma3_text)"},
    "gemma3n": {
        "text_config": {
            "num_kv_shared_layers": 2,
            "rope_local_base_freq": 10000.0,
            "final_logit_softcapping": 30.0,
            "layer_types": _SLIDING_AND_FULL,
            "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0],
            "hidden_size_per_layer_input": 16,
            "altup_num_inputs": 2,
            "altup_coef_clip": 120.0,
            "altup_correct_scale": True,
            "altup_active_idx": 0,
            "laurel_rank": 8,
        }
    },
    "gemma4": {"text_config": "(gemma4_text)"},
    "gemma4_text": {
        "num_kv_shared_layers": 2,
        "layer_types": _SLIDING_AND_FULL,
        "hidden_size_per_layer_input": 16,
        "num_global_key_value_heads": 1,
    },
    "glm4_moe": {"rope_scaling": None},
    "glm_moe_dsa": {"rope_parameters": _ROPE},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "hunyuan": {
        "use_mixed_mlp_moe": True,
        "use_cla": True,
        "cla_share_factor": 2,
        "rope_scaling": {"type": "dynamic", "alpha": 1.0, "factor": 1.0},
    },
    "jamba": {
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
    },
    "kimi_k25": {"text_config": "(deepseek_v3)"},
    "kimi_k3": {"text_config": "(kimi_linear)"},
    "kimi_linear": {"linear_attn_config": _DELTA},
    "kimi_vl": {"text_config": "(deepseek_v3)"},
    "lfm2": {
        "block_dim": 64,
        "block_multiple_of": 32,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "full_attn_idxs": [1, 3],
    },
    "lfm2-vl": {"text_config": "(lfm2)"},
    "lfm2_moe": {"use_expert_bias": True, "full_attn_idxs": [1, 3]},
    "llama4": {
        "text_config": {
            "attention_chunk_size": 8,
            "interleave_moe_layer_step": 2,
            "rope_scaling": None,
            "num_experts_per_tok": 1,
        }
    },
    "llama4_text": {"no_rope_layers": [1, 1, 1, 0]},
    "longcat_flash": {
        "attention_method": "MLA",
        "zero_expert_type": "identity",
        "zero_expert_num": 2,
        "mla_scale_q_lora": True,
        "mla_scale_kv_lora": True,
        "num_layers": 2,
    },
    "longcat_flash_ngram": {
        "zero_expert_num": 2,
        "mla_scale_q_lora": True,
        "mla_scale_kv_lora": True,
        "num_layers": 2,
    },
    "mellum": {"layer_types": _SLIDING_AND_FULL, "rope_parameters": _ROPE_BY_TYPE},
    "mimo_v2_flash": {
        "hybrid_layer_pattern": [0, 1, 1, 0],
        "moe_layer_freq": [0, 1, 1, 1],
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 16,
        "swa_v_head_dim": 16,
    },
    "minicpm3": {"rope_scaling": {"short_factor": [1.0] * 4, "long_factor": [1.0] * 4}},
    "minimax_m3_vl": {
        "text_config": {
            "moe_layer_freq": [0, 1, 1, 1],
            "index_block_size": 4,
            "index_topk_blocks": 3,
            "sparse_attention_freq": [0, 1, 0, 1],
            "dense_intermediate_size": 96,
        }
    },
    "ministral3": {"rope_parameters": _YARN, "layer_types": _SLIDING_AND_FULL},
    "mistral3": {"text_config": "(ministral3)"},
    "mistral4": {"rope_parameters": _YARN},
    "muse_spark": {
        "text_config": {
            "layer_types": _SLIDING_AND_FULL,
            "rope_parameters": _ROPE,
            "layer_rope_theta": [10000.0, 0.0] * 2,
            "post_norm_eps": 1e-5,
            "final_logit_softcapping": 30.0,
            "output_multiplier": 1.0,
            "moe_hidden_size": 64,
            "num_shared_experts": 0,
        }
    },
    "nemotron": {"hidden_act": "relu2"},
    "nemotron-nas": {
        "block_configs": [
            {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.5}},
            {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.5}},
            {"attention": {"n_heads_in_group": 4}, "ffn": {"no_op": True}},
            {"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 1.0}},
        ]
    },
    "nemotron_h": {"hybrid_override_pattern": list("M*-EM*")},
    "olmo_hybrid": {
        "linear_allow_neg_eigval": True,
        "layer_types": ["linear_attention", "full_attention"] * 2,
    },
    "openelm": {
        "ffn_dim_divisor": 16,
        "num_query_heads": [4] * 4,
        "num_kv_heads": [2] * 4,
        "ffn_multipliers": [1.0] * 4,
    },
    "pixtral": {"text_config": "(llama)"},
    "plamo": {"n_shared_head": 2},
    "qwen3_5": {"text_config": {"full_attention_interval": 2, "num_experts": 0}},
    "qwen3_5_moe": {"text_config": {"full_attention_interval": 2}},
    "qwen3_next": {"full_attention_interval": 2},
    "qwen2_vl": {"text_config": "(qwen2)"},
    "recurrent_gemma": {
        "conv1d_width": 4,
        "logits_soft_cap": 30.0,
        "block_types": ["recurrent", "attention"],
    },
    "rwkv7": {
        "a_low_rank_dim": 8,
        "v_low_rank_dim": 8,
        "gate_low_rank_dim": 8,
        "decay_low_rank_dim": 8,
    },
    "spark2_5": {"layer_types": _SLIDING_AND_FULL, "rope_parameters": _ROPE_BY_TYPE},
    "step3p5": {"num_attention_groups": 2, "layer_types": _SLIDING_AND_FULL},
    "qwen3_vl": {"text_config": "(qwen3)"},
    "qwen3_vl_moe": {"text_config": "(qwen3_moe)"},
}


def make(name: str, seed: int = 0, **values: Any) -> nn.Module:
    """A tiny random float32 model of the architecture in ``mlx_lm.models.<name>``."""
    mx.random.seed(seed)
    module = importlib.import_module(f"mlx_lm.models.{name}")
    model = module.Model(module.ModelArgs.from_dict({**config(name), **values}))
    model.update(tree_map(_liven, model.parameters()))
    mx.eval(model.parameters())
    return model.eval()


def config(name: str) -> dict[str, Any]:
    """The tiny configuration of an architecture, as config.json would have it."""
    values = {"model_type": name, **VALUES, **OVERRIDES.get(name, {})}
    text = values.get("text_config")
    if isinstance(text, str):
        values["text_config"] = config(text.strip("()"))
    elif text is not None:
        values["text_config"] = {"model_type": name, **VALUES, **text}
    return copy.deepcopy(values)


def _liven(x: mx.array) -> mx.array:
    """Float32, and not zero throughout: gates and biases that begin as zeros would hide faults."""
    if not mx.issubdtype(x.dtype, mx.floating):
        return x
    return x.astype(mx.float32) if mx.any(x != 0) else 0.1 * mx.random.normal(x.shape)
