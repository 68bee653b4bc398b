#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gradwire/host/bucket.h"
#include "gradwire/host/training_errors.h"
#include "gradwire/host/unit_memory.h"
#include "gradwire/step/bucket_plan.h"

namespace gradwire {

struct BucketsOptions {
  step::BucketLimits limits;
  std::set<std::string> divided;  ///< divided_parameters() of the module.
  bool compress = false;          ///< A codec encodes what skips_compression() does not name.
  std::size_t codec_min_elements = 0;
  bool find_unused = false;   ///< A parameter that no rank used keeps its grad().
  bool check_finite = false;  ///< Fail if a mean is not finite.
};

/// Memory of replicated parameters: their gradients are views of buckets, which are averaged in
/// place. With world size 1 all parameters are one unit without a bucket.
class Buckets final : public UnitMemory {
 public:
  /// Throws Exception(unsupported) if a type cannot be reduced.
  Buckets(ProcessGroup group, std::string who, std::vector<NamedTensor> parameters,
          const BucketsOptions& options);

  const std::vector<NamedTensor>& parameters() const override { return parameters_; }
  std::size_t unit_of(std::size_t parameter) const override {
    return is_alone() ? 0 : layout_.places[parameter].bucket;
  }
  std::vector<step::StepUnit> step_units() const override;
  std::vector<exchange::UnitShape> shapes() const override;
  std::vector<at::Tensor> samples() const override;
  void exchange_by(exchange::Exchange& exchange) override;

  bool takes_gradients() const override { return false; }
  void begin_pass() override { filled_.assign(parameters_.size(), false); }
  bool fill(std::size_t parameter, bool produced) override;
  bool is_filled(std::size_t parameter) const override { return filled_[parameter]; }
  void accumulate(std::size_t parameter) override { touched_[parameter] = true; }
  void drop_gradients() override;
  step::StepHost::Gradients gradients(std::size_t unit) override;
  void reduced(std::size_t unit) override;
  std::int64_t extra_operations() const override { return usage_operations_; }

  const BucketLayout& layout() const { return layout_; }
  /// The parameters of a unit.
  std::vector<NamedTensor> members(std::size_t unit) const;

 private:
  bool is_alone() const { return group_->getSize() == 1; }
  void start_usage();
  void wait_for_usage();
  void assign_gradients(std::size_t unit);
  void require_finite_locally(std::size_t parameter) const;
  void require_finite(std::size_t unit) const;

  ProcessGroup group_;
  TrainingErrors errors_;
  std::vector<NamedTensor> parameters_;
  BucketsOptions options_;
  BucketLayout layout_;
  exchange::Exchange* exchange_ = nullptr;
  double scale_ = 1;  ///< Factor before averaging: 1 unless the exchange can only sum.
  std::vector<bool> filled_;
  std::vector<bool> touched_;  ///< Received a gradient since the last averaging.
  at::Tensor usage_;           ///< Per parameter: ranks that used it, divided by the world size.
  at::Tensor global_usage_;    ///< The same on the parameters' device, as it is reduced.
  Work usage_work_;
  std::int64_t usage_operations_ = 0;
};

}  // namespace gradwire
