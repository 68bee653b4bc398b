#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/base/work.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/servers/row_messages.h"

namespace gradwire::servers {

/// Rows that were made: ids, and their values and states row by row. `states` is empty unless the
/// optimizer is Adagrad.
struct MadeRows {
  std::vector<std::int64_t> ids;
  std::vector<float> values, states;
};

/// A worker's side of servers of rows. Errors: throws what communication throws, among it the
/// reason of a server that refuses this worker. Destroy it before the communicator; leave() first,
/// or the servers take this worker for lost. Not thread-safe.
class RowClient {
 public:
  /// The failure domain of `pairs` is a pair, and this rank is a worker. Greets the servers.
  RowClient(std::shared_ptr<Communicator> pairs, const RowLayout& layout);

  const RowLayout& layout() const { return layout_; }
  /// Number of look-ups without an update of this worker: at most `staleness` + 1.
  std::int64_t open() const { return looked_ - updated_; }

  /// Looks up the rows of the next batch, in the order of `ids`, into `rows`, which must outlive
  /// the work. Throws Exception(invalid_argument) if `open()` leaves no permit.
  Work look_up(std::shared_ptr<const DistinctIds> ids, const LentSpan& rows);
  /// Pushes the gradients of the oldest open batch: `ids` are its own, or none. The optimizer steps
  /// at `rate` times its learning rate. Returns at once; `gradients` must own its memory.
  void update(std::shared_ptr<const DistinctIds> ids, const LentSpan& gradients, double rate);
  /// Reads rows with all updates that this worker has pushed, without a permit.
  void read(const DistinctIds& ids, std::span<float> rows);

  /// Returns what servers have done.
  RowReport report();
  /// Returns all rows that were made, of all servers.
  MadeRows made();
  /// Makes rows, or replaces them. Before any worker looks up; then a barrier must follow.
  void put(const MadeRows& rows);
  /// Tells the servers that this worker ends.
  void leave();

 private:
  struct Message;

  int servers() const { return layout_.placement.servers; }
  Rank rank_of(int server) const { return layout_.placement.rank_of_server(server); }
  void ask(int server, RowRequest request);
  Work send_to_all(const std::shared_ptr<Message>& message, RowRequest request,
                   const LentSpan* floats);
  LentSpan part_of(const DistinctIds& ids, const LentSpan& rows, int server) const;
  std::vector<std::int64_t> receive_integers(int server);
  void fetch_made(int server, MadeRows& rows);
  void put_on(int server, const MadeRows& rows, const std::vector<std::size_t>& order);

  std::shared_ptr<Communicator> pairs_;
  RowLayout layout_;
  std::int64_t looked_ = 0, updated_ = 0;
};

}  // namespace gradwire::servers
