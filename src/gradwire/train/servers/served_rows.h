#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/host/servers/served_embedding.h"
#include "gradwire/train/checkpoint/tensor_piece.h"

namespace gradwire {

/// A model and the rows of an embedding table that servers have made, as pieces of a checkpoint.
/// Of a table NAME of M made rows: "NAME.ids" (M, int64), "NAME.rows" (M x width), and with Adagrad
/// "optimizer.sum.NAME.rows". Worker 0 has all of them, so that any number of servers can read
/// them, and any number of workers.
class ServedRowsState final : public Checkpointable {
 public:
  /// `others` are the pieces of all else. They and `table`, which has these options, must outlive
  /// this. `rank`: this worker.
  ServedRowsState(Checkpointable& others, ServedEmbedding& table,
                  const ServedEmbeddingOptions& options, std::string name, int rank)
      : others_(others), table_(table), options_(options), name_(std::move(name)), rank_(rank) {}

  /// Throws Exception(invalid_argument) for a checkpoint without rows of this width.
  void begin_loading(const std::map<std::string, Shape>& shapes) override;
  /// Waits until all gradients of rows are applied. Collective.
  std::vector<TensorPiece> pieces(bool make_states) override;
  void loaded() override;

 private:
  Checkpointable& others_;
  ServedEmbedding& table_;
  ServedEmbeddingOptions options_;
  std::string name_;
  int rank_;
  ServedRows rows_;  ///< On worker 0: those to be loaded into, or saved.
};

}  // namespace gradwire
