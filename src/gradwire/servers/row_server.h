#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/work.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/servers/event_queue.h"
#include "gradwire/servers/row_core.h"
#include "gradwire/servers/row_messages.h"
#include "gradwire/servers/row_store.h"

namespace gradwire::servers {

/// A server of the rows whose ids have its number as the remainder of a division by the number of
/// servers. Answers workers by the rules of RowCore. Memory: its RowStore, and of each worker at
/// most `staleness` + 1 batches of ids and gradients, none with more rows than it has ids.
///
/// A worker that sends anything but what RowClient does is refused: its messages fail, with the
/// reason, and the others go on without it, as without a lost one.
class RowServer final : private RowActions {
 public:
  /// `pairs`: of failure domain pair. This is server `number`. `roots`: RowStore's. `warn`, unless
  /// it is null, is called once for each worker that is lost.
  RowServer(std::shared_ptr<Communicator> pairs, int number, const RowLayout& layout,
            SquareRoots roots = exact_square_roots,
            std::function<void(const std::string&)> warn = nullptr);

  /// Serves until all workers have left or are lost. Throws Exception if the communicator as a
  /// whole fails, or if no worker has left: all are lost.
  void run();

  /// After run().
  RowReport report() const;

 private:
  enum class Awaited : std::uint8_t { request, ids, floats };
  /// Rows of a worker, and their gradients or values.
  struct Rows {
    std::vector<std::int64_t> ids;
    std::vector<float> floats;
    double rate = 1;
  };
  struct Worker {
    Awaited awaited = Awaited::request;
    RowRequest request;
    Rows arriving;
    std::deque<std::vector<std::int64_t>> look_ups;  ///< Without an answer.
    std::vector<std::int64_t> read;
    bool greeted = false;
    bool gone = false;
  };
  struct Event {
    Rank worker = 0;
    Work work;
  };

  void await(Rank worker, Awaited what, const LentSpan& memory);
  void handle(const Event& event);
  void proceed(Rank worker);
  void on_request(Rank worker);
  void on_ids(Rank worker);
  void perform(Rank worker);
  void put(const Rows& rows);
  void remove(Rank worker, const std::string& why);

  void apply(std::span<const UpdateId> updates) override;
  void answer_look_up(Rank worker, std::int64_t version) override;
  void answer_read(Rank worker) override;
  void send_rows(Rank worker, const std::vector<std::int64_t>& ids, int tag, std::int64_t value);
  void send_integers(Rank worker, std::vector<std::int64_t> integers);
  void send_made(Rank worker);
  UpdateId keep(Rows rows);

  std::shared_ptr<Communicator> pairs_;
  int number_;
  RowLayout layout_;
  std::function<void(const std::string&)> warn_;
  RowStore store_;
  RowCore core_;
  std::shared_ptr<EventQueue<Event>> events_;  ///< Outlives this if need be.
  std::vector<Worker> workers_;
  std::vector<Rows> updates_;  ///< By UpdateId; free ones are empty.
  std::vector<UpdateId> free_updates_;
  int connected_;
  bool left_ = false;      ///< A worker has left.
  std::string lost_last_;  ///< Why the last lost worker was lost.
};

/// Adds updates in this order, and divides by their number. Ids of each are in ascending order; the
/// result's are in the order in which they come first.
void mean_of_rows(std::span<const std::span<const std::int64_t>> ids,
                  std::span<const std::span<const float>> gradients, std::size_t width,
                  std::vector<std::int64_t>& mean_ids, std::vector<float>& mean);

}  // namespace gradwire::servers
