"""The links, sizes and targets of bench/results.py."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Links:
    """Hosts and the links between them; without hosts, ranks of this machine."""
    name: str
    title: str
    sizes: tuple
    hosts: int = 0
    ranks: int = 0
    rate: str = ""
    nics: int = 1
    slower: tuple = ()  # (rate, host or "all", rail) of links that differ.
    limit_gbps: float = 0.0  # All links of a host together, in one direction.
    peers: tuple = ("gloo", "mpi")

    @property
    def interfaces(self):
        return ",".join(f"gw{rail}" for rail in range(self.nics))


@dataclasses.dataclass(frozen=True)
class Case:
    """A row of the table. `measure`: us, ms, share (busbw in percent of the limit), or cpu (CPU
    time relative to Gloo's)."""
    links: str
    size: int
    measure: str
    target: float


MB = 1_000_000
LINKS = (
    Links("1g", "4 hosts, 1 Gb/s", (4, 4096, 1 << 20, 100 * MB), 4, rate="1gbit", limit_gbps=1),
    Links("2.5g", "4 hosts, 2.5 Gb/s", (65536, 16 << 20, 100 * MB), 4, rate="2.5gbit",
          limit_gbps=2.5),
    Links("5g", "4 hosts, 5 Gb/s", (100 * MB,), 4, rate="5gbit", limit_gbps=5),
    Links("10g", "2 hosts, 10 Gb/s", (100 * MB,), 2, rate="10gbit", limit_gbps=10),
    Links("2x1g", "4 hosts, 2 x 1 Gb/s, one operation", (100 * MB,), 4, rate="1gbit", nics=2,
          limit_gbps=2),
    Links("1+0.4g", "4 hosts, 1 + 0.4 Gb/s, one operation", (100 * MB,), 4, rate="1gbit", nics=2,
          slower=(("400mbit", "all", 1),), limit_gbps=1.4),
    Links("half", "4 hosts, 1 Gb/s, one of them 500 Mb/s", (100 * MB,), 4, rate="1gbit",
          slower=(("500mbit", 3, 0),), limit_gbps=1),
    Links("2 ranks", "one machine, 2 ranks", (4, 65536, 1 << 20, 100 * MB), ranks=2),
    Links("4 ranks", "one machine, 4 ranks", (65536, 1 << 20, 100 * MB), ranks=4),
    Links("64 ranks", "one machine, 64 ranks", (4, 65536, 1 << 20), ranks=64, peers=()),
)

CASES = (
    Case("1g", 4, "us", 60),
    Case("1g", 4096, "us", 90),
    Case("2.5g", 65536, "us", 335),
    Case("1g", 1 << 20, "share", 95),
    Case("2.5g", 16 << 20, "share", 95),
    Case("1g", 100 * MB, "share", 95.3),
    Case("2.5g", 100 * MB, "share", 95.3),
    Case("5g", 100 * MB, "share", 94),
    Case("10g", 100 * MB, "share", 90),
    Case("2x1g", 100 * MB, "share", 95),
    Case("1+0.4g", 100 * MB, "share", 93),
    Case("half", 100 * MB, "ms", 1800),
    Case("1g", 100 * MB, "cpu", 0.7),
    Case("2 ranks", 4, "us", 1),
    Case("2 ranks", 65536, "us", 12),
    Case("2 ranks", 1 << 20, "us", 100),
    Case("2 ranks", 100 * MB, "ms", 25),
    Case("4 ranks", 65536, "us", 45),
    Case("4 ranks", 1 << 20, "us", 300),
    Case("4 ranks", 100 * MB, "ms", 65),
)

# The rows of the README: gradwire faster, as fast, and slower.
README = tuple(case for case in CASES if (case.links, case.size, case.measure) in {
    ("1g", 4, "us"), ("1g", 4096, "us"), ("2.5g", 65536, "us"), ("1g", 1 << 20, "share"),
    ("2.5g", 100 * MB, "share"), ("5g", 100 * MB, "share"), ("10g", 100 * MB, "share"),
    ("half", 100 * MB, "ms"), ("1+0.4g", 100 * MB, "share"), ("2 ranks", 100 * MB, "ms")})

# Every collective is compared with Gloo, at these sizes, on these links.
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
               "scatter", "all_to_all", "barrier", "point_to_point")
COLLECTIVE_SIZES = (4, 4096, 65536, 1 << 20, 16 << 20)
COLLECTIVE_LINKS = "1g"

# The tuner's choice is compared with every fixed algorithm, at these sizes, on these links.
TUNER_LINKS = ("1g", "2.5g", "half", "2 ranks", "4 ranks")
TUNER_SIZES = (4, 1024, 16384, 256 << 10, 4 << 20)


def links_named(name):
    return next(links for links in LINKS if links.name == name)
