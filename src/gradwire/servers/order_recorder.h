#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/types.h"
#include "gradwire/servers/messages.h"
#include "gradwire/servers/order_log.h"
#include "gradwire/servers/sample_dealer.h"
#include "gradwire/servers/server_core.h"

namespace gradwire::servers {

/// Records the events of a server in their order, in 48 bytes for each gradient of a unit.
class OrderRecorder {
 public:
  OrderRecorder(int workers, std::size_t units)
      : read_(static_cast<std::size_t>(workers), std::vector<std::int64_t>(units)) {}

  void on_deal(Rank worker, const Deal& deal);
  /// `announced`: the request that the gradient came with.
  void on_gradient(const Applied& gradient, const Request& announced, ConstBytes memory);
  /// The worker gets these values.
  void on_answer(const Answer& answer);
  void on_lost(Rank worker);

  static OrderRecord values_record(std::size_t unit, std::int64_t version, ConstBytes values);
  std::span<const OrderRecord> records() const { return records_; }

 private:
  std::vector<OrderRecord> records_;
  std::vector<std::vector<std::int64_t>> read_;  ///< By worker and unit: the version that it got.
};

}  // namespace gradwire::servers
