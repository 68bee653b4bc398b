#include "gradwire/bootstrap/job_store_server.h"

#include <algorithm>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "gradwire/base/log.h"
#include "gradwire/bootstrap/handshake_server.h"
#include "gradwire/bootstrap/job_store_protocol.h"
#include "gradwire/bootstrap/key_table.h"
#include "gradwire/bootstrap/message_stream.h"

namespace gradwire::bootstrap {
namespace {

/// Maximum bytes of all keys and values together.
constexpr std::size_t kMaxTableBytes = 256 << 20;

struct Client {
  Rank rank = 0;
  MessageStream stream;
  std::optional<JobStoreRequest> awaiting;  ///< A pending get or wait whose key does not exist.
  Time awaiting_until = Time::max();
  bool gone = false;
  std::size_t poll_index = 0;
};

bool waits(const JobStoreRequest& request) {
  return request.operation == StoreOperation::get || request.operation == StoreOperation::wait;
}

JobStoreResponse refusal(const Error& error) {
  return {.answer = JobStoreAnswer::refused, .value = error.message};
}

std::int64_t number_in(const std::string& text) {
  return std::strtoll(text.c_str(), nullptr, 10);
}

/// Executes a request that does not wait.
JobStoreResponse execute(const JobStoreRequest& request, KeyTable& table) {
  const auto answer = [](const Status& done) {
    return done ? JobStoreResponse{} : refusal(done.error());
  };
  switch (request.operation) {
    case StoreOperation::set:
      return answer(table.set(request.key, request.value));
    case StoreOperation::append:
      return answer(table.append(request.key, request.value));
    case StoreOperation::add: {
      const auto sum = table.add(request.key, number_in(request.value));
      return sum ? JobStoreResponse{.value = fmt::to_string(*sum)} : refusal(sum.error());
    }
    case StoreOperation::compare_set: {
      auto now = table.compare_set(request.key, request.expected, request.value);
      return now ? JobStoreResponse{.value = std::move(*now)} : refusal(now.error());
    }
    case StoreOperation::erase:
      return {.answer = table.erase(request.key) ? JobStoreAnswer::ok : JobStoreAnswer::not_there};
    case StoreOperation::count:
      return {.value = fmt::to_string(table.size())};
    case StoreOperation::get:
    case StoreOperation::wait:
    case StoreOperation::leave:
      break;
  }
  return {};
}

/// Returns the response to a get or wait, or nullopt if its key does not exist.
std::optional<JobStoreResponse> look(const JobStoreRequest& request, const KeyTable& table) {
  const std::string* value = table.find(request.key);
  if (value == nullptr) return std::nullopt;
  if (request.operation == StoreOperation::wait) return JobStoreResponse{};
  return JobStoreResponse{.value = *value};
}

}  // namespace

/// State and event loop of the server thread.
class JobStoreServer::Loop {
 public:
  Loop(const Clock& clock, Listeners listeners, std::string secret, int world_size,
       Presence& presence)
      : clock_(clock),
        handshakes_(
            clock, std::move(listeners),
            {.credentials = one_secret({.secret = std::move(secret), .purpose = kJobStorePurpose}),
             .world_size = world_size},
            [this](const Claims& claims) { return admit(claims); },
            [this](AuthenticatedConnection connection) { enter(std::move(connection)); }),
        left_(static_cast<std::size_t>(world_size)),
        presence_(presence) {}

  void run(const net::Socket& stop) {
    owner_ = &stop;
    net::PollSet set;
    for (;;) {
      set.clear();
      const std::size_t stop_index = set.add(stop, POLLIN);
      const net::Deadline next = handshakes_.watch(set, watch_clients(set));
      set.wait(next);
      if (set.returned_events(stop_index) != 0) return;
      advance_clients(set);
      if (Status accepting = handshakes_.advance(set); !accepting) {
        log_error("the job's store stops: {}", accepting.error().message);
        return;
      }
    }
  }

 private:
  Verdict admit(const Claims& claims) {
    if (claims.to != 0) return Verdict::impossible;
    if (left_[static_cast<std::size_t>(claims.from)]) return Verdict::later;
    const auto of_it = [&](const Client& client) { return client.rank == claims.from; };
    const auto connections = std::ranges::count_if(clients_, of_it);
    return connections < kMaxConnections ? Verdict::accepted : Verdict::duplicate;
  }

