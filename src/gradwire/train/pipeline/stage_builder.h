#pragma once

#include "gradwire/train/pipeline/hybrid_stages.h"

namespace gradwire {

/// Checks that options and layers go together and that ranks agree (stage_builder_checks.cpp), and
/// makes the stages of a rank.
class StageBuilder {
 public:
  /// Both must outlive the builder.
  StageBuilder(const Layers& layers, const Pipeline::Options& options);

  /// Called once. Collective.
  HybridStages build();

 private:
  WeightMethod find_method() const;
  void check_asynchronous() const;
  void check_data_options() const;
  void check_ties(const Layers& layers) const;
  void check_places() const;
  void check_agreement(const Layers& layers) const;
  void check_optimizer(const LocalStage& stage) const;
  void check_gradient_codec(const LocalStage& stage) const;

  ProcessGroup group_for_transfers() const;
  void make_stages(const Layers& layers);
  void make_equal(const LocalStage& stage) const;
  OptimizerFactory optimizer_factory() const;

  const Layers& layers_;
  const Pipeline::Options& options_;
  HybridStages made_;
  Rank rank_ = 0;
  int ranks_ = 1;
};

}  // namespace gradwire
