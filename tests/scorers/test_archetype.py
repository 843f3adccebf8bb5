from __future__ import annotations

import math

import numpy as np
import pytest
from msi_scorers.archetype import axes_agreement, distribution
from msi_scorers.gallery import open_gallery

from msi_engine import PathView, ScoreContext
from msi_engine.errors import ConfigError
from msi_engine.plugins import find_scorers

SONG = "O my love, the night is cold, and my heart goes out to the sea, and still I sing, I sing!"
PROOF = "The bound is obtained by induction. It is therefore sufficient to examine the first case."


def scores(*segments, committed="", **options):
    scorer = find_scorers(["archetype"], {})["archetype"](ScoreContext(options=options))
    views = [PathView(i, "", committed, s, (), 0.0, False) for i, s in enumerate(segments)]
    return scorer.score(views)


@pytest.fixture
def gallery():
    return open_gallery(None, "archetypes.toml")


def test_it_ships_the_three_of_the_preprint(gallery):
    axes = {entry.name: entry.axes for entry in gallery.file.entries}
    assert axes == {
        "tide": {"E": 1, "T": 0},
        "compass": {"T": 1, "R": 1},
        "bloom": {"T": 1, "E": 1},
    }


def test_the_worked_example_of_the_docstring(gallery):
    agreement = axes_agreement(gallery)
    half = math.sqrt(0.5)
    expected = [[1, 0, half], [0, 1, 0.5], [half, 0.5, 1]]
    np.testing.assert_allclose(agreement, expected, atol=1e-12)
    assert np.array([0.6, 0.1, 0.3]) @ agreement[:, 0] == pytest.approx(0.812, abs=5e-4)


def test_it_is_the_expected_agreement_of_the_axes(gallery):
    shares = distribution(gallery, [SONG, PROOF])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    half = math.sqrt(0.5)
    assert scores(SONG, PROOF, target="tide") == pytest.approx(
        [share[0] + half * share[2] for share in shares]
    )


def test_a_text_agrees_with_its_archetype(gallery):
    for name, text in {"tide": SONG, "compass": PROOF}.items():
        [share] = distribution(gallery, [text])
        assert gallery.names[int(share.argmax())] == name
        assert scores(text, target=name)[0] > 0.8


def test_exemplars_left_out_are_recognised(gallery):
    """Each exemplar against targets made without it."""
    from msi_scorers.gallery import cosines

    vectors = [gallery.vectors(entry.exemplars) for entry in gallery.file.entries]
    for own, rows in enumerate(vectors):
        for left_out, row in enumerate(rows):
            targets = gallery.targets.copy()
            targets[own] = np.delete(rows, left_out, axis=0).mean(axis=0)
            assert cosines(row[None], targets).argmax() == own


def test_a_text_without_words_is_spread_evenly(gallery):
    np.testing.assert_allclose(distribution(gallery, ["", "1"]), 1 / 3)


def test_the_control_is_another_archetype():
    others = [scores(SONG, target=name)[0] for name in ("compass", "bloom")]
    given = [
        scores(SONG, target="tide", control="shuffle", control_seed=seed)[0] for seed in (0, 1)
    ]
    assert given == others


def test_scope_chooses_what_is_judged():
    [segment] = scores(PROOF, committed=SONG + " ", target="compass", scope="segment")
    [text] = scores(PROOF, committed=SONG + " ", target="compass")
    assert segment == scores(PROOF, target="compass")[0] > text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[[archetype]]\nname = "tide"\nexemplars = ["One text."]', "'tide' has no axes"),
        ('[[archetype]]\nname = "ebb"\naxes = {E = 1}\nexemplars = ["One."]', "no target 'tide'"),
        ("temperature = 0\n", "temperature"),
    ],
)
def test_a_bad_file_is_one_line(content, message, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message) as caught:
        scores("x", target="tide", file=str(path))
    assert "\n" not in str(caught.value)


def test_a_lower_temperature_is_sharper(tmp_path, gallery):
    from msi_scorers.archetype import DEFAULT_FILE
    from msi_scorers.gallery import make_gallery

    assert DEFAULT_FILE == "archetypes.toml"
    cold = make_gallery(gallery.file.model_copy(update={"temperature": 0.05}))
    assert distribution(cold, [SONG]).max() > distribution(gallery, [SONG]).max()
