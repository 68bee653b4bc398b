#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire::schedule {

/// The ports of ranks in virtual time, as a fluid: the price of transfers that overlap. (LinkModel
/// prices one operation, segment by segment; tests compare the two.) The connections that send at
/// the same time share the port of their rank equally, and so do those that are received. Of a
/// connection's transfers, that of the highest priority takes as much as it can use, the next takes
/// from the rest, and so on; among equals the oldest comes first. Time is in seconds and never goes
/// back.
class PortNetwork {
 public:
  /// `shares_ports`: false, every connection has ports of its own.
  explicit PortNetwork(bool shares_ports = true) : shares_ports_(shares_ports) {}

  /// A message, or a whole operation of which all ranks have the same share.
  struct Transfer {
    std::size_t id = 0;  ///< The caller's.
    Rank from = 0;
    Rank to = 0;
    int priority = 0;
    double seconds = 0;  ///< Its time alone; above 0.
    double port = 1;     ///< Share of the two ports that it then uses; at most 1.
  };
  void start(const Transfer& transfer, double now);

  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// The time at which the next transfer ends, if none is started before; kNever: none is in
  /// flight.
  double next_end() const;
  /// Ends that transfer and returns its id.
  std::size_t end_next();

  /// Advances the time, at most to next_end().
  void advance(double now);

  /// Busy seconds of all connections' ports so far, in one direction.
  double busy() const { return busy_; }

 private:
  struct Flow {
    Transfer transfer;
    double left = 0;   ///< Seconds at full speed.
    double speed = 0;  ///< Share of full speed.
  };
  struct Connection {
    Rank from = 0;
    Rank to = 0;
    std::vector<Flow> flows;  ///< By priority, then by age.
    double used = 0;          ///< Share of the port.
  };

  Connection& connection_of(const Transfer& transfer);
  void share_ports();
  static void share(Connection& connection, double port);
  static std::vector<Flow>::const_iterator next_of(const Connection& connection);
  double end_of(const Connection& connection) const;

  bool shares_ports_;
  double now_ = 0;
  double busy_ = 0;
  std::vector<Connection> connections_;
  std::vector<int> sending_, receiving_;  ///< By rank: connections that are active.
};

}  // namespace gradwire::schedule
