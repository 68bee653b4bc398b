#include "gradwire/servers/row_server.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/engine/operations/reduction.h"

namespace gradwire::servers {
namespace {

/// Made rows that are sent at a time.
constexpr std::int64_t kFetchedRows = 1 << 16;

template <class... Arguments>
[[noreturn]] void refuse_worker(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw Exception(ErrorKind::corrupted, fmt::format(text, std::forward<Arguments>(arguments)...));
}

}  // namespace

void mean_of_rows(std::span<const std::span<const std::int64_t>> ids,
                  std::span<const std::span<const float>> gradients, std::size_t width,
                  std::vector<std::int64_t>& mean_ids, std::vector<float>& mean) {
  std::unordered_map<std::int64_t, std::size_t> places;
  for (std::size_t update = 0; update < ids.size(); ++update) {
    for (std::size_t row = 0; row < ids[update].size(); ++row) {
      const auto gradient = gradients[update].subspan(row * width, width);
      const auto [place, is_new] = places.try_emplace(ids[update][row], mean_ids.size());
      if (is_new) {
        mean_ids.push_back(ids[update][row]);
        mean.insert(mean.end(), gradient.begin(), gradient.end());
        continue;
      }
      float* const sum = mean.data() + place->second * width;
      for (std::size_t i = 0; i < width; ++i) sum[i] += gradient[i];
    }
  }
  engine::finish_reduction(std::as_writable_bytes(std::span(mean)).data(), mean.size(),
                           DataType::float32, ReduceOp::mean, static_cast<int>(ids.size()));
}

RowServer::RowServer(std::shared_ptr<Communicator> pairs, int number, const RowLayout& layout,
                     SquareRoots roots, std::function<void(const std::string&)> warn)
    : pairs_(std::move(pairs)),
      number_(number),
      layout_(layout),
      warn_(std::move(warn)),
      store_(layout.rows, std::move(roots)),
      core_(layout.placement.workers, layout.staleness, *this),
      events_(std::make_shared<EventQueue<Event>>()),
      workers_(static_cast<std::size_t>(layout.placement.workers)),
      connected_(layout.placement.workers) {}

void RowServer::run() {
  for (Rank worker = 0; worker < layout_.placement.workers; ++worker) proceed(worker);
  while (connected_ > 0) handle(events_->pop());
  if (!left_) throw Exception(ErrorKind::disconnected, "all workers are lost: " + lost_last_);
}

/// Awaits the worker's next request.
void RowServer::proceed(Rank rank) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  worker.arriving = {};
  await(rank, Awaited::request, lend_message(worker.request));
}

void RowServer::await(Rank rank, Awaited what, const LentSpan& memory) {
  workers_[static_cast<std::size_t>(rank)].awaited = what;
  const int tag = what == Awaited::request ? kRowRequestTag
                  : what == Awaited::ids   ? kRowIdsTag
                                           : kRowFloatsTag;
  // A worker may compute, or evaluate, for as long as it likes.
  const OperationOptions patient{.timeout = Duration::max()};
  const Work work = pairs_->recv(memory, rank, tag, patient);
  work.drive_in_background();
  work.on_done([events = events_, rank](const Work& done) { events->push({rank, done}); });
}

void RowServer::handle(const Event& event) {
  const Worker& worker = workers_[static_cast<std::size_t>(event.worker)];
  if (worker.gone) return;
  if (const auto error = event.work.error()) return remove(event.worker, error->message);
  try {
    if (worker.awaited == Awaited::request) return on_request(event.worker);
    if (worker.awaited == Awaited::ids) return on_ids(event.worker);
    perform(event.worker);
  } catch (const Exception& e) {
    // Only a program that is not this one does that.
    const bool by_worker = e.kind() == ErrorKind::corrupted || e.kind() == ErrorKind::mismatch;
    if (!by_worker || event.worker == pairs_->rank()) throw;
    pairs_->abort_with(event.worker, e.what());
    remove(event.worker, e.what());
  }
}

