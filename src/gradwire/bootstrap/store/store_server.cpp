#include "gradwire/bootstrap/store/store_server.h"

#include <algorithm>
#include <list>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "gradwire/base/log.h"
#include "gradwire/bootstrap/handshake/handshake_server.h"
#include "gradwire/bootstrap/store/key_table.h"
#include "gradwire/bootstrap/store/start_state.h"
#include "gradwire/bootstrap/store/store_client.h"
#include "gradwire/bootstrap/store/store_protocol.h"

namespace gradwire::bootstrap {
namespace {

/// Maximum bytes of all keys and values together.
constexpr std::size_t kMaxTableBytes = 256 << 20;

bool is_of_start(const StoreRequest& request) {
  return request.operation >= StoreOperation::exchange;
}

bool waits(const StoreRequest& request) {
  return request.operation == StoreOperation::get || request.operation == StoreOperation::wait;
}

StoreResponse refusal(const Error& error) {
  return {.answer = StoreAnswer::refused, .value = error.message};
}

std::int64_t number_in(const std::string& text) {
  return std::strtoll(text.c_str(), nullptr, 10);
}

/// Executes a request that does not wait.
StoreResponse execute(const StoreRequest& request, KeyTable& table) {
  const auto answer = [](const Status& done) {
    return done ? StoreResponse{} : refusal(done.error());
  };
  switch (request.operation) {
    case StoreOperation::set:
      return answer(table.set(request.key, request.value));
    case StoreOperation::append:
      return answer(table.append(request.key, request.value));
    case StoreOperation::add: {
      const auto sum = table.add(request.key, number_in(request.value));
      return sum ? StoreResponse{.value = fmt::to_string(*sum)} : refusal(sum.error());
    }
    case StoreOperation::compare_set: {
      auto now = table.compare_set(request.key, request.expected, request.value);
      return now ? StoreResponse{.value = std::move(*now)} : refusal(now.error());
    }
    case StoreOperation::erase:
      return {.answer = table.erase(request.key) ? StoreAnswer::ok : StoreAnswer::not_there};
    case StoreOperation::count:
      return {.value = fmt::to_string(table.size())};
    default:
      return {};
  }
}

/// Returns the response to a get or wait, or nullopt if its key does not exist.
std::optional<StoreResponse> look(const StoreRequest& request, const KeyTable& table) {
  const std::string* value = table.find(request.key);
  if (value == nullptr) return std::nullopt;
  if (request.operation == StoreOperation::wait) return StoreResponse{};
  return StoreResponse{.value = *value};
}

}  // namespace

/// State and event loop of the server thread.
class StoreServer::Loop {
 public:
  Loop(const Clock& clock, Listeners listeners, Options options, Presence& presence)
      : clock_(clock),
        world_size_(options.world_size),
        handshakes_(
            clock, std::move(listeners),
            {.credentials = std::move(options.credentials),
             .world_size = options.world_size,
             .expected = static_cast<std::size_t>(options.world_size)},
            [this](const Claims& claims) { return admit(claims); },
            [this](AuthenticatedConnection connection) { enter(std::move(connection)); }),
        presence_(presence) {
    if (options.starts_job) start_.emplace(clock, world_size_, *options.starts_job);
  }

  void run(const net::Socket& stop) {
    owner_ = &stop;
    net::PollSet set;
    for (;;) {
      set.clear();
      const std::size_t stop_index = set.add(stop, POLLIN);
      set.wait(handshakes_.watch(set, watch_clients(set)));
      if (set.returned_events(stop_index) != 0) return;
      advance_clients(set);
      if (Status accepting = handshakes_.advance(set); !accepting)
        return stop_for(accepting.error());
    }
  }

 private:
  Verdict admit(const Claims& claims) const {
    // A start tells all ranks of another world size.
    const int world_size = start_ ? claims.world_size : world_size_;
    const Verdict verdict = claims.world_size == kNoWorld ? verdict_for_other(claims)
                                                          : verdict_for_rank(claims, world_size);
    if (verdict != Verdict::accepted) return verdict;
    if (left_.contains(claims.from) || (start_ && start_->is_over_for(claims.from)))
      return Verdict::later;
    const auto connections = std::ranges::count_if(
        clients_, [&](const StoreClient& client) { return client.claims.from == claims.from; });
    return connections < kMaxConnections ? Verdict::accepted : Verdict::duplicate;
  }

  static Verdict verdict_for_rank(const Claims& claims, int world_size) {
    return claims.to == 0 ? check_rank(claims, world_size) : Verdict::impossible;
  }

  Verdict verdict_for_other(const Claims& claims) const {
    return claims.from >= world_size_ ? Verdict::accepted : Verdict::impossible;
  }

  void enter(AuthenticatedConnection connection) {
    clients_.emplace_back(std::move(connection));
    report();
  }

  void stop_for(const Error& error) {
    log_error("the store of rank 0 stops: {}", error.message);
    if (start_) start_->fail({error.kind, 0, "the store of rank 0 has stopped: " + error.message});
  }

