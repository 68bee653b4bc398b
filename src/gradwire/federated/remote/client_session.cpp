#include "gradwire/federated/remote/client_session.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "gradwire/base/check.h"
#include "gradwire/base/clock.h"
#include "gradwire/base/log.h"
#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/handshake/handshake.h"
#include "gradwire/net/poll_set.h"

namespace gradwire::federated {
namespace {

constexpr Duration kConnectTime = std::chrono::seconds(10);
/// Seconds until another round than one in which the client was before.
constexpr double kRoundAgain = 60;

std::uint64_t random_number() {
  std::uint64_t number = 0;
  const std::string digits = random_hex(sizeof(number));
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return number;
}

/// HOST:PORT; the host may be in brackets.
Result<net::SocketAddress> resolve_server(const std::string& server) {
  const std::size_t colon = server.rfind(':');
  std::uint16_t port = 0;
  const char* end = server.data() + server.size();
  const bool is_right = colon != std::string::npos && colon > 0 &&
                        std::from_chars(server.data() + colon + 1, end, port).ptr == end &&
                        port != 0;
  if (!is_right) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("\"{}\" is no HOST:PORT of a server", server));
  }
  std::string host = server.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  GRADWIRE_ASSIGN_OR_RETURN(const auto addresses, net::resolve(host, port));
  return addresses.front();
}

bool may_pass(const Error& error) {
  return error.kind == ErrorKind::disconnected || error.kind == ErrorKind::timeout ||
         error.kind == ErrorKind::system;
}

}  // namespace

ClientSession::ClientSession(const net::HostNetwork& network, Options options,
                             std::function<Duration()> time_of_day)
    : network_(network),
      options_(std::move(options)),
      costs_(options_.state, options_.limits, std::move(time_of_day)),
      instance_(random_number()),
      random_(instance_),
      cancel_(value_or_throw(network.make_pair())),
      history_{costs_.last_round()} {
  if (options_.server.empty()) options_.server = options_.identity.server;
  if (options_.server.empty()) {
    refuse(
        "the identity {} does not say where its server is: give HOST:PORT, also to gradwire "
        "federate enrol --server",
        options_.identity.name);
  }
}

// --- calls ---

Result<std::string> ClientSession::describe() {
  round_ = -1;
  const Time until = after(network_.clock().now(), options_.give_up);
  for (int failures = 0;;) {
    auto answer = exchange(Describe{});
    disconnect();
    GRADWIRE_RETURN_IF_ERROR(note_bytes());
    const bool is_told_to_wait = answer && std::holds_alternative<ComeBack>(*answer);
    auto told = expect<Description>(std::move(answer));
    if (told) return std::move(told->text);
    if (!is_told_to_wait) return tl::unexpected<Error>(told.error());
    GRADWIRE_RETURN_IF_ERROR(pause(++failures, until, told.error()));
  }
}

Result<ClientSession::CheckedIn> ClientSession::check_in(std::int64_t samples,
                                                         std::int64_t version) {
  round_ = -1;
  samples_ = samples;
  auto answer = exchange(CheckIn{samples, version});
  if (!answer) return tl::unexpected<Error>(answer.error());
  if (auto* back = std::get_if<ComeBack>(&*answer)) {
    disconnect();
    return std::move(*back);
  }
  if (std::holds_alternative<Over>(*answer)) {
    disconnect();
    return Over{};
  }
  const auto offer = expect<Offer>(std::move(answer));
  if (!offer) return tl::unexpected<Error>(offer.error());
  round_ = answered_round_;
  if (offer->down_bytes < 0) return failure(ErrorKind::corrupted, "the server offers no cost");
  offered_bytes_ = static_cast<double>(offer->up_bytes);
  if (const auto declined = costs_.check(*offer))
    return decline(LeaveReason::beyond_limits, declined->reason, declined->seconds);
  const Status begun = costs_.begin(round_);
  if (!begun && begun.error().kind == ErrorKind::refused)
    return decline(LeaveReason::known_round, begun.error().message, kRoundAgain);
  GRADWIRE_RETURN_IF_ERROR(begun);
  return fetch(static_cast<std::uint64_t>(offer->down_bytes));
}

