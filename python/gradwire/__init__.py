"""torch.distributed over plain Ethernet.

    import torch.distributed as dist, gradwire
    dist.init_process_group("gradwire")        # everything else unchanged

Importing the package registers the backend "gradwire" with torch.distributed, for CPU tensors and
for tensors of an accelerator if PyTorch has one; programs that use other backends run as without
it. DistributedDataParallel over it uses buckets of 5 MiB unless their size is given
(`gradwire.buckets`). `gradwire.Options` are the pg_options of
init_process_group and new_group; `gradwire.hooks` compresses gradients; `gradwire.pipeline` makes
schedules for pipelines; `gradwire.checkpoint` and `gradwire.models` load what `gradwire train`
saved; `gradwire.Served` and `gradwire.ServedEmbedding` train with parameter servers;
`gradwire.DeviceParallel` trains on several devices in one process; `gradwire.federated` simulates
clients that keep their data, and `gradwire.FederatedClient` is one;
`gradwire.plan` and `gradwire.probe` run the program's commands; `gradwire.trace` traces training
steps; `python -m gradwire` is the program.
"""

from gradwire._build import VERSION as __version__
from gradwire._check import module_folder

__path__.insert(0, module_folder())  # Has _core.

from gradwire import federated, hooks, pipeline, rendezvous, tools  # noqa: E402
from gradwire.backend import (  # noqa: E402
    Options, adapt_at_first_group, backend_of, register)
from gradwire.barriers import take_monitored_barrier  # noqa: E402
from gradwire.buckets import choose_buckets  # noqa: E402
from gradwire.device_parallel import DeviceParallel  # noqa: E402
from gradwire.federated_client import (  # noqa: E402
    FederatedClient, FederatedLimits, FederatedRound)
from gradwire.served import Served  # noqa: E402
from gradwire.served_embedding import ServedEmbedding  # noqa: E402
from gradwire.tools import plan, probe  # noqa: E402
from gradwire.tracing import trace  # noqa: E402

register()
adapt_at_first_group(choose_buckets, take_monitored_barrier)
rendezvous.register()

__all__ = ["DeviceParallel", "FederatedClient", "FederatedLimits", "FederatedRound", "Options",
           "Served", "ServedEmbedding", "__version__", "backend_of", "federated", "hooks",
           "pipeline", "plan", "probe", "tools", "trace"]