  net::Deadline watch_clients(net::PollSet& set) {
    Time next = clock_.now() + std::chrono::hours(1);
    for (StoreClient& client : clients_) {
      client.poll_index =
          set.add(client.stream.socket(), client.stream.flushed() ? POLLIN : POLLOUT);
      if (client.pending) next = std::min(next, client.pending_until);
    }
    return net::Deadline(clock_, next);
  }

  void advance_clients(const net::PollSet& set) {
    for (StoreClient& client : clients_) {
      if (set.returned_events(client.poll_index) != 0) serve(client);
      if (client.pending && client.pending_until <= clock_.now()) give_up_waiting(client);
    }
    for (auto client = clients_.begin(); client != clients_.end();) {
      if (!client->gone) {
        ++client;
        continue;
      }
      if (start_) start_->on_end(*client);
      clients_.erase(client);
      client = clients_.begin();  // The others may have been told, and be found gone.
    }
    report();
  }

  void give_up_waiting(StoreClient& client) {
    if (is_of_start(*client.pending)) return start_->on_timeout(client);
    client.respond({.answer = StoreAnswer::not_there});
  }

  /// Reads and answers the available requests.
  void serve(StoreClient& client) {
    if (!client.stream.flushed() && !client.stream.flush()) client.gone = true;
    while (!client.gone && client.stream.flushed()) {
      // If unread, further requests would reset the connection and lose the response.
      if (client.notified) {
        client.gone = !client.stream.discard();
        return;
      }
      std::string message;
      const Result<bool> there = client.stream.receive(message);
      if (!there) return end(client, there.error());
      if (!*there) return;
      auto request = decode_store_request(message);
      if (!request) return end(client, request.error());
      // A client with a pending request must not send another one.
      if (client.pending) return end(client, {ErrorKind::corrupted, "it does not wait"});
      take(client, std::move(*request));
    }
  }

  void end(StoreClient& client, const Error& error) {
    if (error.kind == ErrorKind::corrupted) {
      log_warning("the store of rank 0 closes its connection to {}: {}", client.name(),
                  error.message);
      if (start_ && client.claims.world_size != kNoWorld) return start_->on_corruption(client);
    }
    client.gone = true;
  }

  void take(StoreClient& client, StoreRequest request) {
    client.pending_until = after(clock_.now(), std::chrono::milliseconds(request.wait_ms));
    if (is_of_start(request)) {
      if (!start_ || client.claims.world_size == kNoWorld) {
        return client.respond(refusal({ErrorKind::invalid_argument, "this store starts no job"}));
      }
      client.pending = std::move(request);
      return start_->on_request(client);
    }
    if (request.operation == StoreOperation::leave) left_.insert(client.claims.from);
    if (!waits(request)) {
      client.respond(execute(request, table_));
      return wake(request.key);
    }
    if (const auto there = look(request, table_)) return client.respond(*there);
    if (request.wait_ms == 0) return client.respond({.answer = StoreAnswer::not_there});
    client.pending = std::move(request);
  }

  /// Answers the pending requests for the key, which may exist after a change.
  void wake(const std::string& key) {
    for (StoreClient& client : clients_) {
      if (!client.pending || !waits(*client.pending) || client.pending->key != key) continue;
      if (const auto there = look(*client.pending, table_)) client.respond(*there);
    }
  }

  void report() {
    const int unnotified = start_ ? start_->unnotified() : 0;
    const std::lock_guard lock(presence_.mutex);
    if (presence_.connected == clients_.size() && presence_.unnotified == unnotified) return;
    presence_.connected = clients_.size();
    presence_.unnotified = unnotified;
    net::LoopThread::notify(*owner_);
  }

  const Clock& clock_;
  const net::Socket* owner_ = nullptr;
  int world_size_;
  HandshakeServer handshakes_;
  std::list<StoreClient> clients_;
  std::set<Rank> left_;
  KeyTable table_{kMaxTableBytes};
  std::optional<StartState> start_;
  Presence& presence_;
};

Result<std::unique_ptr<StoreServer>> StoreServer::start(const net::HostNetwork& network,
                                                        std::unique_ptr<Listener> listener,
                                                        Options options) {
  std::unique_ptr<StoreServer> server(new StoreServer);
  Listeners listeners;
  listeners.push_back(std::move(listener));
  auto loop = std::make_shared<Loop>(network.clock(), std::move(listeners), std::move(options),
                                     server->presence_);
  GRADWIRE_ASSIGN_OR_RETURN(
      auto thread, net::LoopThread::start(
                       network, "cannot start the store",
                       [loop = std::move(loop)](const net::Socket& stop) { loop->run(stop); }));
  server->thread_ = std::move(thread);
  return server;
}

bool StoreServer::wait_until_idle(net::Deadline deadline) {
  return thread_->wait_until(deadline, [this] {
    const std::lock_guard lock(presence_.mutex);
    return presence_.connected == 0 && presence_.unnotified == 0;
  });
}

}  // namespace gradwire::bootstrap
