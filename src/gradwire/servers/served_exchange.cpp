#include "gradwire/servers/served_exchange.h"

#include <span>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/crc32c.h"
#include "gradwire/base/refuse.h"
#include "gradwire/exchange/exchange_state.h"

namespace gradwire::servers {
namespace {

/// Stages of a unit that is encoded or decoded (exchange::UnitStages).
enum Stage : int { kFirst, kSecond };

bool in_flight(const Work& work) {
  return work.valid() && !work.done();
}

}  // namespace

std::uint64_t fingerprint_of(const ServedLayout& layout) {
  const Placement& placement = layout.placement;
  const ServerPolicy& policy = layout.policy;
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {};", placement.workers, placement.servers,
                  placement.beside_workers, placement.members, mode_text(policy), policy.workers,
                  policy.use, static_cast<int>(policy.rate.kind), policy.rate.exponent);
  for (const exchange::UnitShape& unit : layout.units) {
    text += fmt::format("{} {} {}", unit.count, name_of(unit.type), unit.skip_compression);
    for (const exchange::UnitTensor& tensor : unit.tensors) {
      text += fmt::format(" {} {}", tensor.name, tensor.offset);
    }
    text += ';';
  }
  for (const bool asynchronous : policy.asynchronous) text += asynchronous ? 'a' : 's';
  const CodecSettings& codecs = layout.codecs;
  text += fmt::format("{} {} {} {} {}", codecs.push, codecs.pull, codecs.warmup_steps, codecs.seed,
                      layout.mirror_every);
  text += fmt::format(" {} {}", layout.policy.grace.count(), layout.weighs_samples);
  return crc32c(std::as_bytes(std::span(text)));
}

void check(const ServedLayout& layout) {
  check(layout.policy);
  if (layout.mirror_every == 0) return;
  const auto with = [](const std::string& what) {
    refuse("mirror_every is incompatible with {}; leave one of them out", what);
  };
  if (layout.mirror_every < 0) {
    refuse("mirror_every is {}; it must be positive, or 0", layout.mirror_every);
  }
  if (layout.policy.mode == Mode::sync) with("mode sync, in which a worker cannot be lost either");
  if (layout.placement.servers < 2) with("one server, which no other one mirrors");
  if (layout.placement.members > 1) with("groups");
  if (layout.codecs.any()) with("codecs");
}

ServedExchange::ServedExchange(std::shared_ptr<Communicator> pairs, ServedLayout layout,
                               int pull_every)
    : pairs_(std::move(pairs)),
      layout_(std::move(layout)),
      pull_every_(pull_every),
      links_(pairs_, {.placement = layout_.placement,
                      .fingerprint = fingerprint_of(layout_),
                      .mirrors = layout_.mirror_every > 0,
                      .known = [this](int server) { return known_of(server); },
                      .forget = [this](int server) { forget(server); }}),
      codecs_(layout_.unit_codecs()) {
  check(layout_);
  if (pull_every < 1) refuse("servers: pull_every is {}; it must be at least 1", pull_every);
  if (pull_every > 1 && layout_.policy.mode == Mode::sync) {
    refuse("servers: pull_every {} would repeat a step's parameters in mode sync; use ssp or async",
           pull_every);
  }
  GRADWIRE_CHECK(pairs_->size() == layout_.placement.ranks());
  const Placement& placement = layout_.placement;
  GRADWIRE_CHECK(pairs_->rank() < placement.workers);
  GRADWIRE_CHECK(placement.workers % placement.members == 0);
  GRADWIRE_CHECK(layout_.policy.workers == placement.groups());
  units_.resize(layout_.units.size());
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const auto parts = static_cast<std::size_t>(placement.parts_of_unit());
    exchange::check_shards("push", unit, layout_.units[unit].count,
                           layout_.units[unit].count / parts, placement.parts_of_unit());
    for (auto* encoded : {&units_[unit].pushed, &units_[unit].pulled}) {
      encoded->resize(static_cast<std::size_t>(servers()));
    }
    units_[unit].parts.resize(static_cast<std::size_t>(servers()));
    exchange::UnitShape slice = layout_.units[unit];
    slice.count /= static_cast<std::size_t>(placement.members);
    if (placement.members > 1) slice.tensors.clear();
    feedback_.add_unit(slice, codecs_.wants_feedback() && !slice.skip_compression, {});
  }
  if (layout_.codecs.any() || has_mirrors()) {
    const auto abort = [this](const std::string& why) { pairs_->abort(why); };
    encoding_ = std::make_unique<exchange::UnitStages>(units_.size(), abort);
    decoding_ = std::make_unique<exchange::UnitStages>(units_.size(), abort);
  }
  links_.greet();
}