  void enter(AuthenticatedConnection connection) {
    clients_.push_back({.rank = connection.claims.from,
                        .stream = {std::move(connection.socket), connection.key,
                                   MessageStream::End::server, kMaxJobStoreMessageBytes},
                        .awaiting = {}});
    report();
  }

  net::Deadline watch_clients(net::PollSet& set) {
    Time next = clock_.now() + std::chrono::hours(1);
    for (Client& client : clients_) {
      client.poll_index =
          set.add(client.stream.socket(), client.stream.flushed() ? POLLIN : POLLOUT);
      if (client.awaiting) next = std::min(next, client.awaiting_until);
    }
    return net::Deadline(clock_, next);
  }

  void advance_clients(const net::PollSet& set) {
    for (Client& client : clients_) {
      if (set.returned_events(client.poll_index) != 0) serve(client);
      if (client.awaiting && client.awaiting_until <= clock_.now()) {
        respond(client, {.answer = JobStoreAnswer::not_there});
      }
    }
    if (std::erase_if(clients_, [](const Client& client) { return client.gone; }) > 0) report();
  }

  /// Reads and answers the available requests.
  void serve(Client& client) {
    if (!client.stream.flushed() && !client.stream.flush()) client.gone = true;
    while (!client.gone && client.stream.flushed()) {
      std::string message;
      const Result<bool> there = client.stream.receive(message);
      if (!there || client.awaiting) {
        // A client with a pending request must not send another one.
        client.gone = !there || *there;
        if (!there && there.error().kind == ErrorKind::corrupted) say(client, there.error());
        return;
      }
      if (!*there) return;
      auto request = decode_job_store_request(message);
      if (!request) {
        client.gone = true;
        return say(client, request.error());
      }
      take(client, std::move(*request));
    }
  }

  static void say(const Client& client, const Error& error) {
    log_warning("the job's store closes its connection to rank {}: {}", client.rank, error.message);
  }

  void take(Client& client, JobStoreRequest request) {
    if (request.operation == StoreOperation::leave) {
      left_[static_cast<std::size_t>(client.rank)] = true;
    }
    if (!waits(request)) {
      respond(client, execute(request, table_));
      return wake(request.key);
    }
    if (const auto there = look(request, table_)) return respond(client, *there);
    if (request.wait_ms == 0) return respond(client, {.answer = JobStoreAnswer::not_there});
    client.awaiting_until = after(clock_.now(), std::chrono::milliseconds(request.wait_ms));
    client.awaiting = std::move(request);
  }

  /// Answers the pending requests for the key, which may exist after a change.
  void wake(const std::string& key) {
    for (Client& client : clients_) {
      if (!client.awaiting || client.awaiting->key != key) continue;
      if (const auto there = look(*client.awaiting, table_)) respond(client, *there);
    }
  }

  static void respond(Client& client, const JobStoreResponse& response) {
    client.awaiting.reset();
    if (!client.stream.send(encode(response))) client.gone = true;
  }

  void report() {
    const std::lock_guard lock(presence_.mutex);
    presence_.connected = clients_.size();
    net::LoopThread::notify(*owner_);
  }

  const Clock& clock_;
  const net::Socket* owner_ = nullptr;
  HandshakeServer handshakes_;
  std::list<Client> clients_;
  std::vector<bool> left_;
  KeyTable table_{kMaxTableBytes};
  Presence& presence_;
};

Result<std::unique_ptr<JobStoreServer>> JobStoreServer::start(const net::HostNetwork& network,
                                                              std::unique_ptr<Listener> listener,
                                                              std::string secret, int world_size) {
  std::unique_ptr<JobStoreServer> server(new JobStoreServer);
  Listeners listeners;
  listeners.push_back(std::move(listener));
  auto loop = std::make_shared<Loop>(network.clock(), std::move(listeners), std::move(secret),
                                     world_size, server->presence_);
  GRADWIRE_ASSIGN_OR_RETURN(
      auto thread, net::LoopThread::start(
                       network, "cannot start the job's store",
                       [loop = std::move(loop)](const net::Socket& stop) { loop->run(stop); }));
  server->thread_ = std::move(thread);
  return server;
}

bool JobStoreServer::wait_until_idle(net::Deadline deadline) {
  return thread_->wait_until(deadline, [this] {
    const std::lock_guard lock(presence_.mutex);
    return presence_.connected == 0;
  });
}

}  // namespace gradwire::bootstrap
