"""Calls that must not be made directly, and their replacements."""

import re
from typing import NamedTuple

from tree import CPP, blank, code_of


class Ban(NamedTuple):
    """`call` must not occur in files that match `where`, except in files that match `but` and in
    expressions that match `fine`."""
    call: str
    instead: str
    where: str = r"^src/gradwire/"
    but: str = r"^$"
    fine: str = r"$^"


# Everything that a simulation or a test must control is an argument; everything that blocks or has
# effects outside the process is in one place.
BANS = [
    Ban(r"\b(steady|system|high_resolution)_clock::now\b|\b(gettimeofday|clock_gettime)\s*\(",
        "take a Clock as an argument (base/clock.h)", but=r"/base/clock\.cpp$"),
    Ban(r"(?<![\w.>])s?rand\s*\(|\brandom_device\b|\bmt19937",
        "take a Random as an argument (base/random.h); for secrets OpenSSL's RAND_bytes",
        where=r"^(src|tests|bench)/"),
    Ban(r"\b(secure_)?getenv\s*\(", "take an Environment as an argument (bootstrap/job.h)",
        but=r"/(bootstrap/job\.cpp|cli/[\w/]+\.cpp)$"),
    Ban(r"\bsleep_(for|until)\b|(?<![\w.>])(usleep|nanosleep|sleep)\s*\(",
        "wait for the event itself", where=r"^(src|tests|bench)/"),
    Ban(r"\b(v?f?printf|f?puts|putchar|perror)\s*\(|\b(cout|cerr|clog)\b",
        "return it, or log it (base/log.h): only commands print",
        but=r"/(cli/|base/(check|log)\.cpp)"),
    Ban(r"\b(sprintf|snprintf|strcpy|strcat|atoi|atol|atof|gets)\s*\(",
        "use fmt::format, std::string and std::from_chars", where=r"^(src|tests|bench|examples)/"),
    # make_unique cannot call a private constructor.
    Ban(r"\bnew\s+[\w:(]|(?<!=)(?<!= )\bdelete\b", "own it with std::make_unique or make_shared",
        where=r"^(src|tests|bench|examples)/",
        fine=r"\b(unique|shared)_ptr<[\w:\[\]]+>( \w+)?\(\s*new\b"),
    Ban(r"\busing namespace\b(?! std::(\w+_)?literals)", "name the namespace",
        where=r"^(src|tests|bench|examples)/"),
    Ban(r"(?<![\w>])::(connect|send(to|msg)?|recv(from|msg)?|bind|listen|accept4?|socket"
        r"|setsockopt|getaddrinfo|epoll_\w+)\s*\("
        r"|(?<![\w:.>])(epoll_\w+|accept4|getaddrinfo|setsockopt|sendmsg|recvmsg)\s*\(",
        "use the sockets of net/", but=r"/(net/|bootstrap/mesh/port_switch\.cpp$)"),
]

# The simulator, the server and the tests drive the same rounds of federated learning.
PHASES = r"\b(selecting|configuring|collecting|uploading)\b"
ROUNDS = r"^(src|tests|bench|examples|python)/"
COUNTS = r"\brecord_?\.(checked_in|asked|ready|used|stopped|dropped|is_abandoned)\b"
BANS += [
    Ban(rf"\benum\b[^;{{}}]*\{{[^}}]*{PHASES}[^}}]*{PHASES}",
        "drive the state machine of federated/round.h", where=ROUNDS, but=r"/federated/round\.h$"),
    Ban(rf"{COUNTS}\s*([-+]?=(?!=)|\+\+|--)|(\+\+|--)\s*(\w+\.)*{COUNTS}",
        "a Round counts its clients and decides how it ends (federated/round.h)", where=ROUNDS,
        but=r"/federated/round\.cpp$"),
]


def banned_calls(path, text):
    """Yields (line, message)."""
    if path.suffix not in CPP:
        return
    name = path.as_posix()
    for ban in BANS:
        if re.search(ban.where, name) and not re.search(ban.but, name):
            code = re.sub(ban.fine, blank, code_of(text))
            for found in re.finditer(ban.call, code):
                line = code.count("\n", 0, found.start()) + 1
                yield line, f"{found.group(0).strip()}: {ban.instead}"