Result<ClientSession::CheckedIn> ClientSession::decline(LeaveReason told, const std::string& reason,
                                                        double come_back) {
  GRADWIRE_RETURN_IF_ERROR(leave(told));
  return ComeBack{come_back, "declined: " + reason};
}

Result<ClientSession::CheckedIn> ClientSession::fetch(std::uint64_t bytes) {
  max_answer_bytes_ = bytes + kMaxAnswerBytes;
  const Time asked = network_.clock().now();  // The time of the model's transfer is the round's.
  auto answer = exchange(Fetch{});
  max_answer_bytes_ = kMaxAnswerBytes;
  disconnect();
  GRADWIRE_RETURN_IF_ERROR(note_bytes());
  if (!answer) return tl::unexpected<Error>(answer.error());
  if (const auto* late = std::get_if<NotNeeded>(&*answer))
    return ComeBack{late->seconds, "the round was over before the model was sent"};
  auto task = expect<Task>(std::move(answer));
  if (!task) return tl::unexpected<Error>(task.error());
  task_ = digest_of_task(task->version, task->plan);
  return ClientTask{round_,
                    task->version,
                    task->base_version,
                    std::move(task->plan),
                    std::move(task->model),
                    after(asked, duration_of(task->seconds))};
}

Result<ClientSession::AfterTraining> ClientSession::ready(std::int64_t steps,
                                                          double compute_seconds,
                                                          const Terms& terms) {
  GRADWIRE_RETURN_IF_ERROR(costs_.add_compute(compute_seconds, steps));
  auto answer = exchange(Ready{compute_seconds});
  if (!answer) return tl::unexpected<Error>(answer.error());
  if (const auto* late = std::get_if<NotNeeded>(&*answer)) {
    disconnect();
    return *late;
  }
  const auto order = expect<UploadOrder>(std::move(answer));
  if (!order) return tl::unexpected<Error>(order.error());
  if (const Status right = check(*order, terms); !right)
    return tl::unexpected(leave_for(right.error()));
  if (auto exceeded = exceeded_by(*order, terms.shape)) {
    return tl::unexpected(
        leave_for({ErrorKind::refused, *std::move(exceeded)}, LeaveReason::beyond_limits));
  }
  order_ = *order;
  return *order;
}

Status ClientSession::check(const UploadOrder& order, const Terms& terms) const {
  if (options_.secure.is_required && !order.secure()) {
    return failure(ErrorKind::refused,
                   fmt::format("the server {} asks for an update that it could read, and {} "
                               "requires secure aggregation: have it turned on, or do not require "
                               "it",
                               options_.server, options_.identity.name));
  }
  if (options_.secure.least.active && terms.draws > 0) {
    return failure(ErrorKind::refused,
                   fmt::format("the server {} chooses the weights (round.select \"proportional\"), "
                               "so that it could tell an update from the others in the sum, and {} "
                               "requires protection from a server that lies",
                               options_.server, options_.identity.name));
  }
  const std::int64_t least = terms.draws > 0 ? 1 : samples_;
  const std::int64_t most = terms.draws > 0 ? terms.draws : samples_;
  if (order.weight < least || order.weight > most) {
    return failure(ErrorKind::refused,
                   fmt::format("the server {} gives the update a weight of {}, and by its plan it "
                               "is {} to {}: another could tell it from the others in the sum",
                               options_.server, order.weight, least, most));
  }
  if (order.bits < terms.update_bits || order.bits > 64) {
    return failure(ErrorKind::refused,
                   fmt::format("the server {} asks for elements of {} bits, and by its plan they "
                               "have {} to 64",
                               options_.server, order.bits, terms.update_bits));
  }
  return {};
}

Result<ClientSession::Uploaded> ClientSession::upload(const Contribution& contribution) {
  if (!order_)
    return failure(ErrorKind::invalid_argument, "no update was ordered: call ready() before");
  auto answer = order_->secure() ? upload_masked(contribution) : exchange(to_update(contribution));
  order_.reset();
  disconnect();
  GRADWIRE_RETURN_IF_ERROR(note_bytes());
  if (!answer) return tl::unexpected<Error>(answer.error());
  if (const auto* late = std::get_if<NotNeeded>(&*answer)) return Uploaded{false, late->seconds};
  const auto done = expect<Done>(std::move(answer));
  if (!done) return tl::unexpected<Error>(done.error());
  return Uploaded{true, done->seconds};
}

