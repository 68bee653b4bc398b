#include "tests/bootstrap/simulation/sim_hosts.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

namespace gradwire::test {

/// A socket of either kind, as poll(2) sees it.
class SimSocket : public net::SimulatedSocket {
 public:
  explicit SimSocket(SimProcess& process) : process_(process) {}
  virtual short events() const = 0;
  void poll(std::span<pollfd> entries, std::span<net::SimulatedSocket* const> sockets,
            Duration timeout) override;

 protected:
  SimProcess& process_;
};

class SimStream final : public SimSocket {
 public:
  SimStream(std::shared_ptr<SimConnection> connection, int side)
      : SimSocket(*connection->ends[side].process),
        connection_(std::move(connection)),
        side_(side) {
    process_.ends_.insert({connection_.get(), side_});
  }
  ~SimStream() override {
    process_.ends_.erase({connection_.get(), side_});
    process_.hosts_.close(*connection_, side_);
  }

  std::uint64_t number() const { return connection_->number; }

  net::Transfer send(ConstBytes bytes) override {
    if (!connection_->local) process_.check_alive();
    return process_.hosts_.send(*connection_, side_, bytes);
  }

  net::Transfer receive(Bytes bytes) override {
    const net::Transfer found = peek(bytes);
    SimEnd& end = own();
    const auto count = static_cast<std::ptrdiff_t>(found.bytes);
    end.inbox.erase(end.inbox.begin(), end.inbox.begin() + count);
    return found;
  }

  net::Transfer peek(Bytes bytes) override {
    const SimEnd& end = own();
    if (end.inbox.empty() && end.error != 0) return {.ended = true, .cause = end.error};
    if (end.inbox.empty()) return {.ended = end.at_end};
    std::size_t count = std::min(bytes.size(), end.inbox.size());
    if (process_.hosts_.faults_.pieces) count = 1 + process_.hosts_.random().below(count);
    std::copy_n(end.inbox.begin(), count, bytes.begin());
    return {.bytes = count};
  }

  Result<std::optional<net::Accepted>> accept() override { return std::nullopt; }
  net::SocketAddress local_address() const override { return own().address; }
  net::SocketAddress peer_address() const override { return connection_->ends[1 - side_].address; }

  short events() const override {
    const SimEnd& end = own();
    int events = 0;
    if (!end.inbox.empty() || end.at_end || end.error != 0) events |= POLLIN;
    if (end.established || end.error != 0) events |= POLLOUT;
    if (end.at_end || end.error != 0) events |= POLLRDHUP;
    if (end.error != 0) events |= POLLERR | POLLHUP;
    return static_cast<short>(events);
  }

 private:
  SimEnd& own() const { return connection_->ends[side_]; }

  std::shared_ptr<SimConnection> connection_;
  int side_;
};

class SimListener final : public SimSocket {
 public:
  SimListener(SimProcess& process, const net::SocketAddress& address)
      : SimSocket(process), address_(address) {
    process_.hosts_.listeners_[address.to_string()] = this;
    process_.listeners_.insert(this);
  }
  ~SimListener() override { close(); }

  void close() {
    if (std::exchange(closed_, true)) return;
    process_.hosts_.listeners_.erase(address_.to_string());
    process_.listeners_.erase(this);
    for (const auto& connection : backlog_) process_.hosts_.reset(*connection, ECONNRESET);
    backlog_.clear();
  }

  /// Returns false if it refuses.
  bool offer(const std::shared_ptr<SimConnection>& connection) {
    connection->ends[1].process = &process_;
    connection->ends[1].address = address_;
    connection->ends[1].established = true;
    backlog_.push_back(connection);
    return true;
  }

  Result<std::optional<net::Accepted>> accept() override {
    process_.check_alive();
    if (backlog_.empty()) return std::nullopt;
    auto connection = std::move(backlog_.front());
    backlog_.pop_front();
    const net::SocketAddress from = connection->ends[0].address;
    return net::Accepted{net::Socket(std::make_unique<SimStream>(std::move(connection), 1)), from};
  }

  net::Transfer send(ConstBytes) override { return {.ended = true, .cause = ENOTCONN}; }
  net::Transfer receive(Bytes) override { return {.ended = true, .cause = ENOTCONN}; }
  net::Transfer peek(Bytes) override { return {.ended = true, .cause = ENOTCONN}; }
  net::SocketAddress local_address() const override { return address_; }
  net::SocketAddress peer_address() const override { return {}; }
  short events() const override { return backlog_.empty() ? short{0} : short{POLLIN}; }

