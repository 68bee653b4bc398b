#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gradwire/net/host_network.h"
#include "tests/bootstrap/simulation/scheduler.h"

namespace gradwire::test {

/// Thrown out of every blocking call of a process that has been killed.
struct Killed {};

/// Faults of the simulated network. Message numbers count from 1; 0: no fault.
struct NetworkFaults {
  std::uint64_t refuse_one_in = 0;  ///< Connections.
  std::uint64_t reset_at = 0;       ///< The message that resets its connection, over all processes.
  std::uint64_t reset_one_in = 0;   ///< Messages.
  std::uint64_t delay_one_in = 0;   ///< Messages.
  Duration max_delay = {};
  bool pieces = false;  ///< Reads and writes transfer a few bytes, which arrive one by one.
};

class SimHosts;
struct SimConnection;
class SimListener;

/// A process on a host of its own, as the code under test sees it: its HostNetwork. A killed
/// process leaves its sockets to its kernel, which closes them.
class SimProcess final : public net::HostNetwork {
 public:
  SimProcess(SimHosts& hosts, std::string address) : hosts_(hosts), address_(std::move(address)) {}

  const Clock& clock() const override;
  Result<net::Socket> listen_on(const net::SocketAddress& address) const override;
  Result<net::Socket> start_connect(const net::SocketAddress& to, const net::SocketAddress& source,
                                    const std::string& interface) const override;
  Result<std::pair<net::Socket, net::Socket>> make_pair() const override;
  void pause(Duration duration) const override;
  std::unique_ptr<net::NetworkThread> start_thread(std::function<void()> run) const override;

  /// Starts the process's main thread.
  void start(std::function<void()> run);
  void kill();
  bool killed() const { return killed_; }
  /// Kills it when it has sent this many messages.
  void kill_at(std::uint64_t message) { kill_at_ = message; }
  /// Stops it when it has sent this many messages: its connections stay, without an answer.
  void freeze_at(std::uint64_t message) { freeze_at_ = message; }
  bool frozen() const { return frozen_; }
  const std::string& address() const { return address_; }

 private:
  friend class SimHosts;
  friend class SimSocket;
  friend class SimStream;
  friend class SimListener;

  void block(const std::function<bool()>& ready, Time until) const;
  void check_alive() const;
  void count_message();

  SimHosts& hosts_;
  std::string address_;
  bool killed_ = false;
  std::uint64_t messages_ = 0;
  std::uint64_t kill_at_ = 0;
  std::uint64_t freeze_at_ = 0;
  bool frozen_ = false;
  std::set<std::pair<SimConnection*, int>> ends_;
  std::set<SimListener*> listeners_;
};

/// One end of a connection.
struct SimEnd {
  SimProcess* process = nullptr;
  net::SocketAddress address;
  std::deque<std::byte> inbox;
  Time last_arrival = {};
  bool established = false;
  bool closed = false;  ///< By this side.
  bool at_end = false;  ///< The other side's end has arrived.
  int error = 0;        ///< errno.
};

struct SimConnection : std::enable_shared_from_this<SimConnection> {
  SimEnd ends[2];
  bool local = false;  ///< SimProcess::make_pair().
  std::uint64_t number = 0;
};

/// TCP among simulated processes, with seeded faults.
class SimHosts {
 public:
  SimHosts(std::uint64_t seed, const NetworkFaults& faults) : scheduler_(seed), faults_(faults) {}

  Scheduler& scheduler() { return scheduler_; }
  Random& random() { return scheduler_.random(); }
  /// A new process on the host with that numeric address. Valid until this ends.
  SimProcess& add_process(const std::string& address);
  /// Addresses that are listened at.
  std::vector<net::SocketAddress> listeners() const;
  /// Times that each fault happened.
  std::uint64_t refused = 0, resets = 0;
  /// The sum of all delays.
  Duration delayed = {};

 private:
  friend class SimProcess;
  friend class SimStream;
  friend class SimListener;

  Duration latency();
  void connect(const std::shared_ptr<SimConnection>& connection, const net::SocketAddress& to);
  net::Transfer send(SimConnection& connection, int side, ConstBytes bytes);
  void transmit(SimConnection& connection, int side, ConstBytes bytes);
  void arrive(SimConnection& connection, int side, const std::vector<std::byte>& bytes);
  void reset(SimConnection& connection, int cause);
  void close(SimConnection& connection, int side);

  Scheduler scheduler_;
  NetworkFaults faults_;
  std::uint64_t messages_ = 0;
  std::uint64_t connections_ = 0;
  std::uint16_t next_port_ = 40000;
  std::vector<std::unique_ptr<SimProcess>> processes_;
  std::map<std::string, SimListener*> listeners_;
};

/// Returns the number of the simulated connection of a stream; the same at both ends.
std::uint64_t connection_number(const net::Socket& stream);

}  // namespace gradwire::test