ServedExchange::~ServedExchange() {
  if (encoding_) encoding_->stop();
  if (decoding_) decoding_->stop();
}

exchange::ExchangeTraits ServedExchange::traits() const {
  return {.has_state = codecs_.wants_feedback() && layout_.policy.has_common_steps()};
}

std::vector<exchange::Exchange::State> ServedExchange::state() {
  return traits().has_state ? feedback_.state() : std::vector<State>();
}

void ServedExchange::load_state(const std::vector<SavedState>& saved) {
  exchange::load_exchange_state(state(), saved);
}

void ServedExchange::load(std::size_t unit, const LentSpan& values) {
  exchange::check_unit(layout_.units, unit, values);
  const int members = layout_.placement.members;
  for (int member = 0; member < members; ++member) {
    const LentSpan slice = part_of(values, member, members);
    const std::size_t number = number_of(unit, member);
    for (int server = 0; server < servers(); ++server) {
      const ServerLinks::Link link = links_.of(server);
      links_.ask(link, {.kind = Request::Kind::load, .unit = static_cast<std::int64_t>(number)});
      pairs_->send(part_of(slice, server, servers()), link.rank, push_tag(number)).wait();
      links_.wait_for_reply(link);
    }
  }
}

/// The number by which servers know a member's slice of the unit.
std::size_t ServedExchange::number_of(std::size_t unit, int member) const {
  return unit * static_cast<std::size_t>(layout_.placement.members) +
         static_cast<std::size_t>(member);
}

std::size_t ServedExchange::own_number(std::size_t unit) const {
  return number_of(unit, layout_.placement.member_of(pairs_->rank()));
}

void ServedExchange::check_slice(std::size_t unit, const LentSpan& data) const {
  LentSpan whole = data;
  whole.count *= static_cast<std::size_t>(layout_.placement.members);
  exchange::check_unit(layout_.units, unit, whole);
}

/// An answer to a push would be taken for another one.
void ServedExchange::check_idle() const {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const Unit& checked = units_[unit];
    exchange::check_idle(unit, in_flight(checked.push) || in_flight(checked.pull));
    require_pulled(checked);
  }
}

void ServedExchange::pull(std::span<const LentSpan> values) {
  GRADWIRE_CHECK(values.size() == units_.size());
  check_idle();
  if (has_mirrors()) return pull_from_each(values);
  for (int server = 0; server < servers(); ++server) {
    links_.ask(links_.of(server), {.kind = Request::Kind::pull});
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    exchange::check_unit(layout_.units, unit, values[unit]);
    receive_all(unit, values[unit]);
    units_[unit].answered = true;
  }
}

/// Receives the slices of all members.
void ServedExchange::receive_all(std::size_t unit, const LentSpan& whole) {
  const int parts = layout_.placement.parts_of_unit();
  std::vector<Reply> replies(static_cast<std::size_t>(parts));
  const Work received = pairs_->coalesced([&](Communicator& together) {
    for (int part = 0; part < parts; ++part) {
      const int tag = pull_tag(number_of(unit, part / servers()));
      const Rank server = links_.of(part % servers()).rank;
      together.recv(lend_message(replies[static_cast<std::size_t>(part)]), server, tag);
      together.recv(part_of(whole, part, parts), server, tag);
    }
  });
  received.wait();
  const int own = layout_.placement.member_of(pairs_->rank()) * servers();
  for (int server = 0; server < servers(); ++server) {
    units_[unit].parts[static_cast<std::size_t>(server)].reply =
        replies[static_cast<std::size_t>(own + server)];
  }
}

