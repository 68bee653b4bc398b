"""Nothing is ambient: time, randomness and the environment are arguments, and no object is global.

For C++ this looks at what the compiler made of the sources, so that no spelling evades it.
"""

import ast
import functools
import pathlib
import re
import subprocess
from typing import NamedTuple

from tree import CPP, ROOT, code_of, read

# Functions of the process's surroundings, as linkers know them, and the sources that may call them.
CALLS = [
    (r"std::chrono::_V2::\w+_clock::now\(\)|clock_gettime|gettimeofday|time|clock",
     "take a Clock as an argument (base/clock.h)",
     # Headers read it: libstdc++'s to wait on a condition variable until a time, and c10d's.
     r"/(base/(clock|cpu_time)|engine/(progress|solo_engine)|mpi/driver|torch/\w+)\.cpp$"),
    (r"s?rand|s?random|[dlm]rand48|std::random_device::.*",
     "take a Random as an argument (base/random.h); for secrets OpenSSL's RAND_bytes", r"^$"),
    (r"(secure_)?getenv|environ|__environ", "take an Environment as an argument (bootstrap/job.h)",
     # Commands read it, and so does the header of CLI11.
     r"/(bootstrap/job\.cpp$|cli/)"),
    (r"(nano|u|clock_nano)?sleep", "wait for the event itself",
     r"/emulation/emulated_device\.cpp$"),  # It takes as long as the device that it emulates.
]

# Objects that live as long as the process and change, and why they may.
MUTABLE = {
    r"own_sink\(\)::sink$": "the log belongs to the process, like stderr, where it goes otherwise",
    r"handlers\(\)::all$": "pthread_atfork handlers cannot be removed, nor take an argument",
    r"reducers\(\)::those$": "the reducers of modules that share a parameter must find each other",
    r"\(anonymous namespace\)::current(_meter)?$": "of one thread, as the modes of autograd",
    r"\(anonymous namespace\)::(received_signal|stop_pipe)$":
        "a handler of signals takes no argument",
    r"mpi::\(anonymous namespace\)::started(_mutex)?$": "a process can initialize MPI only once",
    r"seeded_model\(.*::generator$": "libtorch has one generator of random numbers per process",
    r"\(anonymous namespace\)::(installed|last_scope)$": "libtorch has one allocator per process",
}

# The types that reach the host's clock and sockets. They are made where a program or a library call
# begins, and handed on from there.
HOST_TYPES = re.compile(r"\b(SteadyClock|KernelNetwork)\b")
ENTRY_POINTS = re.compile(
    r"^src/gradwire/(base/clock\.|net/host_network\."
    r"|comm/(communicator|devices/device_communicators)\.cpp$"
    # Commands, and processes that one starts.
    r"|cli/.*_command\.cpp$|cli/launch/(launch|watcher)\.cpp$|cli/launch/captured\.cpp$"
    r"|cli/bench/collective_bench\.cpp$"
    # Calls by PyTorch and Python; options of the classes that users construct.
    r"|torch/|recipe/|emulation/emulated_device\.h$|exchange/auto_exchange\.cpp$"
    r"|host/training_host\.h$|train/federated/federated_client\.cpp$"
    r"|train/(local_sgd/local_sgd|data_parallel/data_parallel|zero/zero_module)\.h$"
    r"|train/servers/served_module\.h$)")

PYTHON_CALLS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
             "sleep"},
    "os": {"environ", "environb", "getenv", "putenv", "urandom"},
    "random": None,  # All of it.
    "datetime.datetime": {"now", "utcnow", "today"},
    "datetime.date": {"today"},
}
# Where Python, PyTorch or a user enters; and the measurements of bench/, which are programs.
PYTHON_ENTRY_POINTS = re.compile(
    r"^(python/gradwire/(program|rendezvous|buckets)\.py$|bench/|examples/|tests/)")


class Symbol(NamedTuple):
    object: str
    name: str
    kind: str  # "U": used, not defined.
    section: str


def symbols(objects):
    """Returns the symbols of object files."""
    if not objects:
        return []
    done = subprocess.run(["nm", "-A", "-C", "-f", "sysv", *map(str, objects)], text=True,
                          capture_output=True, check=True)
    found = []
    for line in done.stdout.splitlines():
        cells = [cell.strip() for cell in line.rsplit("|", 6)]
        if len(cells) == 7 and ":" in cells[0]:
            path, _, name = cells[0].partition(":")
            found.append(Symbol(path, name, cells[2], cells[6]))
    return found


