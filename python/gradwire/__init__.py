"""PyTorch's distributed training over plain Ethernet, by gradwire.

    import torch.distributed as dist, gradwire
    dist.init_process_group("gradwire")        # everything else unchanged

Importing the package registers the backend "gradwire" with torch.distributed: for CPU tensors, and
for those of an accelerator where PyTorch has one. DistributedDataParallel over it fills buckets of
5 MiB where it is not told their size (`gradwire.buckets`). `gradwire.Options` is what
init_process_group and new_group take as pg_options; `gradwire.hooks` sends gradients in fewer
bytes; `gradwire.plan`, `gradwire.probe` and `gradwire.trace` are the program's commands; `python -m
gradwire` is the program.
"""

from gradwire._build import VERSION as __version__
from gradwire._check import check_torch

check_torch()

from gradwire import hooks, rendezvous, tools  # noqa: E402
from gradwire.backend import Options, backend_of, register  # noqa: E402
from gradwire.barriers import take_monitored_barrier  # noqa: E402
from gradwire.buckets import choose_buckets  # noqa: E402
from gradwire.tools import plan, probe  # noqa: E402
from gradwire.tracing import trace  # noqa: E402

register()
rendezvous.register()
choose_buckets()
take_monitored_barrier()

__all__ = ["Options", "__version__", "backend_of", "hooks", "plan", "probe", "tools", "trace"]
