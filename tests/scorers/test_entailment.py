"""Scorer `entailment`: its formula, its one batch, its judge from a real cross-encoder."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
from msi_scorers import cross_encoder
from msi_scorers.cross_encoder import find_cross_encoder
from msi_scorers.entailment import EntailmentScorer
from msi_scorers.entailment_options import EntailmentOptions

from msi_engine import DecodeConfig, PathView, ScoreContext
from msi_engine.errors import ConfigError
from msi_engine.events import Collapsed
from msi_engine.evidence import as_evidence
from msi_engine.plugins import find_scorers
from msi_engine.testing import ToyModel, ToyTokenizer, check_scorer, run_toy

THERE = importlib.util.find_spec("sentence_transformers") is not None
needs_library = pytest.mark.skipif(not THERE, reason='needs: pip install "llm-msi[rag]"')
CHUNKS = ("The tide comes from the Moon.", "Tea is a drink.")


class SharedWords:
    """A judge without a model: the share of the second text's words that the first has."""

    def __init__(self):
        self.asked = []

    def judge(self, pairs):
        self.asked.append(list(pairs))
        return [self.one(*pair) for pair in pairs]

    @staticmethod
    def one(premise, text):
        words = text.casefold().split()
        return sum(word in premise.casefold().split() for word in words) / len(words)


def view(segment, committed="", index=0):
    return PathView(index, "p", committed, segment, (1,), -1.0, False)


def entailment(judge, evidence=CHUNKS, **options):
    return EntailmentScorer(EntailmentOptions(model="own", **options), as_evidence(evidence), judge)


def test_the_best_chunk_counts():
    scorer = entailment(SharedWords())
    texts = ["the tide comes from tea", "tea is a drink.", "rain"]
    assert scorer.score([view(text) for text in texts]) == [pytest.approx(0.8), 1.0, 0.0]


def test_every_new_text_is_judged_once_with_every_chunk_in_one_call():
    judge = SharedWords()
    scorer = entailment(judge)
    scorer.score([view("tea"), view(" tea \n", index=1), view("tide"), view(""), view("...")])
    assert judge.asked == [[(c, t) for t in ("tea", "tide") for c in CHUNKS]]
    scorer.score([view("tide"), view("tea")])
    assert len(judge.asked) == 1


def test_scope_text_judges_the_whole_answer_and_a_stop_what_was_said():
    judge = SharedWords()
    path = view(" is a drink.", "Tea")
    whole, stop = entailment(judge, scope="text").score([path, view("", "Tea is a drink.")])
    assert whole == stop == 1.0
    assert entailment(judge).score([view("", "Tea is rain")]) == [pytest.approx(2 / 3)]


def test_the_control_never_sees_the_evidence():
    judge = SharedWords()
    entailment(judge, control="shuffle", control_evidence=["Rain falls."]).score([view("tea")])
    assert judge.asked == [[("Rain falls.", "tea")]]
    other = SharedWords()
    entailment(other, control="shuffle").score([view("tea")])
    premises = {premise for premise, _ in other.asked[0]}
    assert len(premises) == len(CHUNKS)
    assert not premises & set(CHUNKS)


@pytest.mark.parametrize("options", [{}, {"scope": "text"}, {"control": "shuffle"}], ids=str)
def test_it_keeps_the_contract(options):
    def factory(context):
        own = EntailmentOptions(model="own", **context.options)
        return EntailmentScorer(own, context.evidence, SharedWords())

    check_scorer(factory, options=options, evidence=CHUNKS)


TOKENIZER = ToyTokenizer((" the", " tide", " moon", " tea", " is", " a", "!", ".", "</s>"))


@pytest.mark.parametrize("law", ["mean", "paper"])
def test_scores_at_once_late_and_at_the_boundary_are_the_same(law):
    def run(score_every):
        config = DecodeConfig(
            k=4, max_tokens=40, segment_length=10, boundary=(), temperature=1.0, spawn_min_p=0.0,
            law=law, score_every=score_every, scorers={"mine": 10.0},
        )  # fmt: skip
        judge = SharedWords()
        toy = ToyModel.seeded(TOKENIZER.size, 2, scale=1.0)
        own = {"mine": lambda _: entailment(judge)}
        events = list(run_toy(config, toy, TOKENIZER, seed=7, scorers=own))
        return [e for e in events if isinstance(e, Collapsed)], len(judge.asked)

    (expected, most), *others = map(run, (1, 4, 4096))
    assert len({p.signals["mine"] for c in expected for p in c.paths}) > 3
    for given, calls in others:
        assert calls < most
        assert [c.text for c in given] == [c.text for c in expected]
        signals = [[p.signals["mine"] for p in c.paths if p.status != "dropped"] for c in given]
        assert signals == [
            [p.signals["mine"] for p in c.paths if p.status != "dropped"] for c in expected
        ]


