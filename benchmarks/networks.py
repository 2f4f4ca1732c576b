"""A network of several hosts on one machine, with the delay and the rate of a real one. Linux, root.

Each host is a network namespace with one TUN device. A thread, the switch, carries packets between the hosts: a packet
leaves at the rate of its sender's link, after the packets before it, and arrives after the delay. The kernel's own
emulator of delay, netem, is not in every kernel: `tc qdisc add dev lo root netem delay 1ms` then says "Specified qdisc
kind is unknown". The switch costs processor time and about 0.1 ms a packet: compare with the network `UNSHAPED`, which
also goes through the switch.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import math
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_TUNSETIFF, _IFF_TUN_NO_PI = 0x400454CA, 0x1001  # of <linux/if_tun.h>
_PR_SET_TIMERSLACK = 29  # of <linux/prctl.h>
_AT_ONCE = 32  # packets that are read from one device before the next device has its turn


@dataclass(frozen=True)
class Network:
    """The one-way delay in seconds and the rate in bytes/s of every link."""

    name: str
    delay_s: float = 0.0
    rate: float = math.inf


UNSHAPED = Network("unshaped")
NETWORKS = (
    UNSHAPED,
    Network("50 us, 10 Gbit/s", 50e-6, 1.25e9),
    Network("250 us, 1 Gbit/s", 250e-6, 125e6),
    Network("1 ms, 100 Mbit/s", 1e-3, 12.5e6),
)


class Switch:
    """The hosts' addresses, and the `network` between the hosts, which may be changed at any time."""

    def __init__(self, namespaces: Sequence[str], devices: Sequence[int]) -> None:
        self.namespaces, self._devices = namespaces, devices
        self.network = UNSHAPED
        self.packets = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="switch")
        self._thread.start()

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` on a host."""
        return ["ip", "netns", "exec", self.namespaces[host], *command]

    def round_trip_s(self) -> float:
        """Median time that one byte takes over TCP from the first host to the second and back."""
        server = [sys.executable, "-c", _ECHO, self.address(1)]
        client = [sys.executable, "-c", _ASK, self.address(1)]
        with subprocess.Popen(self.command(1, server)) as echo:
            try:
                return float(subprocess.run(self.command(0, client), check=True, capture_output=True).stdout)
            finally:
                echo.kill()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _carry(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000)  # nanoseconds by which this thread may wake late
        number = itertools.count()
        waiting: list[tuple[float, int, int, bytes]] = []  # time of arrival, order, host, packet
        free = [0.0] * len(self._devices)  # when each host's link has sent all it was given
        while not self._ended.is_set():
            patience = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.1
            for device in select.select(self._devices, [], [], patience)[0]:
                source = self._devices.index(device)
                for packet in itertools.islice(_packets(device), _AT_ONCE):
                    target = packet[19] - 1  # the last byte of the address that an IPv4 packet goes to
                    if packet[0] >> 4 == 4 and target < len(self._devices):
                        free[source] = max(time.monotonic(), free[source]) + len(packet) / self.network.rate
                        arrival = free[source] + self.network.delay_s
                        heapq.heappush(waiting, (arrival, next(number), self._devices[target], packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, device, packet = heapq.heappop(waiting)
                self.packets += 1
                with suppress(OSError):  # a device that is full or gone loses the packet
                    os.write(device, packet)


def _packets(device: int) -> Iterator[bytes]:
    with suppress(BlockingIOError):
        while True:
            yield os.read(device, 65536)


_ECHO = """
import socket, sys
with socket.create_server((sys.argv[1], 7)) as server, server.accept()[0] as connection:
    while byte := connection.recv(1):
        connection.sendall(byte)
"""
_ASK = """
import socket, statistics, sys, time
def connect():
    for _ in range(200):
        try:
            return socket.create_connection((sys.argv[1], 7))
        except OSError:
            time.sleep(0.1)
times = []
with connect() as connection:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(200):
        began = time.perf_counter()
        connection.sendall(bytes(1))
        connection.recv(1)
        times.append(time.perf_counter() - began)
print(statistics.median(times))
"""


@contextmanager
def hosts(count: int, *, mtu: int = 9000) -> Iterator[Switch]:
    """`count` hosts that a switch joins. After the block they are gone, with all processes that run on them."""
    names = [f"calopipe-{os.getpid()}-{host}" for host in range(count)]
    devices: list[int] = []
    try:
        for host, name in enumerate(names):
            devices.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
            device = f"calo{os.getpid() % 100000}-{host}"
            fcntl.ioctl(devices[-1], _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TUN_NO_PI))
            _ip("netns", "add", name)
            _ip("link", "set", device, "netns", name)
            _ip("-n", name, "addr", "add", f"10.77.0.{host + 1}/24", "dev", device)
            _ip("-n", name, "link", "set", device, "mtu", str(mtu), "txqueuelen", "10000", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        switch = Switch(names, devices)
        try:
            yield switch
        finally:
            switch.stop()
    finally:
        for opened in devices:
            os.close(opened)
        for name in names:
            for process in _ip("netns", "pids", name, check=False).split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            _ip("netns", "del", name, check=False)


def _ip(*arguments: str, check: bool = True) -> str:
    """Run the command `ip`, and return its output."""
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)  # noqa: S607  of the system
    if check and done.returncode:
        raise SystemExit(f"ip {' '.join(arguments)}: {done.stderr.strip()}; run as root")
    return done.stdout
