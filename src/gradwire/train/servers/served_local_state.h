#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/servers/served_local_steps.h"

namespace gradwire {

/// A run with ServedLocalSteps as pieces of a checkpoint: the outer parameters, under the names of
/// the worker's own; the states of the outer optimizer, "optimizer.outer_STATE.PARAMETER"; and the
/// worker's buffers and the states of its own optimizer. Those of the first worker that saves go to
/// all that resume, unless as many resume as have saved. Call flush() before pieces(false): a
/// checkpoint has no steps since the last push.
class ServedLocalState final : public Checkpointable {
 public:
  /// `own`: the worker's model and optimizer. Both must outlive this.
  ServedLocalState(ServedLocalSteps& local, Checkpointable& own) : local_(local), own_(own) {}

  void begin_loading(const std::map<std::string, Shape>& shapes) override;
  std::vector<TensorPiece> pieces(bool make_states) override;
  void loaded() override;
  std::string progress() override { return outer().progress(); }
  void resume_at(std::int64_t step, const std::string& progress) override;

 private:
  Checkpointable& outer() const { return local_.served().state(); }

  ServedLocalSteps& local_;
  Checkpointable& own_;
};

}  // namespace gradwire
