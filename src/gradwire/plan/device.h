#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire {

class Clock;

/// What forward and backward compute with.
enum class ComputeType : std::uint8_t {
  fp32,   ///< As frameworks do by default; where a device has TF32, that is not it.
  bf16,   ///< Matrix products and activations; parameters, gradients and optimiser stay in fp32, as
          ///< `gradwire train` and PyTorch's autocast have it.
  mixed,  ///< Parameters and gradients too, with an fp32 copy: as ZeRO's paper counts.
};

std::string_view name_of(ComputeType type);
/// Bytes of an activation, and of the copy of a parameter that is computed with.
inline double bytes_of(ComputeType type) {
  return type == ComputeType::fp32 ? 4 : 2;
}

/// What computes: one accelerator, or the processors of a machine.
struct Device {
  std::string name;      ///< "a100_80gb"
  std::string title;     ///< "NVIDIA A100 SXM, 80 GB"
  double peak_fp32 = 0;  ///< FLOP/s, dense.
  double peak_bf16 = 0;  ///< FLOP/s, dense.
  double memory_bytes = 0;
  double memory_bytes_per_second = 0;
  /// The part of the peak that training reaches on a device by itself: large matrix products.
  double utilisation = 0.4;
  /// To another one in the same host, each direction.
  double inside_bytes_per_second = 0;
  double watts = 0;    ///< Under load; 0: not known.
  std::string source;  ///< Where the figures come from.

  double peak(ComputeType type) const { return type == ComputeType::fp32 ? peak_fp32 : peak_bf16; }
  /// FLOP/s that training gets.
  double rate(ComputeType type) const { return peak(type) * utilisation; }
};

std::vector<std::string_view> device_names();

/// A device of the catalogue; '-' and '_' are the same, and so are upper and lower case. Throws
/// Exception(invalid_argument) for an unknown name, with the nearest right one.
Device device_named(const std::string& name);

/// This machine's processors: FLOP/s of a matrix product with all cores, memory's bandwidth by
/// reading and writing, measured for about `seconds`; memory as the system says. What was measured
/// is what training gets, so utilisation is 1. Our matrix product is a plain one: libraries may be
/// faster by a small factor.
Device measure_device(Clock& clock, double seconds = 0.4);

}  // namespace gradwire
