#include "gradwire/servers/order_recorder.h"

#include "gradwire/base/crc32c.h"

namespace gradwire::servers {
namespace {

OrderRecord::Kind kind_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::dropped:
      return OrderRecord::Kind::dropped;
    case Outcome::added:
      return OrderRecord::Kind::added;
    case Outcome::stepped:
      return OrderRecord::Kind::stepped;
  }
  return OrderRecord::Kind::stepped;
}

}  // namespace

void OrderRecorder::on_deal(Rank worker, const Deal& deal) {
  if (deal.count == 0) return;
  records_.push_back({.kind = OrderRecord::Kind::deal,
                      .worker = worker,
                      .count = static_cast<std::uint32_t>(deal.count),
                      .clock = deal.epoch,
                      .base = deal.begin});
}

void OrderRecorder::on_gradient(const Applied& gradient, const Request& announced,
                                ConstBytes memory) {
  records_.push_back({.kind = kind_of(gradient.outcome),
                      .worker = gradient.worker,
                      .unit = static_cast<std::uint32_t>(gradient.unit),
                      .count = static_cast<std::uint32_t>(announced.batches),
                      .random = static_cast<std::uint32_t>(announced.random),
                      .checksum = crc32c(memory),
                      .clock = gradient.clock,
                      .base = gradient.base,
                      .factor = gradient.factor});
}

void OrderRecorder::on_answer(const Answer& answer) {
  read_[static_cast<std::size_t>(answer.worker)][answer.unit] = answer.version;
}

void OrderRecorder::on_lost(Rank worker) {
  const auto& read = read_[static_cast<std::size_t>(worker)];
  for (std::size_t unit = 0; unit < read.size(); ++unit) {
    records_.push_back({.kind = OrderRecord::Kind::lost,
                        .worker = worker,
                        .unit = static_cast<std::uint32_t>(unit),
                        .base = read[unit]});
  }
}

OrderRecord OrderRecorder::values_record(std::size_t unit, std::int64_t version,
                                         ConstBytes values) {
  return {.kind = OrderRecord::Kind::values,
          .unit = static_cast<std::uint32_t>(unit),
          .checksum = crc32c(values),
          .base = version};
}

}  // namespace gradwire::servers