 private:
  net::SocketAddress address_;
  std::deque<std::shared_ptr<SimConnection>> backlog_;
  bool closed_ = false;
};

void SimSocket::poll(std::span<pollfd> entries, std::span<net::SimulatedSocket* const> sockets,
                     Duration timeout) {
  const auto look = [&] {
    bool any = false;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const auto* socket = static_cast<const SimSocket*>(sockets[i]);
      const int wanted = entries[i].events | POLLERR | POLLHUP;
      entries[i].revents =
          socket == nullptr ? short{0} : static_cast<short>(socket->events() & wanted);
      any = any || entries[i].revents != 0;
    }
    return any;
  };
  process_.block(look, after(process_.clock().now(), timeout));
  look();
}

const Clock& SimProcess::clock() const {
  return hosts_.scheduler_;
}

Result<net::Socket> SimProcess::listen_on(const net::SocketAddress& address) const {
  check_alive();
  const net::SocketAddress at =
      address.port() == 0 ? address.with_port(hosts_.next_port_++) : address;
  if (hosts_.listeners_.contains(at.to_string())) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("cannot listen at {}: another program already does", at.to_string()));
  }
  return net::Socket(std::make_unique<SimListener>(const_cast<SimProcess&>(*this), at));
}

Result<net::Socket> SimProcess::start_connect(const net::SocketAddress& to,
                                              const net::SocketAddress&, const std::string&) const {
  check_alive();
  auto connection = std::make_shared<SimConnection>();
  connection->number = ++hosts_.connections_;
  connection->ends[0].process = const_cast<SimProcess*>(this);
  connection->ends[0].address = *net::SocketAddress::of(address_, hosts_.next_port_++);
  connection->ends[1].address = to;
  hosts_.connect(connection, to);
  return net::Socket(std::make_unique<SimStream>(std::move(connection), 0));
}

Result<std::pair<net::Socket, net::Socket>> SimProcess::make_pair() const {
  auto connection = std::make_shared<SimConnection>();
  connection->local = true;
  for (SimEnd& end : connection->ends) {
    end.process = const_cast<SimProcess*>(this);
    end.established = true;
  }
  return std::pair(net::Socket(std::make_unique<SimStream>(connection, 0)),
                   net::Socket(std::make_unique<SimStream>(connection, 1)));
}

void SimProcess::pause(Duration duration) const {
  block([] { return false; }, after(clock().now(), duration));
}

namespace {

/// A thread of a simulated process.
class SimThread final : public net::NetworkThread {
 public:
  SimThread(Scheduler& scheduler, Scheduler::Task* task) : scheduler_(scheduler), task_(task) {}
  ~SimThread() override {
    scheduler_.block([this] { return task_->ended; }, Time::max());
  }

 private:
  Scheduler& scheduler_;
  Scheduler::Task* task_;
};

/// Runs a thread of a process until it ends or the process is killed.
std::function<void()> until_killed(std::function<void()> run) {
  return [run = std::move(run)] {
    try {
      run();
    } catch (const Killed&) {
    }
  };
}

}  // namespace

std::unique_ptr<net::NetworkThread> SimProcess::start_thread(std::function<void()> run) const {
  return std::make_unique<SimThread>(hosts_.scheduler_,
                                     hosts_.scheduler_.start(until_killed(std::move(run))));
}

void SimProcess::start(std::function<void()> run) {
  hosts_.scheduler_.start(until_killed(std::move(run)));
}

void SimProcess::kill() {
  if (std::exchange(killed_, true)) return;
  for (const auto& [connection, side] : ends_) hosts_.close(*connection, side);
  while (!listeners_.empty()) (*listeners_.begin())->close();
}

void SimProcess::block(const std::function<bool()>& ready, Time until) const {
  hosts_.scheduler_.block([this, &ready] { return killed_ || frozen_ || ready(); }, until);
  if (frozen_) hosts_.scheduler_.block([this] { return killed_; }, Time::max());
  check_alive();
}

void SimProcess::check_alive() const {
  if (killed_) throw Killed{};
}

void SimProcess::count_message() {
  ++messages_;
  frozen_ = frozen_ || messages_ == freeze_at_;
  if (messages_ == kill_at_) kill();
  check_alive();
}

SimProcess& SimHosts::add_process(const std::string& address) {
  return *processes_.emplace_back(std::make_unique<SimProcess>(*this, address));
}

std::vector<net::SocketAddress> SimHosts::listeners() const {
  std::vector<net::SocketAddress> all;
  for (const auto& [address, listener] : listeners_) all.push_back(listener->local_address());
  return all;
}