/// The bits of a sum are known when its cohort is. Returns why the upload is too long, if it is.
std::optional<std::string> ClientSession::exceeded_by(const UploadOrder& order,
                                                      const UpdateShape& shape) {
  std::size_t bytes = update_bytes(shape, static_cast<int>(order.bits));
  if (const auto secure = order.secure())
    bytes += secure_up_bytes(static_cast<std::size_t>(secure->neighbours + secure->neighbours % 2));
  if (static_cast<double>(bytes) <= offered_bytes_) return std::nullopt;
  const auto declined = costs_.check_upload(static_cast<double>(bytes));
  if (!declined) return std::nullopt;
  return fmt::format("{}: the sum has {} bits an element, and {:.0f} bytes were offered",
                     declined->reason, order.bits, offered_bytes_);
}

/// Returns the server's last answer, which is no order any more.
Result<Answer> ClientSession::upload_masked(const Contribution& contribution) {
  auto upload = MaskedUpload::begin(options_.identity, round_, task_, *order_->secure(),
                                    options_.secure, contribution, history_);
  if (!upload) return tl::unexpected(leave_for(upload.error()));
  for (auto question = upload->first();;) {
    if (!question) return tl::unexpected(leave_for(question.error()));
    auto answer = exchange(std::move(*question));
    const auto* order = answer ? std::get_if<SecureOrder>(&*answer) : nullptr;
    if (order == nullptr) return answer;
    question = upload->after(*order);
  }
}

/// Tells the server, so that the others need not wait for this client.
Error ClientSession::leave_for(Error error, LeaveReason reason) {
  const Status told = leave(reason);
  if (!told && told.error().kind == ErrorKind::aborted) return told.error();
  return error;
}

Status ClientSession::leave(LeaveReason reason) {
  const auto done = expect<Done>(exchange(Leave::of(reason)));
  disconnect();
  if (!done) return tl::unexpected<Error>(done.error());
  return note_bytes();
}

template <class Expected>
Result<Expected> ClientSession::expect(Result<Answer> answer) const {
  if (!answer) return tl::unexpected<Error>(answer.error());
  if (auto* expected = std::get_if<Expected>(&*answer)) return std::move(*expected);
  if (const auto* refusal = std::get_if<Refusal>(&*answer)) {
    const Error error = refusal->error();
    return failure(error.kind, fmt::format("the server {} refuses {}: {}", options_.server,
                                           options_.identity.name, error.message));
  }
  if (const auto* back = std::get_if<ComeBack>(&*answer)) {
    return failure(ErrorKind::refused, fmt::format("the server {} has {} wait: {}", options_.server,
                                                   options_.identity.name, back->reason));
  }
  return failure(ErrorKind::corrupted,
                 fmt::format("the server {} gives another answer than was asked for: it does not "
                             "speak as this client does",
                             options_.server));
}

// --- the connection ---

/// The answer to a question, which is asked until there is one.
Result<Answer> ClientSession::exchange(Question question) {
  if (options_.on_question) options_.on_question(name_of(question));
  Message message = encode(question, instance_, round_);
  Time until = after(network_.clock().now(), options_.give_up);
  for (int failures = 0;;) {
    const bool is_reused = channel_ != nullptr;
    auto answer = attempt(message);
    if (answer && !std::holds_alternative<Wait>(*answer)) return answer;
    if (answer) {
      if (auto* masked = std::get_if<MaskedUpdate>(&question)) {  // The server has it.
        masked->message = {};
        message = encode(question, instance_, round_);
      }
      failures = 0;
      until = after(network_.clock().now(), options_.give_up);
      continue;
    }
    disconnect();
    if (!may_pass(answer.error())) return tl::unexpected(in_words(answer.error()));
    if (is_reused) continue;  // The server closes connections that are idle for long.
    GRADWIRE_RETURN_IF_ERROR(pause(++failures, until, answer.error()));
  }
}

