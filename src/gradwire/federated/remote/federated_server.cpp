#include "gradwire/federated/remote/federated_server.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "gradwire/base/check.h"
#include "gradwire/base/log.h"
#include "gradwire/federated/remote/message_channel.h"
#include "gradwire/net/descriptors.h"
#include "gradwire/net/poll_set.h"

namespace gradwire::federated {
namespace {

/// In each `patience`; slower peers are not waited for.
constexpr std::uint64_t kLeastProgress = 16 * 1024;

/// One client's: it may have lost some without the server's knowing yet.
constexpr int kConnectionsEach = 4;

/// The clients' keys, for secure aggregation whose server is not trusted.
Coordinator::Options with_keys(Coordinator::Options options, const Enrolment& enrolment) {
  options.certificates = [&enrolment](ClientId id) -> std::optional<Certificate> {
    const EnrolledClient* client = enrolment.find(id);
    return client != nullptr ? std::optional(client->certificate) : std::nullopt;
  };
  if (options.policy.secure) {
    options.policy.secure->signing_keys = [&enrolment](ClientId id) -> std::optional<PublicKey> {
      const EnrolledClient* client = enrolment.find(id);
      return client != nullptr ? std::optional(client->certificate.key) : std::nullopt;
    };
  }
  return options;
}

bootstrap::Verdict admit(const bootstrap::Claims& claims) {
  return claims.encrypts ? bootstrap::Verdict::accepted : bootstrap::Verdict::other_encryption;
}

}  // namespace

struct FederatedServer::Connection {
  Connection(ClientId id, net::Socket socket, const net::SessionKey& key, Time now)
      : client(id), channel(std::move(socket), net::TlsStream::End::server, key), marked(now) {}

  /// A question that has no answer yet.
  struct Waiting {
    std::uint64_t instance = 0;
    std::int64_t round = -1;
    Question question;
    Time until{};
  };

