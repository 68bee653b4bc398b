#include "gradwire/bootstrap/rendezvous_server.h"

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include "gradwire/base/log.h"
#include "gradwire/bootstrap/handshake_server.h"
#include "gradwire/bootstrap/store.h"
#include "gradwire/bootstrap/store_client.h"
#include "gradwire/net/abort_message.h"

namespace gradwire::bootstrap {
namespace {

using Reading = StoreClient::Reading;

/// If two live processes claim the same rank, the first may still be exiting for this time.
constexpr Duration kDoubt = std::chrono::milliseconds(300);

}  // namespace

/// State and event loop of the server thread.
class RendezvousServer::Loop {
 public:
  Loop(const Clock& clock, Listeners listeners, const ServedJob& job, Progress& progress)
      : clock_(clock),
        job_(job),
        handshakes_(
            clock, std::move(listeners),
            {.credentials = one_secret({.secret = job.secret, .purpose = kStorePurpose}),
             .world_size = kAnyWorldSize,
             .expected = static_cast<std::size_t>(job.world_size)},
            [this](const Claims& claims) { return admit(claims); },
            [this](AuthenticatedConnection connection) { enter(std::move(connection)); }),
        finished_(static_cast<std::size_t>(job.world_size)),
        progress_(progress) {}

  void run(const net::Socket& stop) {
    owner_ = &stop;
    net::PollSet set;
    for (;;) {
      set.clear();
      const std::size_t stop_index = set.add(stop, POLLIN);
      set.wait(handshakes_.watch(set, watch_clients(set)));
      if (set.returned_events(stop_index) != 0) return;
      advance_clients(set);
      if (Status accepting = handshakes_.advance(set); !accepting) {
        log_error("the rendezvous store stops: {}", accepting.error().message);
        fail({accepting.error().kind, 0,
              "rank 0's rendezvous store has stopped: " + accepting.error().message});
        return;
      }
    }
  }

 private:
  enum class Phase : std::uint8_t { gathering, sealed, complete, failed };

  bool is_rank(Rank rank) const { return rank >= 0 && rank < job_.world_size; }

  Verdict admit(const Claims& claims) {
    if (claims.to != 0 || claims.from < 0 || claims.from >= claims.world_size)
      return Verdict::impossible;
    const bool knows = phase_ == Phase::failed && notified_.contains(claims.from);
    const bool done = is_rank(claims.from) ? finished_[static_cast<std::size_t>(claims.from)]
                                           : phase_ == Phase::complete;
    // join() may still reject an accepted client.
    return done || knows ? Verdict::later : Verdict::accepted;
  }

  void enter(AuthenticatedConnection connection) {
    clients_.emplace_back(std::move(connection));
    report();
  }

  net::Deadline watch_clients(net::PollSet& set) {
    Time next = clock_.now() + std::chrono::hours(1);
    for (StoreClient& client : clients_) {
      client.poll_index = set.add(client.socket, client.outbox.empty() ? POLLIN : POLLOUT);
      if (client.waits()) next = std::min(next, client.waits_until);
    }
    return net::Deadline(clock_, next);
  }

  void advance_clients(const net::PollSet& set) {
    for (StoreClient& client : clients_) {
      if (client.gone) continue;
      if (client.waits() && client.waits_until <= clock_.now()) give_up_waiting(client);
      if (set.returned_events(client.poll_index) != 0 && !serve(client)) leave(client, "has ended");
    }
    if (clients_.remove_if([](const StoreClient& client) { return client.gone; }) != 0) report();
  }

  void give_up_waiting(StoreClient& client) {
    client.respond(StoreAnswer::not_yet, client.completed ? missing_connections() : "");
  }