Result<Answer> ClientSession::attempt(const Message& message) {
  if (!channel_) GRADWIRE_RETURN_IF_ERROR(connect());
  channel_->send(message);
  GRADWIRE_RETURN_IF_ERROR(move([&] { return channel_->is_deciding(); }));
  if (channel_->header()->size > max_answer_bytes_) {
    return failure(ErrorKind::corrupted,
                   fmt::format("the server {} sends {} bytes, and {} are expected at most",
                               options_.server, channel_->header()->size, max_answer_bytes_));
  }
  channel_->receive(true);
  GRADWIRE_RETURN_IF_ERROR(move([&] { return channel_->has_message(); }));
  const MessageHeader header = *channel_->header();
  answered_round_ = header.round;
  return decode_answer(header, channel_->take());
}

Status ClientSession::connect() {
  GRADWIRE_ASSIGN_OR_RETURN(const auto address, resolve_server(options_.server));
  const bootstrap::Claims claims{
      .from = options_.identity.id, .world_size = bootstrap::kNoWorld, .encrypts = true};
  GRADWIRE_ASSIGN_OR_RETURN(auto made,
                            bootstrap::connect_and_authenticate(
                                network_, address, shared_secret(options_.identity.secret), claims,
                                net::Deadline::after(network_.clock(), kConnectTime)));
  channel_ = std::make_unique<MessageChannel>(std::move(made.socket), net::TlsStream::End::client,
                                              made.key);
  return {};
}

/// Until `is_done`, for as long as bytes move, or for the server's longest wait.
Status ClientSession::move(const std::function<bool()>& is_done) {
  std::uint64_t moved = 0;
  net::Deadline silent = net::Deadline::after(network_.clock(), options_.patience);
  for (net::PollSet set;; set.clear()) {
    GRADWIRE_RETURN_IF_ERROR(channel_->advance());
    if (is_done()) return {};
    const std::uint64_t bytes = channel_->sent_bytes() + channel_->received_bytes();
    if (std::exchange(moved, bytes) != bytes)
      silent = net::Deadline::after(network_.clock(), options_.patience);
    if (silent.passed()) {
      return failure(ErrorKind::timeout,
                     fmt::format("the server {} does not answer", options_.server));
    }
    const std::size_t cancelled = set.add(cancel_.first, POLLIN);
    set.add(channel_->socket(), channel_->wanted_events());
    set.wait(channel_->has_more() ? net::Deadline(network_.clock(), Time{}) : silent);
    if (set.returned_events(cancelled) != 0)
      return failure(ErrorKind::aborted, "federated learning was cancelled");
  }
}

/// Before another attempt. Fails with the error when it is time to give up, or aborted.
Status ClientSession::pause(int failures, Time until, const Error& error) {
  const Time now = network_.clock().now();
  if (now >= until) return tl::unexpected(error);
  if (failures == 1) log_warning("{}; trying again", error.message);
  const double longest = std::min(seconds(options_.most_pause),
                                  seconds(options_.first_pause) * (1 << std::min(failures, 10)));
  // All clients of a server that is back do not call at once.
  const Duration wait = duration_of(longest * (0.5 + 0.5 * random_.unit()));
  net::PollSet set;
  const std::size_t cancelled = set.add(cancel_.first, POLLIN);
  set.wait({network_.clock(), std::min(until, after(now, wait))});
  if (set.returned_events(cancelled) == 0) return {};
  return failure(ErrorKind::aborted, "federated learning was cancelled");
}

void ClientSession::disconnect() {
  if (!channel_) return;
  moved_.up_bytes += static_cast<double>(channel_->sent_bytes());
  moved_.down_bytes += static_cast<double>(channel_->received_bytes());
  channel_.reset();
}

Status ClientSession::note_bytes() {
  return costs_.add(std::exchange(moved_, {}));
}

/// The handshake's words are those of a job.
Error ClientSession::in_words(const Error& error) const {
  if (error.kind != ErrorKind::refused) return error;
  return {error.kind, fmt::format("the server {} does not know the identity {}: it was revoked, or "
                                  "is of another server; ask for a new one (gradwire federate "
                                  "enrol)",
                                  options_.server, options_.identity.name)};
}

}  // namespace gradwire::federated
