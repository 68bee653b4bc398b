#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire {
class Clock;
}

namespace gradwire::plan {

/// Arithmetic of forward and backward.
enum class ComputeType : std::uint8_t {
  fp32,   ///< The default of frameworks; not TF32.
  bf16,   ///< Matrix products and activations; parameters, gradients and optimizer stay in fp32, as
          ///< in `gradwire train` and PyTorch's autocast.
  mixed,  ///< Also parameters and gradients, with an fp32 copy, as in the ZeRO paper.
};

std::string_view name_of(ComputeType type);
/// Bytes of an activation, and of a parameter's copy used for computing.
inline double bytes_of(ComputeType type) {
  return type == ComputeType::fp32 ? 4 : 2;
}

/// A compute device: one accelerator, or the processors of a machine.
struct Device {
  std::string name;      ///< "a100_80gb"
  std::string title;     ///< "NVIDIA A100 SXM, 80 GB"
  double peak_fp32 = 0;  ///< FLOP/s, dense.
  double peak_bf16 = 0;  ///< FLOP/s, dense.
  double memory_bytes = 0;
  double memory_bytes_per_second = 0;
  /// Share of the peak that training reaches on one device, in large matrix products.
  double utilization = 0.4;
  /// Rate to another device in the same host, each direction.
  double inside_bytes_per_second = 0;
  double watts = 0;    ///< Under load; 0: unknown.
  std::string source;  ///< Origin of the figures.

  double peak(ComputeType type) const { return type == ComputeType::fp32 ? peak_fp32 : peak_bf16; }
  /// FLOP/s that training reaches.
  double rate(ComputeType type) const { return peak(type) * utilization; }
};

std::vector<std::string_view> device_names();

/// Returns a device of the catalogue. '-' and '_' are equivalent, and case is ignored. Throws
/// Exception(invalid_argument) for an unknown name, with the nearest valid one.
Device device_named(const std::string& name);

/// Measures this machine's processors for about `seconds`: FLOP/s of a matrix product on all cores,
/// and memory bandwidth of reading and writing; the memory size is the system's. Training is
/// assumed to reach the measured rate, so utilization is 1. The matrix product is a plain one:
/// libraries may be faster by a small factor.
Device measure_device(Clock& clock, double seconds = 0.4);

}  // namespace gradwire::plan
