#include "gradwire/servers/server_links.h"

#include <utility>

#include <fmt/format.h>

namespace gradwire::servers {

ServerLinks::ServerLinks(std::shared_ptr<Communicator> pairs, Options options)
    : pairs_(std::move(pairs)), options_(std::move(options)) {
  for (int server = 0; server < options_.placement.servers; ++server) {
    links_.push_back({.rank = options_.placement.rank_of_server(server)});
  }
}

void ServerLinks::greet() {
  for (const Link& link : links_) ask(link, hello());
  for (const Link& link : links_) wait_for_reply(link);
}

ServerLinks::Link ServerLinks::standby_of(int server) const {
  const Placement& placement = options_.placement;
  return {.rank = placement.rank_of_server(placement.mirror_of(server)),
          .tags = kMirrorTags,
          .generation = 1};
}

void ServerLinks::leave() {
  for (int server = 0; server < options_.placement.servers; ++server) {
    const Link link = of(server);
    const bool has_standby = options_.mirrors && link.generation == 0;
    for (const Link& each :
         has_standby ? std::vector{link, standby_of(server)} : std::vector{link}) {
      try {
        ask(each, {.kind = Request::Kind::leave});
      } catch (const Exception&) {
        if (!options_.mirrors) throw;  // A lost server needs no goodbye if it is mirrored.
      }
    }
  }
}

ServerLinks::Link ServerLinks::of(int server) const {
  const auto lock = hold();
  return held(server);
}

void ServerLinks::replace(int server, const Link& lost, const Error& error) {
  const auto lock = hold();
  if (held(server).generation != lost.generation) return;
  // Whatever follows the first error with a rank is aborted.
  const bool is_gone = error.kind == ErrorKind::disconnected || error.kind == ErrorKind::timeout ||
                       error.kind == ErrorKind::aborted;
  if (!options_.mirrors || !is_gone) throw Exception(error.kind, error.message);
  const Link next = standby_of(server);
  if (lost.generation > 0) {
    throw Exception(error.kind, fmt::format("server {} is lost, and so is the server that stood in "
                                            "for it: {}",
                                            server, error.message));
  }
  std::vector<std::int64_t> known = options_.known(server);
  try {
    ask(next, hello());
    wait_for_reply(next, {.timeout = options_.patience});
    ask(next, {.kind = Request::Kind::join, .value = static_cast<std::int64_t>(known.size())});
    pairs_
        ->send({known.data(), known.size(), DataType::int64, nullptr}, next.rank,
               kStateTag + next.tags)
        .wait();
    wait_for_reply(next);
  } catch (const Exception& e) {
    throw Exception(e.kind(), fmt::format("server {} is lost ({}), and the server that mirrors it "
                                          "does not stand in for it: {}",
                                          server, error.message, e.what()));
  }
  links_[static_cast<std::size_t>(server)] = next;
  options_.forget(server);
}

void ServerLinks::ask(const Link& link, Request request) const {
  pairs_->send(lend_message(request), link.rank, kRequestTag + link.tags).wait();
}

void ServerLinks::wait_for_reply(const Link& link, const OperationOptions& options) const {
  Reply reply;
  pairs_->recv(lend_message(reply), link.rank, kReplyTag + link.tags, options).wait();
}

std::vector<std::int64_t> ServerLinks::receive_integers(const Link& link) const {
  // A meeting lasts until the last worker comes.
  const OperationOptions patient{.timeout = Duration::max()};
  const int tag = kReplyTag + link.tags;
  Reply size;
  pairs_->recv(lend_message(size), link.rank, tag, patient).wait();
  std::vector<std::int64_t> integers(static_cast<std::size_t>(size.value));
  pairs_->recv({integers.data(), integers.size(), DataType::int64, nullptr}, link.rank, tag).wait();
  return integers;
}

std::vector<std::int64_t> ServerLinks::integers_of(int server, const Request& request) {
  return with_server(server, [&](const Link& link) {
    ask(link, request);
    return receive_integers(link);
  });
}

}  // namespace gradwire::servers
