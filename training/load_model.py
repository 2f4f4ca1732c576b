"""A trained model from its folder."""

from __future__ import annotations

from pathlib import Path

from training import model_folder
from training.model_folder import Card
from training.models.base import Model, build
from training.models.weights import load_weights


def load_model(place: Path) -> tuple[Card, Model]:
    """The card of the model in the folder `place`, and the model with its weights. No code of the folder is run."""
    card = model_folder.read_card(place)
    card.config.require_read(str(place))
    model = build(card.config, card.geometry, card.valid_range)
    load_weights(place, model.networks)
    return card, model
