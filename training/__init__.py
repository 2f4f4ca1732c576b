"""Dataset to model to showers: networks, physics in the loss, engine, checkpoints, generation, registry."""

import os

# TensorFlow leaves oneDNN off on processors without AVX-512, where its own 3-D convolutions are 3 to 200 times slower.
# It reads this variable when it is first imported.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