  ClientId client;
  MessageChannel channel;
  std::size_t poll_index = 0;
  std::optional<Waiting> waiting;
  std::size_t update_bytes = 0;  ///< The message's that arrives, in update_bytes_.
  bool sends_task = false;
  bool is_gone = false;
  Time marked;  ///< When progress was last looked at.
  std::uint64_t marked_bytes = 0;
  std::uint64_t counted_up = 0, counted_down = 0;  ///< In the ledger.
};

FederatedServer::FederatedServer(const net::HostNetwork& network, net::Socket listener,
                                 Enrolment& enrolment, ServerModel& model, Options options)
    : network_(network),
      enrolment_(enrolment),
      model_(model),
      options_(std::move(options)),
      coordinator_(with_keys(options_.rounds, enrolment), model,
                   [&enrolment](ClientId id) {
                     const EnrolledClient* client = enrolment.find(id);
                     return client != nullptr ? client->name : "revoked";
                   }),
      handshakes_(network.clock(), bootstrap::listeners_of(std::move(listener)),
                  {.credentials = enrolment.credentials(), .world_size = bootstrap::kNoWorld},
                  &admit,
                  [this](bootstrap::AuthenticatedConnection made) { enter(std::move(made)); }),
      rounds_left_(options_.count) {
  options_.max_connections =
      std::max<std::size_t>(1, std::min(options_.max_connections, net::part_of_descriptors(2)));
}

FederatedServer::~FederatedServer() = default;

Status FederatedServer::run(const net::Socket& stop) {
  coordinator_.begin_round(now());
  net::PollSet set;
  for (;;) {
    set.clear();
    const std::size_t stop_index = set.add(stop, POLLIN);
    set.wait(handshakes_.watch(set, watch(set)));
    if (set.returned_events(stop_index) != 0) break;
    coordinator_.on_time(now());
    GRADWIRE_RETURN_IF_ERROR(handshakes_.advance(set));
    serve_all(set);
    GRADWIRE_RETURN_IF_ERROR(advance_rounds());
    answer_those_waiting();
    std::erase_if(connections_, [](const auto& one) { return one->is_gone; });
    if (is_over_ && !is_anyone_awaited()) break;
  }
  if (ending_) ending_->done.get();
  model_.on_stop();
  return {};
}

/// Returns true if clients do not know yet that there are no more rounds.
bool FederatedServer::is_anyone_awaited() const {
  return coordinator_.expected_until() > now() ||
         std::ranges::any_of(connections_,
                             [](const auto& one) { return !one->channel.has_sent(); });
}

// --- connections ---

void FederatedServer::enter(bootstrap::AuthenticatedConnection made) {
  const ClientId id = made.claims.from;
  make_room(id);
  if (connections_.size() >= options_.max_connections) return;  // It calls again later.
  connections_.push_back(std::make_unique<Connection>(id, std::move(made.socket), made.key, now()));
  serve(*connections_.back());
}

void FederatedServer::make_room(ClientId id) {
  const auto is_of = [&](const auto& one) { return one->client == id && !one->is_gone; };
  if (std::ranges::count_if(connections_, is_of) < kConnectionsEach) return;
  close(**std::ranges::find_if(connections_, is_of));
}

net::Deadline FederatedServer::watch(net::PollSet& set) {
  const Time at = now();
  Time next = std::min(after(at, std::chrono::hours(1)), coordinator_.deadline());
  if (is_over_) next = std::min(next, coordinator_.expected_until());
  if (ending_) set.add(ending_->ours, POLLIN);
  for (const auto& one : connections_) {
    // One whose update has to wait for room is woken by the end of another.
    const bool is_held = one->channel.is_deciding();
    one->poll_index = set.add(one->channel.socket(), is_held ? 0 : one->channel.wanted_events());
    if (one->channel.has_more()) next = at;
    next =
        std::min(next, one->waiting ? one->waiting->until : after(one->marked, options_.patience));
  }
  return {network_.clock(), next};
}

void FederatedServer::serve_all(const net::PollSet& set) {
  for (const auto& one : connections_) {
    // Those that have entered just now are not in the set, whose first entry is another.
    const short events = one->poll_index == 0 ? short{0} : set.returned_events(one->poll_index);
    if (one->channel.is_deciding() && (events & (POLLHUP | POLLERR)) != 0) close(*one);
    if (events != 0 || one->channel.has_more() || one->channel.is_deciding()) serve(*one);
    if (one->is_gone) continue;
    if (one->waiting && one->waiting->until <= now()) answer(*one, Wait{});
    if (!is_too_slow(*one)) continue;
    if (!one->channel.is_idle())
      coordinator_.note(one->client, {ErrorKind::timeout, "its connection is too slow"});
    close(*one);
  }
}

/// Returns true if too few bytes have moved since the last look; not for a client that waits.
bool FederatedServer::is_too_slow(Connection& one) {
  const std::uint64_t bytes = one.channel.sent_bytes() + one.channel.received_bytes();
  const bool is_held = one.waiting || one.channel.is_deciding();
  if (!is_held && now() < after(one.marked, options_.patience)) return false;
  const bool is_slow = !is_held && bytes - one.marked_bytes < kLeastProgress;
  one.marked = now();
  one.marked_bytes = bytes;
  return is_slow;
}

void FederatedServer::close(Connection& one) {
  if (std::exchange(one.is_gone, true)) return;
  update_bytes_ -= std::exchange(one.update_bytes, 0);
  if (!std::exchange(one.waiting, std::nullopt)) return;
  // It may have connected again before its end was noticed.
  const bool is_here = std::ranges::any_of(connections_, [&](const auto& other) {
    return other->client == one.client && other->waiting;
  });
  if (!is_here) coordinator_.on_gone(one.client, now());
}

void FederatedServer::serve(Connection& one) {
  const Status done = one.is_gone ? Status() : advance(one);
  if (!done) {
    if (done.error().kind != ErrorKind::disconnected) coordinator_.note(one.client, done.error());
    close(one);
  }
  const std::uint64_t up = one.channel.received_bytes(), down = one.channel.sent_bytes();
  coordinator_.add_bytes(one.client, up - std::exchange(one.counted_up, up),
                         down - std::exchange(one.counted_down, down));
}

Status FederatedServer::advance(Connection& one) {
  GRADWIRE_RETURN_IF_ERROR(one.channel.advance());
  if (!one.channel.has_sent()) return {};
  if (std::exchange(one.sends_task, false)) coordinator_.on_task_sent(one.client, now());
  if (one.channel.is_deciding()) {
    if (one.waiting) return failure(ErrorKind::corrupted, "it asks again before it is answered");
    if (!decide(one)) return {};
    GRADWIRE_RETURN_IF_ERROR(one.channel.advance());
  }
  return one.channel.has_message() ? take_question(one) : Status();
}

/// Decides whether the body of the question that arrives is kept. Returns false if there is no room
/// for it yet.
bool FederatedServer::decide(Connection& one) {
  const MessageHeader& header = *one.channel.header();
  const bool keeps = header.size <= coordinator_.limit_of(one.client, header);
  if (keeps && is_upload(header)) {
    if (update_bytes_ > 0 && update_bytes_ + header.size > options_.max_update_bytes) return false;
    one.update_bytes = static_cast<std::size_t>(header.size);
    update_bytes_ += one.update_bytes;
  }
  one.channel.receive(keeps);
  return true;
}

Status FederatedServer::take_question(Connection& one) {
  const MessageHeader header = *one.channel.header();
  const Blob body = one.channel.take();
  update_bytes_ -= std::exchange(one.update_bytes, 0);
  Question question = Update{};  // An update that is not needed, or wrong, was not kept.
  if (body.size == header.size) {
    GRADWIRE_ASSIGN_OR_RETURN(question, decode_question(header, body));
  } else if (is_question<MaskedUpdate>(header)) {
    question = MaskedUpdate{};
  } else if (!is_upload(header)) {
    return failure(ErrorKind::corrupted,
                   fmt::format("it sent a question of {} bytes, and {} are allowed", header.size,
                               coordinator_.limit_of(one.client, header)));
  }
  one.waiting = Connection::Waiting{header.instance, header.round, std::move(question),
                                    after(now(), options_.poll)};
  try_answer(one);
  return {};
}

void FederatedServer::try_answer(Connection& one) {
  auto& asked = *one.waiting;
  const auto reply =
      coordinator_.reply(one.client, asked.instance, asked.round, asked.question, now());
  if (reply) return answer(one, *reply);
  // The server has it: none is kept while its client waits.
  if (auto* masked = std::get_if<MaskedUpdate>(&asked.question)) masked->message = {};
  const bool is_crowded = 2 * connections_.size() > options_.max_connections;
  if (is_crowded && std::holds_alternative<CheckIn>(asked.question))
    answer(one, coordinator_.come_back(now()));
}

void FederatedServer::answer_those_waiting() {
  std::vector<ClientId> ids = coordinator_.take_answerable();
  std::ranges::sort(ids);
  if (ids.empty() && !is_over_) return;
  for (const auto& one : connections_) {
    if (!one->waiting || one->is_gone) continue;
    if (is_over_ || std::ranges::binary_search(ids, one->client)) try_answer(*one);
  }
}

/// The answer leaves with the next turn of the loop: a client may have asked many times at once.
void FederatedServer::answer(Connection& one, const Answer& answer) {
  one.waiting.reset();
  one.marked = now();
  one.marked_bytes = one.channel.sent_bytes() + one.channel.received_bytes();
  one.sends_task = std::holds_alternative<Task>(answer);
  one.channel.send(encode(answer, coordinator_.round_number()));
}

// --- rounds ---

/// Ends a round that is complete, and begins the next one.
Status FederatedServer::advance_rounds() {
  using namespace std::chrono_literals;
  if (ending_ && ending_->done.wait_for(0s) == std::future_status::ready) finish_ending();
  if (!ending_ && !is_over_ && coordinator_.has_ended()) return start_ending();
  return {};
}

Status FederatedServer::start_ending() {
  GRADWIRE_ASSIGN_OR_RETURN(auto pair, network_.make_pair());
  ending_ = Ending{std::move(pair.first), std::move(pair.second), {}};
  ending_->done = std::async(std::launch::async, [this, round = coordinator_.ended()] {
    const auto wake = [this] { ending_->theirs.close(); };
    try {
      model_.on_ended(round);
    } catch (...) {
      wake();
      throw;
    }
    wake();
  });
  return {};
}

void FederatedServer::finish_ending() {
  ending_->done.get();
  ending_.reset();
  if ((options_.count > 0 && --rounds_left_ == 0) || model_.is_complete()) {
    is_over_ = true;
    coordinator_.finish(now());
    const std::int64_t awaited = coordinator_.expected_clients(now());
    if (awaited > 0 && options_.on_waiting)
      options_.on_waiting(awaited, coordinator_.expected_until() - now());
  } else {
    coordinator_.begin_round(now());
  }
}

}  // namespace gradwire::federated
