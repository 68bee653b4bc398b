#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/base/lent_span.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/exchange/exchange.h"
#include "gradwire/exchange/unit_stages.h"
#include "gradwire/servers/served_exchange.h"

namespace gradwire::servers {

/// The beginning of an error between the members of a group.
std::string group_text(Rank first, int members);

/// Workers in groups: synchronous within a group, and as servers do it between groups.
/// reduce_scatter() makes the mean of the group's gradients, of which each member pushes its slice;
/// all_gather() pulls this member's slice of the values, and gathers those of the others. So a
/// group sends the servers as much as one worker.
class GroupedExchange final : public exchange::ExchangeDecorator {
 public:
  /// `group` has the members of this worker's group, in the order of ranks; its rank 0 is worker
  /// `first`. Errors say so, because `group` counts its own ranks. `served` exchanges
  /// slices with the servers, by `pushes`, which it may decorate.
  GroupedExchange(std::unique_ptr<Exchange> served, ServedExchange& pushes,
                  std::shared_ptr<Communicator> group, Rank first,
                  std::vector<exchange::UnitShape> units);
  ~GroupedExchange() override;

  /// Sets the weight of this worker's gradients in the mean; at first 1. Those of the group must
  /// add up to its number of members.
  void set_weight(double weight) { weight_ = weight; }

  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int priority) override;
  Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) override;
  std::string describe() const override;

 private:
  using Buffer = std::vector<std::byte>;

  LentSpan slice_of(std::size_t unit);

  ServedExchange& pushes_;
  std::shared_ptr<Communicator> group_;
  std::vector<exchange::UnitShape> units_;
  std::vector<std::shared_ptr<Buffer>> slices_;  ///< By unit: of the group's mean.
  int first_lane_;  ///< Lane of the reductions; those of the units' gathers follow.
  double weight_ = 1;
  exchange::UnitStages reductions_, gathers_;
};

}  // namespace gradwire::servers