Meeting ServedExchange::meet() {
  check_idle();
  const Request meet{
      .kind = Request::Kind::meet, .base = pace_.deviation.count(), .value = pace_.mean.count()};
  std::vector<int> asked;
  for (int server = 0; server < servers(); ++server) {
    asked.push_back(links_.with_server(server, [&](const ServerLinks::Link& link) {
      links_.ask(link, meet);
      return link.generation;
    }));
  }
  Meeting met;
  for (int server = servers() - 1; server >= 0; --server) {
    const auto said = links_.with_server(server, [&](const ServerLinks::Link& link) {
      if (link.generation != asked[static_cast<std::size_t>(server)]) links_.ask(link, meet);
      return links_.receive_integers(link);
    });
    met = {.clock = said.at(0), .applied = said.at(1), .first = said.at(2)};
    for (Unit& unit : units_) unit.parts[static_cast<std::size_t>(server)].clock = met.clock;
  }
  return met;
}

void ServedExchange::deal(std::int64_t samples, std::int64_t epochs, DealProgress progress) {
  const ServerLinks::Link link = links_.of(0);
  links_.ask(link, {.kind = Request::Kind::deal,
                    .clock = epochs,
                    .base = progress.dealt,
                    .value = samples,
                    .batches = static_cast<std::int64_t>(progress.unapplied.size())});
  if (!progress.unapplied.empty()) {
    pairs_->send(lend_all(progress.unapplied), link.rank, kStateTag).wait();
  }
  links_.wait_for_reply(link);
}

Deal ServedExchange::take(std::int64_t count, std::int64_t stop) {
  return links_.with_server(0, [&](const ServerLinks::Link& link) {
    links_.ask(link, {.kind = Request::Kind::take, .base = stop, .value = count});
    Deal batch;
    pairs_->recv(lend_message(batch), link.rank, kDealTag + link.tags).wait();
    return batch;
  });
}

DealProgress ServedExchange::progress() {
  return decode_progress(links_.integers_of(0, {.kind = Request::Kind::progress}));
}

void ServedExchange::fetch_states(int server, std::span<const LentSpan> states) {
  links_.with_server(server, [&](const ServerLinks::Link& link) {
    links_.ask(link, {.kind = Request::Kind::fetch_states,
                      .value = static_cast<std::int64_t>(states.size())});
    for (const LentSpan& state : states) {
      pairs_->recv(state, link.rank, kStateTag + link.tags).wait();
    }
  });
}

void ServedExchange::load_states(int server, std::span<const LentSpan> states) {
  const ServerLinks::Link link = links_.of(server);
  links_.ask(link, {.kind = Request::Kind::load_states,
                    .value = static_cast<std::int64_t>(states.size())});
  for (const LentSpan& state : states) pairs_->send(state, link.rank, kStateTag).wait();
  links_.wait_for_reply(link);
}

std::vector<std::vector<std::int64_t>> ServedExchange::versions() {
  std::vector<std::vector<std::int64_t>> by_server;
  for (int server = 0; server < servers(); ++server) {
    by_server.push_back(
        decode_report(links_.integers_of(server, {.kind = Request::Kind::report})).versions);
  }
  return by_server;
}

void ServedExchange::begin_at(const std::vector<std::int64_t>& versions) {
  GRADWIRE_CHECK(versions.size() == slices());
  for (int server = 0; server < servers(); ++server) {
    const ServerLinks::Link link = links_.of(server);
    for (std::size_t unit = 0; unit < versions.size(); ++unit) {
      links_.ask(link, {.kind = Request::Kind::begin_at,
                        .unit = static_cast<std::int64_t>(unit),
                        .base = versions[unit]});
      links_.wait_for_reply(link);
    }
  }
}

ServerReport ServedExchange::report() {
  ServerReport sum{.servers = 0};
  for (int server = 0; server < servers(); ++server) {
    add(sum, decode_report(links_.integers_of(server, {.kind = Request::Kind::report})));
  }
  return sum;
}

std::vector<OrderRecord> ServedExchange::order(int server) {
  std::vector<OrderRecord> records;
  for (const bool of_values : {false, true}) {
    std::size_t all = records.size() + 1;
    for (std::size_t first = records.size(), got = 0; got < all; got = records.size() - first) {
      const auto said = links_.integers_of(server, {.kind = Request::Kind::order,
                                                    .base = static_cast<std::int64_t>(got),
                                                    .value = of_values ? 1 : 0});
      all = static_cast<std::size_t>(said.at(0));
      append_records(records, std::span(said).subspan(1));
    }
  }
  return records;
}

void ServedExchange::leave() {
  links_.leave();
}

Work ServedExchange::all_reduce(std::size_t, LentSpan, int) {
  throw Exception(ErrorKind::unsupported,
                  "servers step the optimizer, so that a worker gets no mean of gradients");
}

Work ServedExchange::reduce_scatter(std::size_t unit, LentSpan data, LentSpan /*shard*/,
                                    int priority) {
  check_slice(unit, data);
  Unit& pushed = units_[unit];
  exchange::check_idle(unit, in_flight(pushed.push) || in_flight(pushed.pull));
  require_pulled(pushed);
  take_replies(unit);
  const bool pull = pushed.owed = ++pushed.pushes % pull_every_ == 0;
  const Gradient gradient = std::exchange(pushed.announced, std::nullopt).value_or(now_);
  compose(unit, gradient, pull);
  if (has_mirrors()) return pushed.push = send_to_each(unit, data, priority);
  const bool encodes = layout_.codecs.push != "none" && is_coded(unit);
  pushed.push = encodes ? send_encoded(unit, data, priority) : send(unit, data, priority);
  return pushed.push;
}

/// The unit's requests to all servers.
void ServedExchange::compose(std::size_t unit, const Gradient& gradient, bool pull) {
  const bool alone = layout_.policy.mode_of(unit) != layout_.policy.mode;
  const auto lock = links_.hold();
  const bool has_dealer = gradient.dealer == links_.held(0).generation;
  for (int server = 0; server < servers(); ++server) {
    Part& part = units_[unit].parts[static_cast<std::size_t>(server)];
    part.request = {Request::Kind::push,
                    static_cast<std::int64_t>(own_number(unit)),
                    part.clock++,
                    part.reply.value,
                    pull,
                    has_dealer ? gradient.batches : 0,
                    alone ? gradient.rate * asynchronous_factor_ : gradient.rate,
                    gradient.samples,
                    gradient.random};
    part.link = links_.held(server);
    ++part.unanswered;
  }
}

/// Sends the unit's requests, and its encoded parts or those of `data`.
Work ServedExchange::send(std::size_t unit, const LentSpan& data, int priority) {
  Unit& pushed = units_[unit];
  return pairs_->coalesced([&](Communicator& together) {
    for (int server = 0; server < servers(); ++server) {
      const auto index = static_cast<std::size_t>(server);
      const OperationOptions options{.priority = priority};
      const std::shared_ptr<Buffer>& encoded = pushed.pushed[index];
      const LentSpan payload =
          encoded ? LentSpan{encoded->data(), encoded->size(), DataType::uint8, encoded}
                  : part_of(data, server, servers());
      together.send(lend_message(pushed.parts[index].request), links_.of(server).rank, kRequestTag,
                    options);
      together.send(payload, links_.of(server).rank, push_tag(own_number(unit)), options);
    }
  });
}

Work ServedExchange::send_encoded(std::size_t unit, const LentSpan& data, int priority) {
  Work pushed = encoding_->begin(unit, 1, priority);
  encoding_->add(unit, kFirst, [this, unit, data, priority] {
    encode(unit, data);
    encoding_->add_after(send(unit, data, priority), unit, kSecond,
                         [this, unit] { encoding_->piece_done(unit); });
  });
  return pushed;
}

void ServedExchange::encode(std::size_t unit, const LentSpan& data) {
  Unit& pushed = units_[unit];
  const int group = layout_.placement.group_of(pairs_->rank());
  std::span<float> residual = codecs_.wants_feedback() ? feedback_.sent(unit) : std::span<float>();
  for (int server = 0; server < servers(); ++server) {
    const auto index = static_cast<std::size_t>(server);
    const std::int64_t clock = pushed.parts[index].request.clock;
    const auto codec = codecs_.push(own_number(unit), clock);
    pushed.pushed[index] = nullptr;
    if (!codec) continue;  // The codec warms up.
    const LentSpan part = part_of(data, server, servers());
    const std::span values(static_cast<const float*>(part.data), part.count);
    const auto encoded = std::make_shared<Buffer>(codec->encoded_bytes(part.count));
    codec->encode(values,
                  codec->wants_feedback() ? residual.subspan(index * part.count, part.count)
                                          : std::span<float>(),
                  codecs_.seed_of(own_number(unit), server, group, clock), *encoded);
    pushed.pushed[index] = encoded;
  }
}

Work ServedExchange::all_gather(std::size_t unit, LentConstSpan /*shard*/, LentSpan data,
                                int priority) {
  check_slice(unit, data);
  Unit& pulled = units_[unit];
  exchange::check_idle(unit, in_flight(pulled.pull));
  if (!std::exchange(pulled.owed, false)) return completed_work();
  pulled.answered = true;
  if (has_mirrors()) return pulled.pull = receive_from_each(unit, data, priority);
  const bool decodes = layout_.codecs.pull != "none" && is_coded(unit);
  pulled.pull = decodes ? receive_encoded(pulled, unit, data, priority)
                        : receive(pulled, unit, data, priority);
  return pulled.pull;
}

Work ServedExchange::receive_encoded(Unit& pulled, std::size_t unit, const LentSpan& data,
                                     int priority) {
  Work decoded = decoding_->begin(unit, 1, priority);
  const auto codec = codecs_.pull(own_number(unit));
  const std::size_t count = data.count / static_cast<std::size_t>(servers());
  for (auto& part : pulled.pulled) part = std::make_shared<Buffer>(codec->encoded_bytes(count));
  const Work received = receive(pulled, unit, data, priority);
  decoding_->add_after(received, unit, kFirst, [this, unit, data] {
    decode(unit, data);
    decoding_->piece_done(unit);
  });
  return decoded;
}

void ServedExchange::decode(std::size_t unit, const LentSpan& data) {
  const auto codec = codecs_.pull(own_number(unit));
  for (int server = 0; server < servers(); ++server) {
    const auto encoded = std::exchange(units_[unit].pulled[static_cast<std::size_t>(server)], {});
    const LentSpan part = part_of(data, server, servers());
    value_or_throw(codec->decode(*encoded, 0, {static_cast<float*>(part.data), part.count}));
  }
}

/// Receives encoded parts where there is memory for them.
Work ServedExchange::receive(Unit& pulled, std::size_t unit, const LentSpan& data, int priority) {
  return pairs_->coalesced([&](Communicator& together) {
    for (int server = 0; server < servers(); ++server) {
      const auto index = static_cast<std::size_t>(server);
      const OperationOptions options{.priority = priority};
      const int tag = pull_tag(own_number(unit));
      const std::shared_ptr<Buffer>& encoded = pulled.pulled[index];
      const LentSpan payload =
          encoded ? LentSpan{encoded->data(), encoded->size(), DataType::uint8, encoded}
                  : part_of(data, server, servers());
      together.recv(lend_message(pulled.parts[index].reply), links_.of(server).rank, tag, options);
      together.recv(payload, links_.of(server).rank, tag, options);
    }
  });
}

/// The next answer of the servers would be taken for that of this push.
void ServedExchange::require_pulled(const Unit& unit) const {
  if (!unit.owed) return;
  refuse(
      "servers have a gradient of this worker whose parameters it has not pulled: call step() "
      "after "
      "each backward, and backward under no_sync() to accumulate");
}

/// In mode sync, a worker whose gradient was late goes on with the step that the others are at.
void ServedExchange::take_replies(std::size_t unit) {
  const bool answered = std::exchange(units_[unit].answered, false);
  if (!answered || layout_.policy.mode_of(unit) != Mode::sync) return;
  for (Part& part : units_[unit].parts) part.clock = part.reply.value;
}

/// A gradient that a lost server does not get is lost with it.
Work ServedExchange::send_to_each(std::size_t unit, const LentSpan& data, int priority) {
  Work pushed = encoding_->begin(unit, static_cast<std::size_t>(servers()), priority);
  for (int server = 0; server < servers(); ++server) {
    Part& part = units_[unit].parts[static_cast<std::size_t>(server)];
    const ServerLinks::Link link = part.link;
    const OperationOptions options{.priority = priority};
    const Work sent = pairs_->coalesced([&](Communicator& together) {
      together.send(lend_message(part.request), link.rank, kRequestTag + link.tags, options);
      together.send(part_of(data, server, servers()), link.rank, push_tag(unit) + link.tags,
                    options);
    });
    encoding_->add_when_ended(
        sent, unit, kFirst, [this, unit, server, link](const std::shared_ptr<const Error>& error) {
          if (error) links_.replace(server, link, *error);
          encoding_->piece_done(unit);
        });
  }
  return pushed;
}

Work ServedExchange::receive_from_each(std::size_t unit, const LentSpan& data, int priority) {
  Work pulled = decoding_->begin(unit, static_cast<std::size_t>(servers()), priority);
  for (int server = 0; server < servers(); ++server) {
    const LentSpan part = part_of(data, server, servers());
    const int asked = units_[unit].parts[static_cast<std::size_t>(server)].link.generation;
    if (asked == links_.of(server).generation) {
      receive_part(unit, server, part, priority);
    } else {
      decoding_->add(unit, kFirst, [this, unit, server, part] { read_part(unit, server, part); });
    }
  }
  return pulled;
}

/// Receives the answer to the last push, or reads from the server that replaces a lost one.
void ServedExchange::receive_part(std::size_t unit, int server, const LentSpan& values,
                                  int priority) {
  Part& part = units_[unit].parts[static_cast<std::size_t>(server)];
  const ServerLinks::Link link = part.link;
  const OperationOptions options{.priority = priority};
  const int tag = pull_tag(unit) + link.tags;
  const Work received = pairs_->coalesced([&](Communicator& together) {
    together.recv(lend_message(part.reply), link.rank, tag, options);
    together.recv(values, link.rank, tag, options);
  });
  decoding_->add_when_ended(
      received, unit, kFirst,
      [this, unit, server, values, link](const std::shared_ptr<const Error>& error) {
        if (error) {
          links_.replace(server, link, *error);
          return read_part(unit, server, values);
        }
        note_answer(unit, server);
        decoding_->piece_done(unit);
      });
}

void ServedExchange::read_part(std::size_t unit, int server, const LentSpan& values) {
  Reply reply;
  links_.with_server(server, [&](const ServerLinks::Link& link) {
    links_.ask(link, {.kind = Request::Kind::read, .unit = static_cast<std::int64_t>(unit)});
    const int tag = pull_tag(unit) + link.tags;
    pairs_->recv(lend_message(reply), link.rank, tag).wait();
    pairs_->recv(values, link.rank, tag).wait();
  });
  note_answer(unit, server);
  units_[unit].parts[static_cast<std::size_t>(server)].reply = reply;
  decoding_->piece_done(unit);
}

void ServedExchange::pull_from_each(std::span<const LentSpan> values) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    exchange::check_unit(layout_.units, unit, values[unit]);
  }
  for (int server = 0; server < servers(); ++server) {
    links_.with_server(server, [&](const ServerLinks::Link& link) {
      links_.ask(link, {.kind = Request::Kind::pull});
      for (std::size_t unit = 0; unit < units_.size(); ++unit) {
        Part& part = units_[unit].parts[static_cast<std::size_t>(server)];
        const int tag = pull_tag(unit) + link.tags;
        pairs_->recv(lend_message(part.reply), link.rank, tag).wait();
        pairs_->recv(part_of(values[unit], server, servers()), link.rank, tag).wait();
      }
    });
  }
}

void ServedExchange::note_answer(std::size_t unit, int server) {
  const auto lock = links_.hold();
  units_[unit].parts[static_cast<std::size_t>(server)].unanswered = 0;
}

std::vector<std::int64_t> ServedExchange::known_of(int server) const {
  std::vector<std::int64_t> known;
  for (const Unit& unit : units_) {
    const Part& part = unit.parts[static_cast<std::size_t>(server)];
    known.insert(known.end(), {part.reply.value, part.unanswered});
  }
  return known;
}

void ServedExchange::forget(int server) {
  for (Unit& unit : units_) {
    Part& part = unit.parts[static_cast<std::size_t>(server)];
    part.reply = {};
    part.clock = part.unanswered = 0;
  }
}

std::string ServedExchange::describe() const {
  const std::string& codec = layout_.codecs.push;
  return fmt::format("gradients go to {} parameter server{}, {}, in mode {}", servers(),
                     servers() == 1 ? "" : "s", codec == "none" ? "uncompressed" : "as " + codec,
                     mode_text(layout_.policy));
}

}  // namespace gradwire::servers
