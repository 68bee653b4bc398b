#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <torch/types.h>

#include "gradwire/host/group.h"

namespace gradwire {

/// Options of ServedEmbedding. All must be the same on workers and servers.
struct ServedEmbeddingOptions {
  std::int64_t rows = 0;       ///< Ids are 0 .. rows - 1. Required.
  std::int64_t width = 0;      ///< Elements of a row. Required.
  std::int64_t staleness = 0;  ///< Steps that a look-up may lack: batches that can be prefetched.
  std::uint64_t seed = 0;      ///< Each row begins uniform in [-0.01, 0.01).
  std::string optimizer = "sgd";  ///< Or "adagrad": torch::optim's, without further options.
  double learning_rate = 0.05;
  /// Number of servers beside workers, the first ones; 0: one on each worker. Ignored if `gradwire
  /// run --servers` has given the servers ranks of their own.
  int servers = 0;
};

/// Rows that were made, of all servers, with what the optimizer knows of them.
struct ServedRows {
  torch::Tensor ids;     ///< M, int64.
  torch::Tensor values;  ///< M x width.
  torch::Tensor states;  ///< M x width, with Adagrad the sums of squares; otherwise 0 x width.
};

/// The work of the servers so far.
struct ServedEmbeddingReport {
  std::int64_t made = 0;         ///< Rows that were made.
  std::int64_t bytes = 0;        ///< Memory of the rows on all servers.
  std::int64_t steps = 0;        ///< Steps that were applied.
  std::int64_t max_permits = 0;  ///< The largest number of permits that one worker had.
  double mean_staleness = 0;     ///< The applied gradients', in steps.
  std::int64_t max_staleness = 0;
};

/// An embedding table whose rows are on servers, by id modulo their number, and which is trained
/// with bounded staleness beside synchronous dense layers (as in Persia: Lian et al.,
/// arXiv:2111.05897):
///
///     gradwire::ServedEmbedding table(group, {.rows = 10'000'000, .width = 16, .staleness = 4});
///     gradwire::DataParallel model(net, {.process_group = group});
///     table.prefetch(next_ids);         // up to 4 batches ahead
///     auto rows = table(ids);           // ids.sizes() x width
///     loss_of(model(dense, rows)).backward();
///     optimizer.step();
///     table.step();                     // the gradients of this batch's rows leave
///
/// A step is the mean of all workers' gradients, as with DataParallel, added in the order of the
/// workers; the optimizer steps each row that a batch has. Batch c is looked up when step c - 1 -
/// `staleness` is applied. With staleness 0 that is synchronous training, and one worker has the
/// bits of torch::nn::Embedding with sparse gradients, in which equal ids are added. If each worker
/// prefetches `staleness` batches, runs repeat bit for bit, on any number of servers.
///
/// A row is a function of seed and id until its first step, and takes memory from then on. Under
/// `gradwire run --servers` the constructor of a server rank serves until all workers have left,
/// and then ends the process with status 0: construct it before what servers do not need. Otherwise
/// servers are threads beside workers.
///
/// Errors: throws Exception. Not thread-safe.
class ServedEmbedding {
 public:
  /// Collective. Throws Exception(invalid_argument) for options that are out of range.
  /// `after_serving`, which must not return, takes the place of the end of a server's process.
  ServedEmbedding(const ProcessGroup& group, const ServedEmbeddingOptions& options,
                  const std::function<void()>& after_serving = nullptr);
  ~ServedEmbedding();
  ServedEmbedding(const ServedEmbedding&) = delete;
  ServedEmbedding& operator=(const ServedEmbedding&) = delete;

  /// Begins to look up the rows of a later batch. Batches are used in this order. Throws
  /// Exception(invalid_argument) if more than `staleness` + 1 batches are open: looked up, and not
  /// ended by step().
  void prefetch(const torch::Tensor& ids);
  /// Returns the rows of ids of any shape (int64), as ids.sizes() x width: of the batch that was
  /// prefetched first, or else they are looked up. Their gradients reach the table. Call step()
  /// before the next. Without gradients (torch::NoGradGuard): read().
  torch::Tensor operator()(const torch::Tensor& ids);
  /// Pushes the gradients of the batch. Gradients of equal ids are added first.
  void step();
  /// Sets the factor on the learning rate of the following steps; at first 1. The same on all
  /// workers.
  void set_rate(double rate);

  /// Returns rows with all gradients that this worker has pushed, and those of the same steps of
  /// others, without a permit: for evaluation. Waits until the others have pushed them.
  torch::Tensor read(const torch::Tensor& ids);
  /// Waits until all gradients that this worker has pushed are applied.
  void synchronize();
  /// Returns the whole table, rows x width, as read() does: for a file of the model.
  torch::Tensor gather();
  /// Returns the rows that were made, for a checkpoint: one worker calls it, after synchronize()
  /// on all and before any pushes.
  ServedRows made();
  /// Puts rows of made() back, on any number of servers. Collective; before any look-up.
  void load(const ServedRows& rows);

  ServedEmbeddingReport report();
  std::size_t payload_bytes_sent() const;
  /// Number of batches that can be looked up before step() is called.
  std::int64_t free_permits() const;

  /// Tells the servers that this worker ends, and waits for the server beside it, as the destructor
  /// does. Nothing else may follow.
  void leave();
  /// Tells them that it has failed.
  void abort(const std::string& why);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire
