#include "gradwire/comm/rendezvous_server.h"

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gradwire/comm/store_protocol.h"
#include "gradwire/net/gate.h"
#include "gradwire/net/system_failure.h"

namespace gradwire {
namespace {

/// A rank that is connected. It sends one request at a time, so that what is buffered for it is
/// bounded by the largest request or response.
struct Client {
  Socket socket;
  std::string inbox;
  std::string outbox;
  std::optional<RequestHeader> header;  ///< Of the request whose body is still coming.
  std::optional<std::string> awaited;   ///< The key of a get that waits.
  Deadline awaited_until = Deadline(Time::max());
  std::size_t place = 0;
};

enum class Reading { complete, not_yet, gone };

/// Fills `inbox` up to `size` bytes.
Reading read_up_to(std::size_t size, Client& client) {
  while (client.inbox.size() < size) {
    const std::size_t before = client.inbox.size();
    client.inbox.resize(size);
    const Transfer received = receive_some(
        client.socket, std::as_writable_bytes(std::span(client.inbox)).subspan(before));
    client.inbox.resize(before + received.bytes);
    if (received.ended) return Reading::gone;
    if (received.bytes == 0) return Reading::not_yet;
  }
  return Reading::complete;
}

/// False if the client has gone.
bool flush(Client& client) {
  while (!client.outbox.empty()) {
    const Transfer sent =
        send_some(client.socket, std::as_bytes(std::span(std::as_const(client.outbox))));
    if (sent.ended) return false;
    if (sent.bytes == 0) return true;
    client.outbox.erase(0, sent.bytes);
  }
  return true;
}

}  // namespace

/// What the thread does.
class RendezvousServer::Loop {
 public:
  Loop(Doors doors, std::string secret, int world_size, Progress& progress)
      : gate_(
            std::move(doors),
            {.shared = {.secret = std::move(secret), .purpose = kStorePurpose},
             .world_size = world_size},
            [this](const Claims& claims) { return admit(claims); },
            [this](Admitted admitted) { enter(std::move(admitted)); }),
        finished_(static_cast<std::size_t>(world_size)),
        progress_(progress) {}

  void run(const Socket& stop) {
    PollSet set;
    for (;;) {
      set.clear();
      const std::size_t stop_place = set.add(stop, POLLIN);
      Deadline next = gate_.watch(set, watch_clients(set));
      set.wait(next);
      if (set.happened(stop_place) != 0) return;
      advance_clients(set);
      if (Status accepting = gate_.advance(set); !accepting) {
        spdlog::error("the rendezvous ends: {}", accepting.error().message);
        return;
      }
    }
  }

 private:
  Verdict admit(const Claims& claims) {
    if (claims.to != 0) return Verdict::impossible;
    if (finished_[static_cast<std::size_t>(claims.from)]) return Verdict::later;
    // It may have given up before it had our verdict, and try again.
    const auto before = clients_.find(claims.from);
    if (before != clients_.end() && has_ended(before->second.socket)) clients_.erase(before);
    return clients_.contains(claims.from) ? Verdict::duplicate : Verdict::accepted;
  }

  void enter(Admitted admitted) {
    clients_[admitted.claims.from] = Client{};
    clients_[admitted.claims.from].socket = std::move(admitted.socket);
    report();
  }

  Deadline watch_clients(PollSet& set) {
    Time next = SteadyClock().now() + std::chrono::hours(1);
    for (auto& [rank, client] : clients_) {
      client.place = set.add(client.socket, client.outbox.empty() ? POLLIN : POLLOUT);
      if (client.awaited) next = std::min(next, client.awaited_until.at());
    }
    return Deadline(next);
  }

  void advance_clients(const PollSet& set) {
    bool changed = false;
    for (auto it = clients_.begin(); it != clients_.end();) {
      Client& client = it->second;
      if (client.awaited && client.awaited_until.passed()) respond(client, StoreAnswer::not_yet);
      const bool stays = set.happened(client.place) == 0 || serve(it->first, client);
      changed = changed || !stays;
      it = stays ? std::next(it) : clients_.erase(it);
    }
    if (changed) report();
  }

  /// Reads and answers what there is. False once the client has gone or broken the rules.
  bool serve(Rank rank, Client& client) {
    for (;;) {
      if (!flush(client)) return false;
      if (!client.outbox.empty()) return true;
      // A client that waits for an answer has nothing to say: a byte from it is against the rules.
      if (client.awaited) return read_up_to(1, client) == Reading::not_yet;
      if (!client.header) {
        const Reading reading = read_up_to(RequestHeader::kSize, client);
        if (reading != Reading::complete) return reading == Reading::not_yet;
        if (!decode_request(std::exchange(client.inbox, {}), client.header.emplace())) {
          spdlog::warn("rank {} sent the rendezvous store something that is no request", rank);
          return false;
        }
      }
      const Reading reading =
          read_up_to(std::size_t{client.header->key_size} + client.header->value_size, client);
      if (reading != Reading::complete) return reading == Reading::not_yet;
      execute(rank, client);
    }
  }

  void execute(Rank rank, Client& client) {
    const RequestHeader header = *std::exchange(client.header, std::nullopt);
    std::string value = std::exchange(client.inbox, {});
    std::string key = value.substr(0, header.key_size);
    value.erase(0, header.key_size);
    switch (header.kind) {
      case RequestKind::set:
        return set(std::move(key), std::move(value), client);
      case RequestKind::get:
        return get(std::move(key), header.wait_ms, client);
      case RequestKind::finish:
        finished_[static_cast<std::size_t>(rank)] = true;
        respond(client, StoreAnswer::ok);
    }
  }

  void set(std::string key, std::string value, Client& client) {
    const auto old = table_.find(key);
    const std::size_t freed = old == table_.end() ? 0 : key.size() + old->second.size();
    const std::size_t after = table_bytes_ - freed + key.size() + value.size();
    if (after > kMaxStoreBytes) return respond(client, StoreAnswer::full);
    table_bytes_ = after;
    for (auto& [rank, other] : clients_) {
      if (other.awaited == key) respond(other, StoreAnswer::ok, value);
    }
    table_.insert_or_assign(std::move(key), std::move(value));
    respond(client, StoreAnswer::ok);
  }

  void get(std::string key, std::uint32_t wait_ms, Client& client) {
    if (const auto found = table_.find(key); found != table_.end()) {
      return respond(client, StoreAnswer::ok, found->second);
    }
    if (wait_ms == 0) return respond(client, StoreAnswer::not_yet);
    client.awaited = std::move(key);
    client.awaited_until = Deadline::after(std::chrono::milliseconds(wait_ms));
  }

  /// If it cannot be sent now, POLLOUT leads back to serve(); a client that has gone is found
  /// there.
  static void respond(Client& client, StoreAnswer answer, std::string_view value = {}) {
    client.awaited.reset();
    client.outbox = encode_response(answer, value);
    flush(client);
  }

  void report() {
    const std::lock_guard lock(progress_.mutex);
    progress_.connected = static_cast<int>(clients_.size());
    progress_.changed.notify_all();
  }

  Gate gate_;
  std::map<Rank, Client> clients_;
  std::vector<bool> finished_;
  std::unordered_map<std::string, std::string> table_;
  std::size_t table_bytes_ = 0;
  Progress& progress_;
};

Result<std::unique_ptr<RendezvousServer>> RendezvousServer::start(std::unique_ptr<Door> door,
                                                                  std::string secret,
                                                                  int world_size) {
  Socket stop(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!stop.valid()) return system_failure("cannot start the rendezvous store");
  return std::unique_ptr<RendezvousServer>(
      new RendezvousServer(std::move(door), std::move(secret), world_size, std::move(stop)));
}

RendezvousServer::RendezvousServer(std::unique_ptr<Door> door, std::string secret, int world_size,
                                   Socket stop)
    : stop_(std::move(stop)) {
  Doors doors;
  doors.push_back(std::move(door));
  auto loop = std::make_unique<Loop>(std::move(doors), std::move(secret), world_size, progress_);
  thread_ = std::thread([this, loop = std::move(loop)] { loop->run(stop_); });
}

RendezvousServer::~RendezvousServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.descriptor(), &one, sizeof one);
  thread_.join();
}

bool RendezvousServer::wait_until_alone(Deadline deadline) {
  std::unique_lock lock(progress_.mutex);
  return progress_.changed.wait_until(lock, deadline.at(),
                                      [this] { return progress_.connected == 0; });
}

}  // namespace gradwire
