#include "gradwire/federated/remote/participant.h"

#include <variant>

#include <fmt/format.h>
#include <poll.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/log.h"
#include "gradwire/federated/remote/model_bytes.h"
#include "gradwire/net/poll_set.h"

namespace gradwire::federated {
namespace {

constexpr double kEligibilitySeconds = 10;  ///< Between two looks while it is not eligible.

}  // namespace

Participant::Options Participant::options_of(const std::filesystem::path& identity) {
  std::filesystem::path state = identity;
  return {.session = {.identity = value_or_throw(read_identity(identity)),
                      .state = state.replace_extension(".state")}};
}

Participant::Participant(const net::HostNetwork& network, Options options,
                         std::function<Duration()> time_of_day)
    : network_(network),
      id_(options.session.identity.id),
      session_(network, std::move(options.session), std::move(time_of_day)),
      eligibility_(network.clock(), std::move(options.eligibility)),
      stop_(value_or_throw(network.make_pair())) {}

const ModelDescription& Participant::description() {
  if (!description_) {
    description_text_ = value_or_throw(session_.describe());
    description_ = value_or_throw(model_description_from_json(description_text_));
  }
  return *description_;
}

void Participant::set_tensors(std::span<const ModelDescription::Shape> own) {
  order_ = TensorOrder(own, description());
}

void Participant::stop() {
  is_stopped_ = true;
  stop_.second.close();
  session_.cancel();
}

// --- before the training ---

std::optional<Participant::Work> Participant::begin(std::int64_t samples) {
  while (wait(std::exchange(come_back_, 0)) && wait_until_eligible()) {
    auto checked_in = session_.check_in(samples, version_);
    if (!checked_in && is_stopped_) break;
    const ClientSession::CheckedIn answer = value_or_throw(std::move(checked_in));
    if (std::holds_alternative<Over>(answer)) break;
    if (const auto* back = std::get_if<ComeBack>(&answer))
      come_back(*back);
    else if (auto work = work_for(std::get<ClientTask>(answer)))
      return work;
  }
  return std::nullopt;
}

void Participant::come_back(const ComeBack& told) {
  come_back_ = told.seconds;
  if (std::exchange(said_, told.reason) != told.reason)
    log_warning("{}; asking again in {:.0f} s", told.reason, told.seconds);
}

/// Returns false after stop().
bool Participant::wait(double seconds) {
  net::PollSet set;
  set.add(stop_.first, POLLIN);
  if (seconds > 0) set.wait(net::Deadline::after(network_.clock(), duration_of(seconds)));
  return !is_stopped_;
}

bool Participant::wait_until_eligible() {
  std::string said;
  while (!is_stopped_) {
    const std::string& reason = eligibility_.check_now();
    if (reason.empty()) return true;
    if (std::exchange(said, reason) != reason)
      log_warning("not eligible: {}; looking again every {:.0f} s", reason, kEligibilitySeconds);
    wait(kEligibilitySeconds);
  }
  return false;
}

/// nullopt: the client has left the round.
std::optional<Participant::Work> Participant::work_for(const ClientTask& task) {
  auto plan = client_plan_from_json(task.plan);
  const Status taken = plan ? take(task, *plan) : Status(tl::unexpected<Error>(plan.error()));
  if (!taken) {
    log_warning("round {}: {}", task.round,
                leave(LeaveReason::unusable_task, taken.error().message).reason);
    return std::nullopt;
  }
  plan_ = *plan;
  round_ = task.round;
  deadline_ = task.deadline;
  began_ = network_.clock().now();
  steps_ = 0;
  ended_early_.reset();
  return Work{id_, round_, plan_, order_.to_own(values_)};
}

/// Decodes the task's model. Fails with corrupted.
Status Participant::take(const ClientTask& task, const ClientPlan& plan) {
  const ModelType type = plan.is_bf16 ? ModelType::bf16 : ModelType::float32;
  const bool is_whole = task.base_version < 0;
  const std::int64_t had = std::exchange(version_, -1);
  if (!is_whole && task.base_version != had) {
    return failure(ErrorKind::corrupted,
                   fmt::format("the server sent the difference to version {}, which this client "
                               "does not have",
                               task.base_version));
  }
  GRADWIRE_ASSIGN_OR_RETURN(values_, is_whole
                                         ? model_in(task.model.bytes(), order_.elements(), type)
                                         : model_after(task.model.bytes(), values_, type));
  if (digest_of_model(description_text_, values_) != plan.model) {
    return failure(
        ErrorKind::corrupted,
        "the SHA-256 of the model and its description is not the plan's; the server sends "
        "the whole model next time. If the server was started anew with another "
        "configuration, restart this client");
  }
  version_ = task.version;
  return {};
}

// --- the training, and after it ---

bool Participant::goes_on() {
  const Time now = network_.clock().now();
  const Duration elapsed = now - began_;
  const Duration a_step = steps_ > 0 ? elapsed / steps_ : Duration{};
  ++steps_;
  if (is_stopped_) {
    ended_early_ = {LeaveReason::stopped, "it was stopped"};
  } else if (!eligibility_.check().empty()) {
    ended_early_ = {LeaveReason::not_eligible, eligibility_.check()};
  } else if (now + a_step > deadline_) {
    ended_early_ = {LeaveReason::out_of_time, "the time of the round was over"};
  } else if (seconds(elapsed + a_step) > session_.costs().compute_seconds_left()) {
    ended_early_ = {LeaveReason::beyond_limits, "the limit of compute was reached"};
  }
  return !ended_early_;
}

Participant::Outcome Participant::end(const LocalResult& result, std::int64_t all_steps) {
  const bool is_partial = result.steps < all_steps;
  if (is_stopped_ || result.steps == 0 || (is_partial && plan_.partial == Partial::drop)) {
    if (!ended_early_) return leave(LeaveReason::stopped);
    return leave(ended_early_->first, ended_early_->second);
  }
  const UpdateQuantizer quantizer(plan_.update, values_.size(), plan_.range, plan_.round_seed);
  const auto after = session_.ready(result.steps, seconds(network_.clock().now() - began_),
                                    {.update_bits = plan_.update.bits,
                                     .draws = plan_.draws,
                                     .shape = {quantizer.elements(), Metrics::kElements}});
  if (!after) return {false, after.error().message};
  if (const auto* late = std::get_if<NotNeeded>(&*after)) {
    come_back_ = late->seconds;
    return {false, "the update was not needed"};
  }
  return upload(std::get<UploadOrder>(*after), result, quantizer);
}

Participant::Outcome Participant::upload(const UploadOrder& order, const LocalResult& result,
                                         const UpdateQuantizer& quantizer) {
  const std::vector<float> update = order_.to_server(result.update);
  LocalResult sent = result;
  sent.update = update;
  const auto contribution = encode(sent, {.client = id_, .round = round_},
                                   {.bits = static_cast<int>(order.bits), .weight = order.weight},
                                   {.quantizer = &quantizer,
                                    .normalizes = plan_.partial == Partial::normalize,
                                    .seed = plan_.rounding_seed});
  if (!contribution) return leave(LeaveReason::not_finite, contribution.error().message);
  if (order.secure()) {
    const Status enough = check_contributors(*order.secure(), plan_.update.keep);
    if (!enough) return leave(LeaveReason::refuses_order, enough.error().message);
  }
  const auto done = session_.upload(*contribution);
  if (!done) return {false, done.error().message};
  come_back_ = done->seconds;
  if (done->counts) return {true, ""};
  return {false, "the round went on without it"};
}

Participant::Outcome Participant::leave(LeaveReason reason, std::string details) {
  if (!is_stopped_) {
    const Status left = session_.leave(reason);
    if (!left) log_warning("{}", left.error().message);
  }
  return {false, std::move(details)};
}

}  // namespace gradwire::federated