void RowServer::on_request(Rank rank) {
  using Kind = RowRequest::Kind;
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  const RowRequest& request = worker.request;
  if (worker.greeted == (request.kind == Kind::hello)) {
    refuse_worker("worker {} does not begin with one hello", rank);
  }
  if (request.kind < Kind::hello || request.kind > Kind::leave) {
    refuse_worker("worker {} sends a request of unknown kind {}", rank,
                  static_cast<std::int64_t>(request.kind));
  }
  const bool has_ids = request.kind == Kind::look_up || request.kind == Kind::update ||
                       request.kind == Kind::read || request.kind == Kind::put;
  if (request.count < 0 || (has_ids && request.count > layout_.rows_of(number_))) {
    refuse_worker("worker {} names {} rows; this server has {}", rank, request.count,
                  layout_.rows_of(number_));
  }
  if (!has_ids || request.count == 0) return perform(rank);
  worker.arriving.ids.resize(static_cast<std::size_t>(request.count));
  await(rank, Awaited::ids, lend_ids(worker.arriving.ids));
}

void RowServer::on_ids(Rank rank) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  std::int64_t last = -1;
  for (const std::int64_t id : worker.arriving.ids) {
    if (id <= last || id >= layout_.rows.rows || layout_.server_of(id) != number_) {
      refuse_worker("worker {} sends id {} after {}; this is server {} of {}, of {} ids", rank, id,
                    last, number_, layout_.placement.servers, layout_.rows.rows);
    }
    last = id;
  }
  const bool puts = worker.request.kind == RowRequest::Kind::put;
  if (!puts && worker.request.kind != RowRequest::Kind::update) return perform(rank);
  const std::int64_t parts = puts && layout_.rows.optimizer == "adagrad" ? 2 : 1;
  worker.arriving.floats.resize(worker.arriving.ids.size() *
                                static_cast<std::size_t>(layout_.rows.width * parts));
  await(rank, Awaited::floats, lend_floats(worker.arriving.floats));
}

/// The request and all that belongs to it are here.
void RowServer::perform(Rank rank) {
  using Kind = RowRequest::Kind;
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  const RowRequest& request = worker.request;
  Rows rows = std::exchange(worker.arriving, {});
  switch (request.kind) {
    case Kind::hello:
      if (static_cast<std::uint64_t>(request.clock) != fingerprint_of(layout_)) {
        throw Exception(ErrorKind::mismatch,
                        fmt::format("worker {} has another table of rows, or other settings of it, "
                                    "than the server; start the same program on all",
                                    rank));
      }
      worker.greeted = true;
      send_integers(rank, {});
      break;
    case Kind::look_up:
      worker.look_ups.push_back(std::move(rows.ids));
      core_.on_look_up(rank, request.clock);
      break;
    case Kind::update:
      rows.rate = request.rate;
      core_.on_update(rank, request.clock, keep(std::move(rows)));
      break;
    case Kind::read:
      worker.read = std::move(rows.ids);
      core_.on_read(rank);
      break;
    case Kind::put:
      put(rows);
      send_integers(rank, {});
      break;
    case Kind::fetch:
      send_made(rank);
      break;
    case Kind::report:
      send_integers(rank, encode(report()));
      break;
    case Kind::leave:
      return remove(rank, "");
  }
  proceed(rank);
}

void RowServer::put(const Rows& rows) {
  const auto width = static_cast<std::size_t>(layout_.rows.width);
  const std::span<const float> values(rows.floats.data(), rows.ids.size() * width);
  const auto states = std::span(rows.floats).subspan(values.size());
  for (std::size_t i = 0; i < rows.ids.size(); ++i) {
    store_.put(rows.ids[i], values.subspan(i * width, width),
               states.empty() ? states : states.subspan(i * width, width));
  }
}

/// `why` is empty if the worker has left.
void RowServer::remove(Rank rank, const std::string& why) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  if (std::exchange(worker.gone, true)) return;
  --connected_;
  core_.on_gone(rank);
  worker.look_ups.clear();
  if (why.empty()) {
    left_ = true;
  } else {
    lost_last_ = why;
    if (warn_) warn_(why);
  }
}