  /// Answers the available requests. Returns false if the client is gone or broke the protocol.
  bool serve(StoreClient& client) {
    for (;;) {
      if (!client.flush()) return false;
      if (!client.outbox.empty()) return true;
      if (client.notified) return take_the_rest(client);
      // A client with a pending request must not send anything: any byte violates the protocol.
      if (client.waits()) return client.read_up_to(1) == Reading::not_yet;
      if (!client.header) {
        const Reading reading = client.read_up_to(RequestHeader::kSize + kCodeSize);
        if (reading != Reading::complete) return reading == Reading::not_yet;
        if (!check_code(client)) continue;
        if (!decode_request(std::exchange(client.inbox, {}), client.header.emplace())) {
          log_warning("{} sent a malformed request to the rendezvous store", client.name());
          return false;
        }
      }
      const std::size_t size = std::size_t{client.header->key_size} + client.header->value_size;
      const Reading reading = client.read_up_to(with_code_size(size));
      if (reading != Reading::complete) return reading == Reading::not_yet;
      if (size > 0 && !check_code(client)) continue;
      if (!execute(client)) return false;
    }
  }

  /// Drains earlier requests: if unread, they would reset the connection and lose the response.
  static bool take_the_rest(StoreClient& client) {
    for (;;) {
      client.inbox.clear();
      const Reading reading = client.read_up_to(RequestHeader::kSize);
      if (reading != Reading::complete) return reading == Reading::not_yet;
    }
  }

  bool check_code(StoreClient& client) {
    if (client.theirs.check(client.inbox)) return true;
    fail({ErrorKind::corrupted, client.claims.from,
          fmt::format("data from {} to the rendezvous store of rank 0 was corrupted in transit "
                      "(wrong authentication code): check the link between these hosts",
                      client.name())});
    return false;
  }

  /// Returns false if the client has violated the protocol.
  bool execute(StoreClient& client) {
    const RequestHeader header = *std::exchange(client.header, std::nullopt);
    std::string value = std::exchange(client.inbox, {});
    std::string key = value.substr(0, header.key_size);
    value.erase(0, header.key_size);
    if (client.joined == (header.kind == RequestKind::join)) return false;
    const Duration wait = std::chrono::milliseconds(header.wait_ms);
    switch (header.kind) {
      case RequestKind::join:
        join(client, decode_newcomer(value));
        break;
      case RequestKind::set:
        set(std::move(key), std::move(value), client);
        break;
      case RequestKind::get:
        get(std::move(key), wait, client);
        break;
      case RequestKind::finish:
        finished_[static_cast<std::size_t>(client.claims.from)] = true;
        client.respond(StoreAnswer::ok);
        break;
      case RequestKind::seal:
        client.respond(seal(client) ? StoreAnswer::ok : StoreAnswer::not_yet);
        break;
      case RequestKind::complete:
        complete(client, wait);
        break;
      case RequestKind::fail:
        fail_as(client, value);
        break;
    }
    return true;
  }

  void join(StoreClient& client, const Newcomer& who) {
    client.host = who.host;
    if (who.job_id != job_.job_id) return send_away(client, who.job_id);
    if (client.claims.world_size != job_.world_size) return refuse_world_size(client);
    if (phase_ == Phase::failed) return tell(client);
    if (StoreClient* before = find(client.claims.from); before != nullptr) {
      // The previous process of the rank may have been restarted, or have given up and reconnected.
      const bool ended = net::has_ended(before->socket);
      if (!ended && !is_surely_twice(client)) return client.respond(StoreAnswer::later);
      if (!ended) return refuse_duplicate(client, *before);
      leave(*before, "has ended");
      if (phase_ == Phase::failed) return tell(client);
    }
    doubted_.erase(client.claims.from);
    erase(ended_key(client.claims.from));
    client.joined = true;
    client.respond(StoreAnswer::ok);
  }

  StoreClient* find(Rank rank) {
    const auto found = std::ranges::find_if(clients_, [rank](const StoreClient& client) {
      return client.joined && !client.gone && client.claims.from == rank;
    });
    return found == clients_.end() ? nullptr : &*found;
  }

