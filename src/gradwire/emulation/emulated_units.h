#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/emulation/emulated_values.h"
#include "gradwire/step/step_host.h"
#include "gradwire/step/step_plan.h"
#include "gradwire/trace/trace.h"

namespace gradwire::emulation {

/// Peak bytes of a rank's own memory.
struct EmulatedMemory {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
};

/// The units of an emulated model: all that a StepHost owns, without arithmetic.
class EmulatedUnits : public step::StepHost {
 public:
  /// Backward is about to write the unit's gradients.
  virtual void make_gradients(std::size_t /*unit*/) {}
  /// `layer` is about to use the unit's parameters after `steps` optimizer steps. Throws
  /// Exception(mismatch) that names the layer and the unit if they have not arrived.
  virtual void use_parameters(std::size_t /*unit*/, std::size_t /*layer*/, std::int64_t /*steps*/) {
  }
  virtual EmulatedMemory peak_memory() const { return {}; }
};

/// Returns the plan's units, as the step engine sees them.
std::vector<step::StepUnit> step_units(const step::StepPlan& plan);

/// Pool of reusable buffers: a new one is allocated only if no free one is large enough.
class UnitPool {
 public:
  /// Returns a buffer of `count` floats of undefined values.
  std::span<float> take(std::size_t count);
  void release(std::span<float> buffer);

  /// Maximum bytes allocated from the system at any time.
  std::size_t peak_bytes() const { return peak_ * sizeof(float); }

 private:
  struct Buffer {
    std::vector<float> memory;
    bool free = false;
  };

  Buffer* find_smallest_fit(std::size_t count);
  void free_largest_unused();

  std::vector<Buffer> buffers_;
  std::size_t allocated_ = 0;  ///< Floats.
  std::size_t peak_ = 0;
};

/// Units in memory, as real training holds them. In stage 0, gradients have random values and stay
/// allocated, and parameters are not stored. In stages 1 to 3 the optimizer writes its step number
/// to this rank's shard of the parameters, and each layer checks the step number of the units that
/// it uses. Gradients of stages 2 and 3, and whole units of stage 3, are in pooled memory. The
/// optimizer is emulated by reading every cache line of the mean.
class UnitsInMemory final : public EmulatedUnits {
 public:
  /// `seed`: of the gradients. `trace` may be null and must outlive this, as must `plan`.
  UnitsInMemory(const step::StepPlan& plan, int stage, Rank rank, int ranks, std::uint64_t seed,
                TraceRecorder* trace = nullptr);

  Gradients gradients(std::size_t unit) override;
  void reduced(std::size_t unit) override;
  bool step(std::size_t unit) override;
  Parameters parameters(std::size_t unit) override;
  void release(std::size_t unit) override;

  void make_gradients(std::size_t unit) override;
  void use_parameters(std::size_t unit, std::size_t layer, std::int64_t steps) override;
  EmulatedMemory peak_memory() const override;

 private:
  struct Unit {
    std::size_t shard_count = 0;   ///< Elements of a part; in stage 0, of the unit.
    std::vector<float> gradients;  ///< Stages 0 and 1: of the whole unit.
    std::span<float> whole_gradients;
    std::vector<float> mean;        ///< This rank's part; in stage 0 it is in `gradients`.
    std::vector<float> parameters;  ///< Stages 1 and 2: all parts; stage 3: this rank's.
    std::span<float> gathered;      ///< Stage 3: all parts; empty if released.
    std::int64_t steps = 0;         ///< Optimizer steps.
  };

  std::span<float> shard_of(Unit& unit) const;
  std::span<const float> whole_of(const Unit& unit) const;
  void require_version(std::span<const float> whole, std::size_t unit, std::size_t layer,
                       std::int64_t steps) const;

  int stage_;
  std::size_t rank_;
  std::size_t ranks_;
  TraceRecorder* trace_;
  std::vector<Unit> units_;
  std::size_t elements_ = 0;  ///< Elements of all units, padding included.
  UnitPool gradient_pool_, parameter_pool_;
  DrawnGradients drawn_;
  float read_ = 0;  ///< Depends on all means.
};

}  // namespace gradwire::emulation
