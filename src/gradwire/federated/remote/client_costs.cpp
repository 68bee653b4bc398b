#include "gradwire/federated/remote/client_costs.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/clock.h"
#include "gradwire/base/file.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/base/units.h"

namespace gradwire::federated {
namespace {

constexpr auto kDay = std::chrono::hours(24);
/// When to ask again after work that is too large for a round: the server may offer less.
constexpr double kAskAgain = 3600;
constexpr double kMost = 1e18;

}  // namespace

ClientCosts::ClientCosts(std::filesystem::path file, const CostLimits& limits,
                         std::function<Duration()> time_of_day)
    : file_(std::move(file)), limits_(limits), time_of_day_(std::move(time_of_day)) {
  if (std::filesystem::exists(file_)) read(value_or_throw(read_file(file_)));
  turn_the_day();
}

void ClientCosts::read(std::string_view text) {
  value_or_throw(read_json_object(text, file_.string(), [this](JsonFields fields) {
    fields.require_version(1);
    day_ = fields.integer_or("day", 0, 0);
    last_round_ = fields.integer_or("last_round", -1, -1);
    seconds_per_step_ = fields.number("seconds_per_step", 0, kMost);
    today_ = {.compute_seconds = fields.number("compute_seconds", 0, kMost),
              .up_bytes = fields.number("up_bytes", 0, kMost),
              .down_bytes = fields.number("down_bytes", 0, kMost)};
    fields.refuse_others();
  }));
}

Status ClientCosts::write() const {
  const nlohmann::ordered_json json{{"version", 1},
                                    {"last_round", last_round_},
                                    {"seconds_per_step", seconds_per_step_},
                                    {"day", day_},
                                    {"compute_seconds", today_.compute_seconds},
                                    {"up_bytes", today_.up_bytes},
                                    {"down_bytes", today_.down_bytes}};
  try {
    write_file(file_, json.dump(1) + "\n");
  } catch (const Exception& error) {
    return failure(error.kind(), fmt::format("{}: a client takes part only if it can remember its "
                                             "rounds: free some space, or name another file",
                                             error.what()));
  }
  return {};
}

void ClientCosts::turn_the_day() {
  const std::int64_t day = time_of_day_() / kDay;
  if (std::exchange(day_, day) != day) today_ = {};
}

const ClientCost& ClientCosts::today() {
  turn_the_day();
  return today_;
}

std::optional<ClientCosts::Declined> ClientCosts::check(const Offer& offer) {
  turn_the_day();
  if (limits_.memory_bytes > 0 && offer.memory_bytes > limits_.memory_bytes) {
    return Declined{fmt::format("the work needs {} of memory, and the limit is {}",
                                format_bytes(static_cast<std::size_t>(offer.memory_bytes)),
                                format_bytes(static_cast<std::size_t>(limits_.memory_bytes))),
                    kAskAgain};
  }
  const ClientCost& round = limits_.round;
  const ClientCost& day = limits_.day;
  for (const Need& one :
       {Need{"seconds of compute", seconds_per_step_ * static_cast<double>(offer.steps),
             today_.compute_seconds, round.compute_seconds, day.compute_seconds},
        Need{"bytes down", static_cast<double>(offer.down_bytes), today_.down_bytes,
             round.down_bytes, day.down_bytes},
        upload_of(static_cast<double>(offer.up_bytes))})
    if (auto declined = check(one)) return declined;
  return std::nullopt;
}

std::optional<ClientCosts::Declined> ClientCosts::check_upload(double bytes) {
  turn_the_day();
  return check(upload_of(bytes));
}

std::optional<ClientCosts::Declined> ClientCosts::check(const Need& one) const {
  if (one.of_round > 0 && one.needed > one.of_round) {
    return Declined{fmt::format("the work takes {:.0f} {}, and the limit of a round is {:.0f}",
                                one.needed, one.what, one.of_round),
                    kAskAgain};
  }
  if (one.of_day > 0 && (one.spent >= one.of_day || one.spent + one.needed > one.of_day)) {
    return Declined{fmt::format("the work takes {:.0f} {} after {:.0f} today, and the limit of a "
                                "day is {:.0f}",
                                one.needed, one.what, one.spent, one.of_day),
                    seconds(kDay - time_of_day_() % kDay)};
  }
  return std::nullopt;
}

Status ClientCosts::begin(std::int64_t round) {
  if (round <= last_round_) {
    return failure(ErrorKind::refused,
                   fmt::format("the server offers round {}, and this client was in round {}: it "
                               "takes part in no round twice; if the server began anew, remove {}",
                               round, last_round_, file_.string()));
  }
  last_round_ = round;
  round_seconds_ = 0;
  return write();
}

Status ClientCosts::add(const ClientCost& cost) {
  turn_the_day();
  today_.compute_seconds += cost.compute_seconds;
  today_.up_bytes += cost.up_bytes;
  today_.down_bytes += cost.down_bytes;
  return write();
}

Status ClientCosts::add_compute(double seconds, std::int64_t steps) {
  if (steps > 0) seconds_per_step_ = seconds / static_cast<double>(steps);
  round_seconds_ += seconds;
  return add({.compute_seconds = seconds});
}

double ClientCosts::compute_seconds_left() {
  turn_the_day();
  double left = std::numeric_limits<double>::infinity();
  if (limits_.round.compute_seconds > 0) left = limits_.round.compute_seconds - round_seconds_;
  if (limits_.day.compute_seconds > 0)
    left = std::min(left, limits_.day.compute_seconds - today_.compute_seconds);
  return std::max(0.0, left);
}

}  // namespace gradwire::federated