  bool is_surely_twice(const StoreClient& client) {
    const Time now = clock_.now();
    return now - doubted_.try_emplace(client.claims.from, now).first->second >= kDoubt;
  }

  /// Rejects this client only: jobs that share a secret must not end each other.
  void send_away(StoreClient& client, const std::string& job_id) {
    const auto words = [](const std::string& id) {
      return id.empty() ? std::string("no job id") : fmt::format("job id \"{}\"", id);
    };
    const std::string text = fmt::format(
        "{} has {}, but the rank 0 that listens there has {}: give each job its own port, and all "
        "ranks of a job the same GRADWIRE_JOB_ID",
        client.name(), words(job_id), words(job_.job_id));
    log_warning("refused a rank of another job: {}", text);
    tell(client, net::encode_abort({ErrorKind::mismatch, client.claims.from, text}));
  }

  void refuse_world_size(StoreClient& client) {
    const Claims& claims = client.claims;
    fail({ErrorKind::mismatch, -1,
          fmt::format("{} was started with a world size of {}, rank 0 with {}: give all ranks the "
                      "same WORLD_SIZE",
                      client.name(), claims.world_size, job_.world_size)});
  }

  void refuse_duplicate(const StoreClient& client, const StoreClient& before) {
    fail({ErrorKind::invalid_argument, -1,
          fmt::format("another process has already joined as rank {}: {} and {}: give each process "
                      "its own RANK",
                      client.claims.from, before.name(), client.name())});
  }

  void set(std::string key, std::string value, StoreClient& client) {
    const auto old = table_.find(key);
    const std::size_t freed = old == table_.end() ? 0 : key.size() + old->second.size();
    const std::size_t after = table_bytes_ - freed + key.size() + value.size();
    if (after > kMaxStoreBytes) return client.respond(StoreAnswer::full);
    table_bytes_ = after;
    client.keys.insert(key);
    for (StoreClient& other : clients_) {
      if (other.awaited == key) other.respond(StoreAnswer::ok, value);
    }
    table_.insert_or_assign(std::move(key), std::move(value));
    client.respond(StoreAnswer::ok);
  }

  void get(std::string key, Duration wait, StoreClient& client) {
    if (const auto found = table_.find(key); found != table_.end()) {
      return client.respond(StoreAnswer::ok, found->second);
    }
    if (wait == Duration::zero()) return client.respond(StoreAnswer::not_yet);
    client.awaited = std::move(key);
    client.waits_until = after(clock_.now(), wait);
  }

  bool seal(const StoreClient& client) {
    if (client.claims.from != 0 || phase_ != Phase::gathering) return phase_ == Phase::sealed;
    for (Rank rank = 0; rank < job_.world_size; ++rank) {
      const StoreClient* member = find(rank);
      if (member == nullptr || net::has_ended(member->socket)) return false;
    }
    phase_ = Phase::sealed;
    return true;
  }

  void complete(StoreClient& client, Duration wait) {
    client.completed = true;
    client.waits_until = after(clock_.now(), wait);
    for (Rank rank = 0; rank < job_.world_size; ++rank) {
      const StoreClient* member = find(rank);
      if (member == nullptr || !member->completed) return;
    }
    phase_ = Phase::complete;
    finished_.assign(finished_.size(), true);
    for (StoreClient& member : clients_) {
      if (member.completed) member.respond(StoreAnswer::ok);
    }
  }

  std::string missing_connections() {
    std::vector<std::string> names;
    for (const StoreClient& client : clients_) {
      if (client.joined && !client.completed) names.push_back(client.name());
    }
    return fmt::format("{}: not connected to all others in time", fmt::join(names, ", "));
  }

  void fail_as(StoreClient& client, const std::string& value) {
    net::AbortMessage why = net::decode_abort(std::as_bytes(std::span(value)), client.claims.from);
    why.origin = client.claims.from;
    why.text = fmt::format("{} failed while the job started: {}", client.name(), why.text);
    fail(why);
  }

