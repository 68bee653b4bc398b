#include "gradwire/servers/order_log.h"

#include "gradwire/base/crc32c.h"
#include "gradwire/base/error.h"
#include "gradwire/servers/worker_steps.h"
#include "tests/fuzz/target.h"

namespace gradwire::fuzz {
namespace {

using servers::OrderRecord;

servers::OrderLog log_of(int workers, int servers) {
  servers::OrderLog log{.configuration = R"({"seed": 1})",
                        .placement = {.workers = workers, .servers = servers},
                        .servers = {}};
  for (int server = 0; server < servers; ++server) {
    auto& records = log.servers.emplace_back();
    for (Rank worker = 0; worker < workers && server == 0; ++worker) {
      records.push_back({.kind = OrderRecord::Kind::deal, .worker = worker, .count = 8});
    }
    for (Rank worker = 0; worker < workers; ++worker) {
      records.push_back({.worker = worker, .count = 1, .checksum = 3, .base = worker / 2});
    }
    records.push_back({.kind = OrderRecord::Kind::lost, .base = 1});
    records.push_back({.kind = OrderRecord::Kind::values, .base = workers});
  }
  return log;
}

}  // namespace

std::vector<std::string> seeds() {
  return {servers::encode_order(log_of(1, 1)), servers::encode_order(log_of(3, 2))};
}

void repair(std::string& input) {
  if (input.size() < 4) return;
  input.resize(input.size() - 4);
  std::uint32_t checksum = crc32c(bytes_of(input));
  for (int i = 0; i < 4; ++i, checksum >>= 8) input.push_back(static_cast<char>(checksum));
}

/// A log is either refused with the project's own error, or comes back as it was, and its steps
/// refer to its own records.
void test(std::string_view input) {
  try {
    const servers::OrderLog log = servers::decode_order(input, "order.bin");
    const servers::OrderLog again = servers::decode_order(servers::encode_order(log), "order.bin");
    expect(again.servers == log.servers, "it comes back as it was");
    const servers::WorkerSteps steps = servers::steps_of(log);
    for (const auto& of_worker : steps.by_worker) {
      for (const servers::WorkerStep& step : of_worker) {
        expect(step.parts.size() == steps.units * log.servers.size(), "a step has all parts");
        expect(step.applied + step.dropped > 0, "and some server has one of them");
      }
    }
  } catch (const Exception& e) {
    expect(e.kind() == ErrorKind::invalid_argument, "a damaged log is refused as invalid");
  }
}

}  // namespace gradwire::fuzz
