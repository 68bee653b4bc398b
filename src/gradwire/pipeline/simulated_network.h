#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire::pipeline {

/// The ports of ranks in virtual time, as a fluid: the connections that send at the same time share
/// the port of their rank equally, and so do those that are received. A connection sends messages
/// of higher priority first, and interrupts others for them. Time is in seconds and never goes
/// back.
class SimulatedNetwork {
 public:
  /// `shares_ports`: false, every connection has ports of its own.
  explicit SimulatedNetwork(bool shares_ports) : shares_ports_(shares_ports) {}

  struct Send {
    std::size_t id = 0;  ///< The caller's.
    Rank from = 0;
    Rank to = 0;
    int priority = 0;
    double seconds = 0;  ///< For which it occupies two ports alone.
  };
  void send(const Send& send, double now);

  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// The time at which the next message is through, if nothing is sent before; kNever: none is in
  /// flight.
  double next_end() const;
  /// Ends that message and returns its id.
  std::size_t end_next();

 private:
  struct Connection {
    Rank from = 0;
    Rank to = 0;
    std::vector<Send> messages;  ///< By priority, then by age; `seconds` are those left.
    double rate = 0;             ///< Rate of the first, as a share of a port.
  };

  Connection& connection_of(const Send& send);
  void advance(double now);
  void share_ports();

  bool shares_ports_;
  double now_ = 0;
  std::vector<Connection> connections_;
  std::vector<int> sending_, receiving_;  ///< By rank: connections that are active.
};

}  // namespace gradwire::pipeline
