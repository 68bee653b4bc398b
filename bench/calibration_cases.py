"""The networks and cases of bench/calibration.py."""

from typing import NamedTuple


class Network(NamedTuple):
    """Hosts on one switch; `slower`: (host, rate) of hosts with another rate."""
    name: str
    hosts: int
    rate: str
    slower: tuple = ()


class Operation(NamedTuple):
    """`gradwire bench COLLECTIVE --algorithm A --sizes S`."""
    collective: str
    algorithm: str
    size: str

    def name(self):
        return f"{self.collective} {self.algorithm} {self.size}"


class Step(NamedTuple):
    """`gradwire bench step`. `algorithm`: that of all-reduces, or auto."""
    profile: str
    compute_ms: int
    codec: str = "none"
    overlap: str = "full"
    accumulate: int = 1
    local_steps: int = 1
    fragments: int = 1
    overlap_steps: int = 0
    algorithm: str = "auto"

    def name(self):
        parts = [self.profile, f"{self.compute_ms} ms", self.codec, self.overlap]
        if self.accumulate > 1:
            parts.append(f"{self.accumulate} passes")
        if self.local_steps > 1:
            parts.append(f"every {self.local_steps} steps")
        if self.fragments > 1:
            parts.append(f"{self.fragments} fragments")
        if self.overlap_steps > 0:
            parts.append(f"{self.overlap_steps} overlap")
        if self.algorithm != "auto":
            parts.append(self.algorithm)
        return ", ".join(parts)


def operations(collective, algorithms, sizes):
    return [Operation(collective, a, s) for a in algorithms for s in sizes]


GRID = {
    Network("2 x 1 Gb/s", 2, "1gbit"): [
        *operations("all_reduce", ["ring", "recursive_doubling"], ["256K", "16M"]),
        Step("resnet50", 500, algorithm="ring"),
        Step("resnet50", 1000, overlap="none"),
        Step("vit_s", 400, codec="int8"),
        Step("resnet50", 300, codec="bf16", overlap="backward"),
    ],
    Network("3 x 500 Mb/s", 3, "500mbit"): [
        *operations("all_reduce", ["ring", "direct", "tree"], ["1M", "8M"]),
        *operations("all_gather", ["ring"], ["8M"]),
        *operations("all_to_all", ["direct"], ["8M"]),
        Step("resnet50", 1500, algorithm="ring"),
        Step("vit_s", 1200, codec="bf16"),
        Step("resnet50", 600, codec="int4"),
        Step("resnet50", 1500, codec="int8", overlap="none"),
    ],
    Network("4 x 1 Gb/s", 4, "1gbit"): [
        *operations("all_reduce", ["ring", "direct", "halving_doubling", "double_tree"],
                    ["1M", "16M"]),
        *operations("reduce_scatter", ["ring"], ["16M"]),
        *operations("all_to_all", ["direct"], ["1M", "16M"]),
        *operations("all_gather", ["direct"], ["8M"]),
        Step("resnet50", 585, codec="bf16"),
        Step("resnet50", 585, codec="int8"),
        Step("resnet50", 585, overlap="none", algorithm="ring"),
        Step("resnet50", 585, overlap="backward", algorithm="ring"),
        Step("resnet50", 234, algorithm="ring"),
        Step("resnet101", 1200, codec="bf16", accumulate=2),
    ],
    Network("4 x 2.5 Gb/s", 4, "2.5gbit"): [
        *operations("all_reduce", ["ring", "halving_doubling"], ["1M", "16M"]),
        *operations("all_to_all", ["direct"], ["4M"]),
        *operations("all_gather", ["direct"], ["16M"]),
        Step("resnet50", 936),
        Step("resnet50", 400, algorithm="ring"),
        Step("resnet50", 936, overlap="none", algorithm="ring"),
        Step("gpt2", 1500, algorithm="ring"),
        Step("vit_b", 800, codec="bf16"),
    ],
    Network("4 x 1 Gb/s, one 500 Mb/s", 4, "1gbit", ((3, "500mbit"),)): [
        *operations("all_reduce", ["ring", "uneven", "spanning_trees"], ["8M"]),
        Step("resnet50", 800, algorithm="ring"),
        Step("resnet50", 600, codec="int8"),
    ],
    Network("6 x 500 Mb/s", 6, "500mbit"): [
        *operations("all_reduce", ["ring", "halving_doubling"], ["1M", "8M"]),
        *operations("all_to_all", ["direct"], ["8M"]),
        Step("resnet50", 1500, algorithm="ring"),
        Step("vit_s", 700, codec="int4"),
        Step("resnet50", 1200, codec="bf16", overlap="backward"),
    ],
    Network("8 x 250 Mb/s", 8, "250mbit"): [
        *operations("all_reduce", ["ring", "direct", "halving_doubling"], ["1M", "4M"]),
        *operations("all_gather", ["ring"], ["8M"]),
        Step("resnet50", 936, codec="int4"),
        Step("resnet50", 1500, codec="int8"),
        Step("vit_s", 2500, algorithm="ring"),
        Step("resnet50", 936, codec="top_k:0.01"),
        Step("resnet50", 936, codec="int8", local_steps=8),
        Step("resnet50", 936, codec="int8", local_steps=8, fragments=2, overlap_steps=1),
    ],
}


def count():
    return sum(len(cases) for cases in GRID.values())
