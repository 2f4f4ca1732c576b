"""Kills a training ten times: `python killing.py OUTPUT ARGUMENTS...`, with the arguments of the training command.

TensorFlow is imported once, and each training is a fork of this process, before TensorFlow has started any thread.
"""

from __future__ import annotations

import signal
import sys
import time
from multiprocessing import get_context

import numpy as np

import training.fit  # noqa: F401  what the children need not load each for itself
from calopipe import storage
from training.__main__ import main
from training.model_folder import last_checkpoint

_KILLS = 10


if __name__ == "__main__":
    random, output, arguments = np.random.default_rng(1), storage.location(sys.argv[1]), sys.argv[2:]
    for number in range(_KILLS):
        # twice while it starts; else while the steps after the first are done, written and noted
        steps, after_s = (0, random.uniform(0, 3)) if number in (0, 5) else (1, random.uniform(0, 0.1))
        aim = last_checkpoint(output) + steps
        child = get_context("fork").Process(target=main, args=(arguments,))
        child.start()
        while steps and last_checkpoint(output) < aim and child.is_alive():
            time.sleep(0.002)
        time.sleep(after_s)
        child.kill()
        child.join()
        if child.exitcode != -signal.SIGKILL:
            raise SystemExit(f"the training ended by itself, at step {last_checkpoint(output)}")
        print(f"killed at step {last_checkpoint(output)}", flush=True)
