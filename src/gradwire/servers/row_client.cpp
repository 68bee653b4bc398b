#include "gradwire/servers/row_client.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/base/refuse.h"

namespace gradwire::servers {
namespace {

/// Other workers may compute, or evaluate, for as long as they like.
const OperationOptions kPatient{.timeout = Duration::max()};

}  // namespace

/// Memory that must live until a request is sent and answered.
struct RowClient::Message {
  std::shared_ptr<const DistinctIds> ids;
  std::vector<RowRequest> requests;  ///< By server.
  std::vector<RowReply> replies;
};

RowClient::RowClient(std::shared_ptr<Communicator> pairs, const RowLayout& layout)
    : pairs_(std::move(pairs)), layout_(layout) {
  check(layout.rows);
  GRADWIRE_CHECK(pairs_->size() == layout.placement.ranks());
  GRADWIRE_CHECK(pairs_->rank() < layout.placement.workers);
  const auto fingerprint = static_cast<std::int64_t>(fingerprint_of(layout));
  for (int server = 0; server < servers(); ++server) {
    ask(server, {.kind = RowRequest::Kind::hello, .clock = fingerprint});
  }
  for (int server = 0; server < servers(); ++server) receive_integers(server);
}

void RowClient::ask(int server, RowRequest request) {
  pairs_->send(lend_message(request), rank_of(server), kRowRequestTag).wait();
}

LentSpan RowClient::part_of(const DistinctIds& ids, const LentSpan& rows, int server) const {
  const auto width = static_cast<std::size_t>(layout_.rows.width);
  auto* const begin = static_cast<float*>(rows.data);
  return {begin + ids.begins[static_cast<std::size_t>(server)] * width,
          ids.count_of(server) * width, DataType::float32, rows.keep_alive};
}

/// Sends each server the request with its ids, and its part of `floats` unless that is null.
Work RowClient::send_to_all(const std::shared_ptr<Message>& message, RowRequest request,
                            const LentSpan* floats) {
  const DistinctIds& ids = *message->ids;
  message->requests.assign(static_cast<std::size_t>(servers()), request);
  return pairs_->coalesced([&](Communicator& together) {
    for (int server = 0; server < servers(); ++server) {
      const auto i = static_cast<std::size_t>(server);
      message->requests[i].count = static_cast<std::int64_t>(ids.count_of(server));
      LentSpan head = lend_message(message->requests[i]);
      head.keep_alive = message;
      together.send(head, rank_of(server), kRowRequestTag);
      if (ids.count_of(server) == 0) continue;
      together.send(
          {ids.ids.data() + ids.begins[i], ids.count_of(server), DataType::int64, message},
          rank_of(server), kRowIdsTag);
      if (floats == nullptr) continue;
      together.send(part_of(ids, *floats, server), rank_of(server), kRowFloatsTag);
    }
  });
}

Work RowClient::look_up(std::shared_ptr<const DistinctIds> ids, const LentSpan& rows) {
  if (open() > layout_.staleness) {
    refuse(
        "{} batches of an embedding are looked up, and their gradients not pushed: with staleness "
        "{} there are {} permits; call step() after each backward",
        open(), layout_.staleness, layout_.staleness + 1);
  }
  const auto message = std::make_shared<Message>(Message{.ids = std::move(ids)});
  message->replies.resize(static_cast<std::size_t>(servers()));
  send_to_all(message, {.kind = RowRequest::Kind::look_up, .clock = looked_++}, nullptr)
      .drive_in_background();
  return pairs_->coalesced([&](Communicator& together) {
    for (int server = 0; server < servers(); ++server) {
      LentSpan head = lend_message(message->replies[static_cast<std::size_t>(server)]);
      head.keep_alive = message;
      together.recv(head, rank_of(server), kRowLookUpTag, kPatient);
      const LentSpan part = part_of(*message->ids, rows, server);
      if (part.count > 0) together.recv(part, rank_of(server), kRowLookUpTag, kPatient);
    }
  });
}

void RowClient::update(std::shared_ptr<const DistinctIds> ids, const LentSpan& gradients,
                       double rate) {
  GRADWIRE_CHECK(open() > 0);
  const auto message = std::make_shared<Message>(Message{.ids = std::move(ids)});
  send_to_all(message,
              {.kind = RowRequest::Kind::update, .clock = updated_++, .count = 0, .rate = rate},
              &gradients)
      .drive_in_background();
}

void RowClient::read(const DistinctIds& ids, std::span<float> rows) {
  const auto message =
      std::make_shared<Message>(Message{.ids = std::make_shared<DistinctIds>(ids)});
  send_to_all(message, {.kind = RowRequest::Kind::read}, nullptr).wait();
  const LentSpan all = lend_floats(rows);
  for (int server = 0; server < servers(); ++server) {
    RowReply reply;
    pairs_->recv(lend_message(reply), rank_of(server), kRowReadTag, kPatient).wait();
    const LentSpan part = part_of(ids, all, server);
    if (part.count > 0) pairs_->recv(part, rank_of(server), kRowReadTag).wait();
  }
}

std::vector<std::int64_t> RowClient::receive_integers(int server) {
  RowReply size;
  pairs_->recv(lend_message(size), rank_of(server), kRowReplyTag).wait();
  std::vector<std::int64_t> integers(static_cast<std::size_t>(size.value));
  if (size.value > 0) pairs_->recv(lend_ids(integers), rank_of(server), kRowReplyTag).wait();
  return integers;
}

RowReport RowClient::report() {
  RowReport sum;
  for (int server = 0; server < servers(); ++server) {
    ask(server, {.kind = RowRequest::Kind::report});
    add(sum, decode_row_report(receive_integers(server)));
  }
  return sum;
}

MadeRows RowClient::made() {
  MadeRows rows;
  for (int server = 0; server < servers(); ++server) fetch_made(server, rows);
  return rows;
}

void RowClient::fetch_made(int server, MadeRows& rows) {
  const auto width = static_cast<std::size_t>(layout_.rows.width);
  const auto extend = [&](std::vector<float>& floats, std::size_t count) {
    floats.resize(floats.size() + count * width);
    pairs_->recv(lend_floats(std::span(floats).last(count * width)), rank_of(server), kRowReplyTag)
        .wait();
  };
  for (std::int64_t begin = 0;;) {
    ask(server,
        {.kind = RowRequest::Kind::fetch, .clock = begin, .count = layout_.rows_of(server)});
    const std::vector<std::int64_t> ids = receive_integers(server);
    if (ids.empty()) return;
    rows.ids.insert(rows.ids.end(), ids.begin(), ids.end());
    extend(rows.values, ids.size());
    if (layout_.rows.optimizer == "adagrad") extend(rows.states, ids.size());
    begin += static_cast<std::int64_t>(ids.size());
  }
}

void RowClient::put(const MadeRows& rows) {
  const auto width = static_cast<std::size_t>(layout_.rows.width);
  const bool fits =
      rows.values.size() == rows.ids.size() * width &&
      rows.states.size() == (layout_.rows.optimizer == "adagrad" ? rows.values.size() : 0);
  if (!fits) {
    refuse("{} rows of width {} with optimizer {} have {} values and {} states", rows.ids.size(),
           width, layout_.rows.optimizer, rows.values.size(), rows.states.size());
  }
  std::vector<std::vector<std::size_t>> order(static_cast<std::size_t>(servers()));
  std::vector<std::size_t> all(rows.ids.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::ranges::sort(all, {}, [&](std::size_t i) { return rows.ids[i]; });
  for (const std::size_t i : all) {
    if (rows.ids[i] < 0 || rows.ids[i] >= layout_.rows.rows) {
      refuse("id {} is not one of an embedding of {} rows", rows.ids[i], layout_.rows.rows);
    }
    order[static_cast<std::size_t>(layout_.server_of(rows.ids[i]))].push_back(i);
  }
  for (int server = 0; server < servers(); ++server) {
    put_on(server, rows, order[static_cast<std::size_t>(server)]);
  }
}

void RowClient::put_on(int server, const MadeRows& rows, const std::vector<std::size_t>& order) {
  const auto width = static_cast<std::size_t>(layout_.rows.width);
  std::vector<std::int64_t> ids;
  std::vector<float> floats;
  for (const std::size_t i : order) ids.push_back(rows.ids[i]);
  for (const std::vector<float>* part : {&rows.values, &rows.states}) {
    if (part->empty()) continue;
    for (const std::size_t i : order) {
      const auto row = std::span(*part).subspan(i * width, width);
      floats.insert(floats.end(), row.begin(), row.end());
    }
  }
  ask(server,
      {.kind = RowRequest::Kind::put, .clock = 0, .count = static_cast<std::int64_t>(ids.size())});
  if (!ids.empty()) {
    pairs_->send(lend_ids(ids), rank_of(server), kRowIdsTag).wait();
    pairs_->send(lend_floats(floats), rank_of(server), kRowFloatsTag).wait();
  }
  receive_integers(server);
}

void RowClient::leave() {
  for (int server = 0; server < servers(); ++server) {
    ask(server, {.kind = RowRequest::Kind::leave});
  }
}

}  // namespace gradwire::servers
