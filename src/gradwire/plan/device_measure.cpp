#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/cpu.h"
#include "gradwire/plan/device.h"

namespace gradwire::plan {
namespace {

/// Three such matrices fit the L1 cache.
constexpr std::size_t kSide = 48;
/// Exceeds any cache, per core.
constexpr std::size_t kElements = std::size_t{8} << 20;

/// c += a b, for square matrices of kSide. The inner loop runs along rows, so that it vectorizes.
void multiply_add(std::span<const float> a, std::span<const float> b, std::span<float> c) {
  for (std::size_t i = 0; i < kSide; ++i) {
    for (std::size_t k = 0; k < kSide; ++k) {
      const float factor = a[i * kSide + k];
      for (std::size_t j = 0; j < kSide; ++j) c[i * kSide + j] += factor * b[k * kSide + j];
    }
  }
}

double seconds_between(Time begin, Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Returns calls of `once` per second on all cores together, measured for about `seconds`. The
/// argument of `once` is its thread's number.
double rounds_per_second(Clock& clock, double seconds, const std::function<void(int)>& once) {
  const int cores = usable_cores();
  std::vector<double> rates(static_cast<std::size_t>(cores));
  std::vector<std::thread> threads;
  for (int core = 0; core < cores; ++core) {
    threads.emplace_back([&, core] {
      once(core);  // Warm-up: maps the memory, wakes the processor.
      const Time begin = clock.now();
      Time end = begin;
      int rounds = 0;
      while (seconds_between(begin, end) < seconds) {
        once(core);
        ++rounds;
        end = clock.now();
      }
      rates[static_cast<std::size_t>(core)] = rounds / seconds_between(begin, end);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

using Floats = std::vector<std::vector<float>>;

Floats floats_for_cores(std::size_t count) {
  return Floats(static_cast<std::size_t>(usable_cores()), std::vector<float>(count, 1e-3F));
}

double measured_flops(Clock& clock, double seconds) {
  constexpr std::size_t square = kSide * kSide, repeats = 64;
  Floats memory = floats_for_cores(3 * square);
  const double rounds = rounds_per_second(clock, seconds, [&](int core) {
    const std::span<float> mine(memory[static_cast<std::size_t>(core)]);
    for (std::size_t i = 0; i < repeats; ++i)
      multiply_add(mine.first(square), mine.subspan(square, square), mine.last(square));
  });
  return rounds * repeats * 2.0 * kSide * square;
}

double measured_memory_rate(Clock& clock, double seconds) {
  Floats memory = floats_for_cores(kElements);
  const double rounds = rounds_per_second(clock, seconds, [&](int core) {
    for (float& value : memory[static_cast<std::size_t>(core)]) value += 1e-3F;
  });
  return rounds * 2.0 * sizeof(float) * kElements;  // Read and written.
}

}  // namespace

Device measure_device(Clock& clock, double seconds) {
  const double flops = measured_flops(clock, seconds / 2);
  const double pages = static_cast<double>(::sysconf(_SC_PHYS_PAGES));
  return {.name = "this",
          .title = fmt::format("this machine, {} cores", usable_cores()),
          .peak_fp32 = flops,
          .peak_bf16 = flops,
          .memory_bytes = pages * static_cast<double>(::sysconf(_SC_PAGESIZE)),
          .memory_bytes_per_second = measured_memory_rate(clock, seconds / 2),
          .utilization = 1,
          .inside_bytes_per_second = 4e9,
          .source = "measured now: a plain matrix product and a[i] += c on all cores"};
}

}  // namespace gradwire::plan