@pytest.mark.parametrize("given", [[0.5], [0.5, math.nan], [0.5, 1.5], [[0.5, 0.5]]])
def test_a_judge_that_returns_something_else_is_refused(given):
    class Wrong:
        def judge(self, pairs):
            return given

    with pytest.raises(ValueError, match="the judge returned"):
        entailment(Wrong()).score([view("tea")])


def made(evidence=CHUNKS, **options):
    context = ScoreContext(options=options, evidence=as_evidence(evidence))
    return find_scorers(["entailment"], {})["entailment"](context)


def test_a_model_must_be_named_and_evidence_given():
    with pytest.raises(ConfigError, match="options of scorer 'entailment': `model`"):
        made()
    with pytest.raises(ConfigError, match="needs evidence"):
        made([], model="x")


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cross_encoder, "_LOADED", {})
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "sentence_transformers" else real(name, *rest),
    )
    with pytest.raises(ConfigError, match=r'needs sentence-transformers: pip install "llm-msi'):
        made(model="cross-encoder/nli-deberta-v3-small")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Make a cross-encoder of random weights in a folder: ``tiny(labels)``."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    words = " ".join(CHUNKS).replace(".", " .").casefold().split()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(words)]

    def make(labels):
        folder = tmp_path_factory.mktemp("cross")
        (folder / "vocab.txt").write_text("\n".join(vocabulary))
        BertTokenizer(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
        config = BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
            num_labels=len(labels),
            id2label=dict(enumerate(labels)),
            label2id={label: place for place, label in enumerate(labels)},
            initializer_range=0.5,
        )
        torch.manual_seed(0)
        BertForSequenceClassification(config).save_pretrained(folder)
        return folder

    return make


def logits(folder, pairs):
    """What the model itself says, one pair at a time, without sentence-transformers."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        rows = [
            model(**tokenizer(*pair, return_tensors="pt", truncation=True)).logits[0].numpy()
            for pair in pairs
        ]
    return np.array(rows, dtype=np.float64)


PAIRS = [(chunk, text) for chunk in CHUNKS for text in ("tea is a drink.", "the moon", "tide")]


@needs_library
class TestCrossEncoder:
    """The real library on a tiny model."""

    @pytest.mark.parametrize(
        "labels", [("contradiction", "entailment", "neutral"), ("Entailment", "not_entailment")]
    )
    def test_of_labels_it_is_the_softmax_of_entailment(self, tiny, labels):
        folder = tiny(labels)
        place = [label.casefold() for label in labels].index("entailment")
        raw = np.exp(logits(folder, PAIRS))
        expected = raw[:, place] / raw.sum(axis=1)
        judged = find_cross_encoder(str(folder)).judge(PAIRS)
        assert judged == pytest.approx(expected, abs=1e-5)
        assert np.ptp(expected) > 0.01  # else any number would do
        again = find_cross_encoder(str(folder), label=place).judge(PAIRS)
        assert again == pytest.approx(judged)

    def test_of_one_score_it_is_the_sigmoid(self, tiny):
        folder = tiny(("LABEL_0",))
        raw = logits(folder, PAIRS)[:, 0]
        judged = find_cross_encoder(str(folder)).judge(PAIRS)
        assert judged == pytest.approx(1 / (1 + np.exp(-raw)), abs=1e-5)
        assert np.ptp(judged) > 0.01

    def test_labels_that_say_nothing_need_a_number(self, tiny):
        folder = str(tiny(("LABEL_0", "LABEL_1", "LABEL_2")))
        with pytest.raises(ConfigError, match=r"which of its labels.*LABEL_1.*option `label`"):
            find_cross_encoder(folder)
        with pytest.raises(ConfigError, match="has no label 3; it has 0 to 2"):
            find_cross_encoder(folder, label=3)
        assert len(find_cross_encoder(folder, label=1).judge(PAIRS)) == len(PAIRS)

    def test_one_score_has_no_other_label(self, tiny):
        with pytest.raises(ConfigError, match="has one score, and no label 1"):
            find_cross_encoder(str(tiny(("LABEL_0",))), label=1)

    def test_the_scorer_keeps_the_contract_on_it(self, tiny):
        folder = str(tiny(("contradiction", "entailment", "neutral")))
        factory = find_scorers(["entailment"], {})["entailment"]
        check_scorer(factory, options={"model": folder}, evidence=CHUNKS)
        check_scorer(factory, options={"model": folder, "control": "shuffle"}, evidence=CHUNKS)

    def test_a_model_that_cannot_be_loaded_is_one_line(self, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(ConfigError, match=r"cross-encoder .* cannot be loaded") as caught:
            find_cross_encoder(str(tmp_path))
        assert "\n" not in str(caught.value)