def declared_const(name, text):
    """Returns True if C++ declares an object of that name constant: a constructor may fill it, in
    writable memory, before or when it is first used."""
    variable = re.escape(re.sub(r"\[abi:\w+\]$", "", name).split("::")[-1])
    return bool(re.search(rf"\bconst(expr)?\b[^;=()]*\b{variable}\b", text))


def mutable_objects(found, text_of=lambda path: ""):
    """Yields violations: objects in writable memory that the sources of their
    object file, text_of(path), do not declare constant."""
    for symbol in found:
        writable = re.match(r"\.t?(bss|data)\b(?!\.rel\.ro)", symbol.section)
        ours = "gradwire::" in symbol.name and not re.match(
            r"(guard variable|TLS (init|wrapper) function|vtable|typeinfo) ", symbol.name)
        known = any(re.search(one, symbol.name) for one in MUTABLE)
        if not writable or not ours or known:
            continue
        if not declared_const(symbol.name, text_of(symbol.object)):
            yield f"{symbol.object}: {symbol.name} lives as long as the process: give it an owner"


def ambient_calls(found, sources_of=lambda path: [path]):
    """Yields violations: uses of the clock, the environment, random numbers or sleeps.
    `sources_of` returns the sources of an object file."""
    for symbol in found:
        for call, instead, but in CALLS:
            if symbol.kind != "U" or not re.fullmatch(call, re.sub(r"@.*", "", symbol.name)):
                continue
            sources = sources_of(symbol.object)
            if not any(re.search(but, source) for source in sources):
                yield f"{', '.join(sources)}: {symbol.name}: {instead}"


def _objects(build):
    return [path for path in pathlib.Path(build).rglob("*.o")
            if re.search(r"/gradwire_\w+\.dir/", path.as_posix())]


def _sources_of(path):
    """Returns the sources in an object file, which may be a batch (GRADWIRE_UNITY)."""
    batch = pathlib.Path(path.removesuffix(".o"))
    for folder in pathlib.Path(path).parents:
        if folder.name.endswith(".dir"):
            batch = folder / "Unity" / pathlib.Path(path).name.removesuffix(".o")
            break
    if batch.suffix == ".cxx" and batch.exists():
        return re.findall(r'#include "(.*?)"', batch.read_text())
    return [path.removesuffix(".o")]


def _our_files(path):
    """Returns the sources in an object file that still exist: a build folder keeps objects."""
    names = [re.search(r"(src|python)/\S*$", source) for source in _sources_of(path)]
    return [name.group(0) for name in names if name and (ROOT / name.group(0)).exists()]


@functools.cache
def _text_of(path):
    return "".join(code_of(read(name)) for name in _our_files(path))


def violations(build):
    """Yields the violations in the libraries of a build folder."""
    found = symbols([path for path in _objects(build) if _our_files(path.as_posix())])
    yield from sorted(set(mutable_objects(found, _text_of)))
    yield from sorted(set(ambient_calls(found, _sources_of)))


def host_types(path, text):
    """Yields (line, message) where a source makes the host's clock or network itself."""
    name = path.as_posix()
    if path.suffix not in CPP or not name.startswith("src/") or ENTRY_POINTS.match(name):
        return
    for found in HOST_TYPES.finditer(code_of(text)):
        line = code_of(text).count("\n", 0, found.start()) + 1
        yield line, f"{found.group(0)}: take a Clock or a HostNetwork as an argument"


def _full_name(node, imported):
    """Returns the dotted name of an expression, such as time.sleep, whatever its modules are called
    here; None if it is not one."""
    if isinstance(node, ast.Name):
        return imported.get(node.id)
    if isinstance(node, ast.Attribute):
        inner = _full_name(node.value, imported)
        return inner and f"{inner}.{node.attr}"
    return None


def _imports(tree):
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                names[one.asname or one.name.split(".")[0]] = (
                    one.name if one.asname else one.name.split(".")[0])
        elif isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                names[one.asname or one.name] = f"{node.module}.{one.name}"
    return names


def python_calls(path, text):
    """Yields (line, message) where Python code reads the clock or the environment, or sleeps."""
    if path.suffix != ".py" or PYTHON_ENTRY_POINTS.match(path.as_posix()):
        return
    tree = ast.parse(text)
    imported = _imports(tree)
    for node in ast.walk(tree):
        module, _, name = (_full_name(node, imported) or "").rpartition(".")
        if module in PYTHON_CALLS and (PYTHON_CALLS[module] is None
                                       or name in PYTHON_CALLS[module]):
            yield node.lineno, f"{module}.{name}: take the value, or a function, as an argument"