UpdateId RowServer::keep(Rows rows) {
  if (free_updates_.empty()) {
    free_updates_.push_back(updates_.size());
    updates_.emplace_back();
  }
  const UpdateId id = free_updates_.back();
  free_updates_.pop_back();
  updates_[id] = std::move(rows);
  return id;
}

void RowServer::apply(std::span<const UpdateId> updates) {
  const double rate = updates_[updates.front()].rate;
  if (updates.size() == 1) {
    store_.step(updates_[updates.front()].ids, updates_[updates.front()].floats, rate);
  } else {
    std::vector<std::span<const std::int64_t>> ids;
    std::vector<std::span<const float>> gradients;
    for (const UpdateId id : updates) {
      ids.emplace_back(updates_[id].ids);
      gradients.emplace_back(updates_[id].floats);
    }
    Rows mean;
    mean_of_rows(ids, gradients, static_cast<std::size_t>(layout_.rows.width), mean.ids,
                 mean.floats);
    store_.step(mean.ids, mean.floats, rate);
  }
  for (const UpdateId id : updates) {
    updates_[id] = {};
    free_updates_.push_back(id);
  }
}

void RowServer::answer_look_up(Rank rank, std::int64_t version) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  const std::vector<std::int64_t> ids = std::move(worker.look_ups.front());
  worker.look_ups.pop_front();
  send_rows(rank, ids, kRowLookUpTag, version);
}

void RowServer::answer_read(Rank rank) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  send_rows(rank, std::exchange(worker.read, {}), kRowReadTag, core_.version());
}

void RowServer::send_rows(Rank rank, const std::vector<std::int64_t>& ids, int tag,
                          std::int64_t value) {
  struct Message {
    RowReply reply;
    std::vector<float> rows;
  };
  const auto message = std::make_shared<Message>();
  message->reply.value = value;
  message->rows.resize(ids.size() * static_cast<std::size_t>(layout_.rows.width));
  store_.read(ids, message->rows);
  LentSpan head = lend_message(message->reply);
  head.keep_alive = message;
  const Work sent = pairs_->coalesced([&](Communicator& together) {
    together.send(head, rank, tag);
    if (!message->rows.empty()) together.send(lend_floats(message->rows, message), rank, tag);
  });
  sent.drive_in_background();
}

void RowServer::send_integers(Rank rank, std::vector<std::int64_t> integers) {
  const auto message = std::make_shared<std::vector<std::int64_t>>(std::move(integers));
  message->insert(message->begin(), static_cast<std::int64_t>(message->size()));
  const std::span<std::int64_t> all(*message);
  pairs_->send(lend_ids(all.first(1), message), rank, kRowReplyTag).drive_in_background();
  if (all.size() == 1) return;
  pairs_->send(lend_ids(all.subspan(1), message), rank, kRowReplyTag).drive_in_background();
}

/// Sends a copy: the rows go on being stepped.
void RowServer::send_made(Rank rank) {
  const RowRequest& request = workers_[static_cast<std::size_t>(rank)].request;
  const auto made = static_cast<std::int64_t>(store_.ids().size());
  const std::int64_t first = std::clamp<std::int64_t>(request.clock, 0, made);
  const auto begin = static_cast<std::size_t>(first);
  const auto count =
      static_cast<std::size_t>(std::min({request.count, kFetchedRows, made - first}));
  const auto ids = store_.ids().subspan(begin, count);
  send_integers(rank, {ids.begin(), ids.end()});
  if (count == 0) return;
  const auto width = static_cast<std::size_t>(layout_.rows.width);
  for (const std::span<const float> all : {store_.values(), store_.states()}) {
    if (all.empty()) continue;
    const auto part = all.subspan(begin * width, count * width);
    const auto copy = std::make_shared<std::vector<float>>(part.begin(), part.end());
    pairs_->send(lend_floats(*copy, copy), rank, kRowReplyTag).drive_in_background();
  }
}

RowReport RowServer::report() const {
  return {.made = static_cast<std::int64_t>(store_.ids().size()),
          .bytes = static_cast<std::int64_t>(store_.bytes()),
          .steps = core_.version(),
          .max_permits = core_.max_permits(),
          .staleness = core_.staleness()};
}

}  // namespace gradwire::servers