  /// All ranks get the first reason, including those that connect later.
  void fail(const net::AbortMessage& why) {
    if (phase_ != Phase::failed) failure_ = net::encode_abort(why);
    phase_ = Phase::failed;
    for (StoreClient& client : clients_) tell(client);
  }

  void tell(StoreClient& client) {
    if (client.notified || client.gone) return;
    if (is_rank(client.claims.from)) notified_.insert(client.claims.from);
    tell(client, failure_);
    report();
  }

  static void tell(StoreClient& client, const std::vector<std::byte>& why) {
    client.notified = true;
    client.respond(StoreAnswer::failed, {reinterpret_cast<const char*>(why.data()), why.size()});
  }

  /// Handles the end of a client's connection.
  void leave(StoreClient& client, std::string_view how) {
    client.gone = true;
    client.socket.close();
    if (!client.joined || finished_[static_cast<std::size_t>(client.claims.from)]) return;
    if (phase_ == Phase::gathering) {
      log_warning("{} {} before all ranks had joined; it may be started again", client.name(), how);
      for (const std::string& key : client.keys) erase(key);
      erase(ended_key(client.claims.from));
      const std::string who = client.name();
      table_bytes_ += ended_key(client.claims.from).size() + who.size();
      table_.emplace(ended_key(client.claims.from), who);
    }
    if (phase_ == Phase::sealed || phase_ == Phase::failed) notified_.insert(client.claims.from);
    if (phase_ != Phase::sealed) return;
    fail({ErrorKind::disconnected, client.claims.from,
          fmt::format("{} {} while the ranks connected to each other: it was killed or crashed, or "
                      "its host is down",
                      client.name(), how)});
  }

  void erase(const std::string& key) {
    const auto found = table_.find(key);
    if (found == table_.end()) return;
    table_bytes_ -= key.size() + found->second.size();
    table_.erase(found);
  }

  void report() {
    const std::lock_guard lock(progress_.mutex);
    progress_.connected = static_cast<int>(clients_.size());
    progress_.unnotified =
        phase_ == Phase::failed ? job_.world_size - static_cast<int>(notified_.size()) : 0;
    net::LoopThread::notify(*owner_);
  }

  const Clock& clock_;
  const net::Socket* owner_ = nullptr;
  ServedJob job_;
  HandshakeServer handshakes_;
  Phase phase_ = Phase::gathering;
  std::list<StoreClient> clients_;
  std::vector<bool> finished_;
  std::map<Rank, Time> doubted_;    ///< Time since which two processes have claimed that rank.
  std::vector<std::byte> failure_;  ///< Set once the start has failed.
  std::set<Rank> notified_;         ///< Ranks that know, or have exited.
  std::unordered_map<std::string, std::string> table_;
  std::size_t table_bytes_ = 0;
  Progress& progress_;
};

Result<std::unique_ptr<RendezvousServer>> RendezvousServer::start(
    const net::HostNetwork& network, std::unique_ptr<Listener> listener, ServedJob job) {
  std::unique_ptr<RendezvousServer> server(new RendezvousServer);
  Listeners listeners;
  listeners.push_back(std::move(listener));
  auto loop = std::make_shared<Loop>(network.clock(), std::move(listeners), job, server->progress_);
  GRADWIRE_ASSIGN_OR_RETURN(
      auto thread, net::LoopThread::start(
                       network, "cannot start the rendezvous store",
                       [loop = std::move(loop)](const net::Socket& stop) { loop->run(stop); }));
  server->thread_ = std::move(thread);
  return server;
}

bool RendezvousServer::wait_until_idle(net::Deadline deadline) {
  return thread_->wait_until(deadline, [this] {
    const std::lock_guard lock(progress_.mutex);
    return progress_.connected == 0 && progress_.unnotified == 0;
  });
}

}  // namespace gradwire::bootstrap
