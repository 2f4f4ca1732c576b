"""The benchmark of scaling: its model of a collective, and the emulated network."""

from __future__ import annotations

import os
import subprocess

import pytest
from networks import Network, hosts
from scaling import fitted, predicted_s


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_the_model_is_a_ring_round_by_round(workers: int) -> None:
    """In each round every worker hands on one of n parts: n - 1 rounds add, and n - 1 rounds spread the sums."""
    rounds = [1e-4 + (6e6 / workers) / 1e9 for _ in range(2 * (workers - 1))]
    assert predicted_s(workers, 6e6, 1e-4, 1e9) == pytest.approx(sum(rounds))


def test_a_fit_finds_what_the_times_were_made_with() -> None:
    seconds = {size: predicted_s(4, size, 3e-4, 2e8) for size in (4, 10_000, 10_000_000)}
    assert fitted(4, seconds) == pytest.approx((3e-4, 2e8), rel=1e-6)


def test_an_emulated_network_delays_and_is_gone_afterwards() -> None:
    if os.geteuid():
        pytest.skip("network namespaces need root")
    try:
        with hosts(2) as switch:
            switch.network = Network("slow", delay_s=0.02)
            assert switch.round_trip_s() >= 0.04
            names = switch.namespaces
    except (OSError, SystemExit) as error:
        pytest.skip(f"no network namespaces here: {error}")
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not [name for name in names if name in listed]
