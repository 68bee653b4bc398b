#include <array>

#include "gradwire/plan/device.h"
#include "gradwire/plan/names.h"
#include "gradwire/schedule/cost/constants.h"

namespace gradwire::plan {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

struct Entry {
  std::string_view name, title;
  double fp32, bf16;   ///< TFLOP/s, dense; bf16 with fp32 accumulation.
  double memory;       ///< GB.
  double memory_rate;  ///< GB/s.
  double inside;       ///< GB/s each direction to a device of the same host.
  double watts;
  std::string_view source;
};

/// From vendors' data sheets. NVLink and Infinity Fabric: one direction; PCIe 4 x16: 25 GB/s, PCIe
/// 3 x16: 12 GB/s. Processors: cores x GHz x operations per cycle.
constexpr std::array<Entry, 19> kDevices{{
    {"v100", "NVIDIA V100 SXM2, 32 GB", 15.7, 125, 32, 900, 150, 300, "NVIDIA V100 data sheet"},
    {"t4", "NVIDIA T4, 16 GB", 8.1, 65, 16, 320, 12, 70, "NVIDIA T4 data sheet (fp16)"},
    {"a10", "NVIDIA A10, 24 GB", 31.2, 125, 24, 600, 25, 150, "NVIDIA A10 data sheet"},
    {"l4", "NVIDIA L4, 24 GB", 30.3, 121, 24, 300, 25, 72, "NVIDIA L4 data sheet"},
    {"l40s", "NVIDIA L40S, 48 GB", 91.6, 362, 48, 864, 25, 350, "NVIDIA L40S data sheet"},
    {"rtx3090", "NVIDIA GeForce RTX 3090, 24 GB", 35.6, 71, 24, 936, 25, 350,
     "NVIDIA GA102 white paper, appendix A"},
    {"rtx4090", "NVIDIA GeForce RTX 4090, 24 GB", 82.6, 165, 24, 1008, 25, 450,
     "NVIDIA Ada white paper, appendix A"},
    {"a100", "NVIDIA A100 SXM, 80 GB", 19.5, 312, 80, 2039, 300, 400, "NVIDIA A100 data sheet"},
    {"a100_40gb", "NVIDIA A100 SXM, 40 GB", 19.5, 312, 40, 1555, 300, 400,
     "NVIDIA A100 data sheet"},
    {"a100_80gb", "NVIDIA A100 SXM, 80 GB", 19.5, 312, 80, 2039, 300, 400,
     "NVIDIA A100 data sheet"},
    {"h100", "NVIDIA H100 SXM, 80 GB", 67, 989, 80, 3350, 450, 700, "NVIDIA H100 data sheet"},
    {"h200", "NVIDIA H200 SXM, 141 GB", 67, 989, 141, 4800, 450, 700, "NVIDIA H200 data sheet"},
    {"b200", "NVIDIA B200 SXM, 180 GB", 75, 2250, 180, 8000, 900, 1000,
     "NVIDIA DGX B200 data sheet"},
    {"mi250x", "AMD MI250X, 128 GB", 47.9, 383, 128, 3276, 50, 560, "AMD MI250X data sheet"},
    {"mi300x", "AMD MI300X, 192 GB", 163.4, 1307, 192, 5300, 64, 750, "AMD MI300X data sheet"},
    {"cpu_4", "a processor of 4 cores, AVX2", 0.384, 0.384, 16, 30, 4, 65,
     "4 cores x 3 GHz x 32 operations a cycle"},
    {"cpu_8", "a processor of 8 cores, AVX2", 0.768, 0.768, 32, 40, 4, 105,
     "8 cores x 3 GHz x 32 operations a cycle"},
    {"cpu_32", "a server's processor of 32 cores, AVX-512", 5.1, 5.1, 256, 200, 4, 250,
     "32 cores x 2.5 GHz x 64 operations a cycle"},
    {"cpu_56_amx", "a server's processor of 56 cores, AMX", 7.2, 115, 512, 300, 4, 350,
     "56 cores x 2 GHz x 64 operations a cycle, 1024 in bf16"},
}};

}  // namespace

std::string_view name_of(ComputeType type) {
  constexpr std::array<std::string_view, 3> kNames{"fp32", "bf16", "mixed"};
  return kNames[static_cast<std::size_t>(type)];
}

std::vector<std::string_view> device_names() {
  return names_of(kDevices);
}

Device device_named(const std::string& name) {
  const Entry* const entry = find_named(kDevices, name);
  if (entry == nullptr)
    refuse_name("device", name, device_names(), "; \"this\" measures this machine's processors");
  return {.name = std::string(entry->name),
          .title = std::string(entry->title),
          .peak_fp32 = entry->fp32 * kTera,
          .peak_bf16 = entry->bf16 * kTera,
          .memory_bytes = entry->memory * kGiga,
          .memory_bytes_per_second = entry->memory_rate * kGiga,
          .utilization = schedule::fitted::kMatrixShare,
          .inside_bytes_per_second = entry->inside * kGiga,
          .watts = entry->watts,
          .source = std::string(entry->source)};
}

}  // namespace gradwire::plan
