#include "gradwire/bootstrap/engine_name.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/base/suggest.h"

namespace gradwire::bootstrap {
namespace {

constexpr std::string_view kEngines[] = {"own", "mpi"};

}  // namespace

bool is_torch_backend(std::string_view engine) {
  return engine == "gloo" || engine == "nccl";
}

std::string engine_refusal(std::string_view engine) {
  if (std::ranges::find(kEngines, engine) != std::end(kEngines)) return "";
  if (!is_torch_backend(engine)) return unknown_name("engine", engine, kEngines);
  const bool gloo = engine == "gloo";
  return fmt::format(
      "engine \"{}\": {}; use own or mpi here, or train in Python over a group of "
      "torch.distributed, init_process_group(\"{}\") (docs/engines.md)",
      engine,
      gloo ? "this build has no headers of libtorch's Gloo, which PyTorch's packages lack"
           : "NCCL's groups are made by torch.distributed only",
      gloo ? "gloo" : "cpu:gloo,cuda:nccl");
}

}  // namespace gradwire::bootstrap