Duration SimHosts::latency() {
  if (faults_.delay_one_in != 0 && random().one_in(faults_.delay_one_in)) {
    const Duration delay(random().between(0, faults_.max_delay.count()));
    delayed += delay;
    return delay;
  }
  return std::chrono::microseconds(random().between(20, 300));
}

void SimHosts::connect(const std::shared_ptr<SimConnection>& connection,
                       const net::SocketAddress& to) {
  scheduler_.at(scheduler_.now() + latency(), [this, connection, to] {
    SimEnd& caller = connection->ends[0];
    if (caller.closed) return;
    const auto found = listeners_.find(to.to_string());
    const bool faulty = faults_.refuse_one_in != 0 && random().one_in(faults_.refuse_one_in);
    const bool accepted = found != listeners_.end() && !faulty;
    refused += faulty && found != listeners_.end() ? 1 : 0;
    if (accepted) found->second->offer(connection);
    scheduler_.at(scheduler_.now() + latency(), [connection, accepted] {
      SimEnd& end = connection->ends[0];
      end.established = accepted && end.error == 0;
      if (!accepted) end.error = ECONNREFUSED;
    });
  });
}

net::Transfer SimHosts::send(SimConnection& connection, int side, ConstBytes bytes) {
  SimEnd& own = connection.ends[side];
  if (own.error != 0) return {.ended = true, .cause = own.error};
  if (!own.established || own.closed) return {};
  if (connection.local) {
    auto& inbox = connection.ends[1 - side].inbox;
    if (inbox.size() < 256) inbox.insert(inbox.end(), bytes.begin(), bytes.end());
    return {.bytes = bytes.size()};
  }
  const bool lost = random().one_in(2);
  const std::size_t count = faults_.pieces ? 1 + random().below(bytes.size()) : bytes.size();
  if (!lost) transmit(connection, side, bytes.first(count));
  const bool breaks = ++messages_ == faults_.reset_at ||
                      (faults_.reset_one_in != 0 && random().one_in(faults_.reset_one_in));
  if (breaks) {
    ++resets;
    reset(connection, ECONNRESET);
  }
  const auto keep = connection.shared_from_this();
  own.process->count_message();
  if (breaks) return {.ended = true, .cause = ECONNRESET};
  if (lost) transmit(connection, side, bytes.first(count));
  return {.bytes = count};
}

void SimHosts::transmit(SimConnection& connection, int side, ConstBytes bytes) {
  SimEnd& to = connection.ends[1 - side];
  while (!bytes.empty()) {
    const std::size_t count = faults_.pieces ? 1 + random().below(bytes.size()) : bytes.size();
    to.last_arrival = std::max(to.last_arrival, scheduler_.now() + latency());
    scheduler_.at(to.last_arrival,
                  [this, keep = connection.shared_from_this(), side,
                   piece = std::vector(bytes.begin(), bytes.begin() + static_cast<long>(count))] {
                    arrive(*keep, side, piece);
                  });
    bytes = bytes.subspan(count);
  }
}

void SimHosts::arrive(SimConnection& connection, int side, const std::vector<std::byte>& bytes) {
  SimEnd& to = connection.ends[1 - side];
  if (to.error != 0) return;
  if (!to.closed) {
    to.inbox.insert(to.inbox.end(), bytes.begin(), bytes.end());
    return;
  }
  // Nobody reads it: the host answers with a reset.
  scheduler_.at(scheduler_.now() + latency(), [keep = connection.shared_from_this(), side] {
    SimEnd& sender = keep->ends[side];
    if (sender.error == 0) sender.error = ECONNRESET;
  });
}

/// Bytes in flight are lost.
void SimHosts::reset(SimConnection& connection, int cause) {
  for (SimEnd& end : connection.ends) end.error = cause;
}

void SimHosts::close(SimConnection& connection, int side) {
  SimEnd& own = connection.ends[side];
  if (std::exchange(own.closed, true)) return;
  SimEnd& other = connection.ends[1 - side];
  const bool unread = !own.inbox.empty();
  other.last_arrival = std::max(other.last_arrival, scheduler_.now() + latency());
  scheduler_.at(other.last_arrival, [keep = connection.shared_from_this(), side, unread] {
    SimEnd& end = keep->ends[1 - side];
    end.at_end = true;
    if (unread && end.error == 0) end.error = ECONNRESET;
  });
}

std::uint64_t connection_number(const net::Socket& stream) {
  return static_cast<const SimStream*>(stream.simulated())->number();
}

}  // namespace gradwire::test
