#include "gradwire/bootstrap/job_store.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/bootstrap/master_server.h"
#include "gradwire/bootstrap/rank_zero.h"

namespace gradwire::bootstrap {
namespace {

/// Maximum time that one request waits at the server; renewing it shows that the server is alive.
constexpr Duration kTurn = std::chrono::seconds(5);

/// Maximum time for which rank 0 keeps the server up for the other ranks.
constexpr Duration kFarewell = std::chrono::seconds(2);

using Connection = std::unique_ptr<MessageStream>;

RankZero rank_zero(const Job& job) {
  return {.host = job.master_address,
          .port = job.master_port,
          .shared = {.secret = job.secret, .purpose = kJobStorePurpose},
          .claims = {.from = job.rank, .to = 0, .world_size = job.world_size}};
}

Connection stream_over(AuthenticatedSocket connection) {
  return std::make_unique<MessageStream>(std::move(connection.socket), connection.key,
                                         MessageStream::End::client, kMaxJobStoreMessageBytes);
}

/// Retries until rank 0 accepts the connection.
Result<Connection> connect(const net::HostNetwork& network, const Job& job,
                           net::Deadline deadline) {
  const RankZero to = rank_zero(job);
  Attempts attempts(network, to, deadline);
  for (;;) {
    auto connected = connect_once(network, to, deadline);
    if (connected) return stream_over(std::move(connected->connection));
    GRADWIRE_RETURN_IF_ERROR(attempts.after(connected.error()));
    if (deadline.passed()) {
      return failure(ErrorKind::timeout,
                     fmt::format("cannot reach the job's store on rank 0 at {}:{} within {:.3g} s "
                                 "({}); has rank 0 started, and can this host reach that address?",
                                 job.master_address, job.master_port, attempts.seconds(),
                                 connected.error().message));
    }
  }
}

Status check(const Job& job) {
  if (job.secret.empty()) {
    return failure(ErrorKind::invalid_argument,
                   "the job's store requires a secret: start the ranks with gradwire run, which "
                   "makes one, or set GRADWIRE_SECRET=$(openssl rand -hex 16), once, for all "
                   "ranks");
  }
  if (job.launcher_store) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("{} already serves a store at {}:{}: use that one (env://)",
                               job.launcher, job.master_address, job.master_port));
  }
  return check_secret_at(job.secret, job.master_address);
}

/// Sends a request and waits for its response.
Result<JobStoreResponse> exchange(MessageStream& stream, const JobStoreRequest& request,
                                  net::Deadline deadline) {
  GRADWIRE_RETURN_IF_ERROR(stream.send(encode(request)));
  for (;;) {
    GRADWIRE_RETURN_IF_ERROR(stream.flush());
    std::string message;
    GRADWIRE_ASSIGN_OR_RETURN(const auto there, stream.receive(message));
    if (there) return decode_job_store_response(message);
    if (!net::wait_for(stream.socket(), stream.flushed() ? POLLIN : POLLIN | POLLOUT, deadline)) {
      return failure(ErrorKind::disconnected, "it does not respond");
    }
  }
}

}  // namespace

Result<std::unique_ptr<JobStore>> JobStore::open(std::shared_ptr<const net::HostNetwork> network,
                                                 const Job& job, net::Deadline deadline) {
  GRADWIRE_RETURN_IF_ERROR(check(job));
  std::unique_ptr<JobStore> store(new JobStore(network, job));
  if (job.rank == 0) {
    GRADWIRE_ASSIGN_OR_RETURN(auto listener,
                              open_master_listener(*network, job, kJobStorePurpose, deadline));
    GRADWIRE_ASSIGN_OR_RETURN(auto server, JobStoreServer::start(*network, std::move(listener),
                                                                 job.secret, job.world_size));
    store->server_ = std::move(server);
  }
  GRADWIRE_ASSIGN_OR_RETURN(auto first, connect(*network, job, deadline));
  store->connections_ = 1;
  store->idle_.push_back(std::move(first));
  store->opened_ = true;
  return store;
}

JobStore::JobStore(std::shared_ptr<const net::HostNetwork> network, const Job& job)
    : network_(std::move(network)), job_(job) {}

JobStore::~JobStore() {
  close(/*failed=*/false);
}

void JobStore::close(bool failed) {
  if (fork_.in_child()) {
    // The server thread does not exist here, and the sockets belong to the parent.
    (void)server_.release();
    return;
  }
  if (opened_.exchange(false)) (void)ask({.operation = StoreOperation::leave});
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    idle_.clear();
  }
  given_back_.notify_all();
  if (server_ && !failed)
    server_->wait_until_idle(net::Deadline::after(network_->clock(), kFarewell));
  server_.reset();
}

Result<Connection> JobStore::take_connection() {
  if (fork_.in_child()) {
    return failure(ErrorKind::unsupported, "a forked child cannot use its parent's connection");
  }
  std::unique_lock lock(mutex_);
  given_back_.wait(lock, [this] {
    return closed_ || !idle_.empty() || connections_ < JobStoreServer::kMaxConnections;
  });
  if (lost_) return tl::unexpected<Error>(*lost_);
  if (closed_) return failure(ErrorKind::aborted, "this rank has left it");
  if (!idle_.empty()) {
    Connection connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
  }
  ++connections_;
  lock.unlock();
  auto made = connect(*network_, job_, net::Deadline::after(network_->clock(), kRankZeroPatience));
  if (!made) give_back(nullptr);
  return made;
}

/// Null: the connection is closed.
void JobStore::give_back(Connection connection) {
  const std::lock_guard lock(mutex_);
  if (!connection || closed_) --connections_;
  if (connection && !closed_) idle_.push_back(std::move(connection));
  given_back_.notify_one();
}

/// The store does not come back: later requests fail immediately with the same cause.
Error JobStore::lost(const Error& error) {
  const bool misused = error.kind == ErrorKind::unsupported;
  if (!misused) {
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_ = error;
    opened_ = false;
  }
  return {misused ? error.kind : ErrorKind::disconnected,
          fmt::format("rank {} lost the job's store of rank 0 at {}:{}: {}", job_.rank,
                      job_.master_address, job_.master_port, error.message)};
}

Result<JobStoreResponse> JobStore::ask(const JobStoreRequest& request) {
  if (request.key.size() > kMaxJobStoreKeyBytes ||
      request.value.size() + request.expected.size() > kMaxJobStoreValueBytes) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("a key of {} and a value of {} bytes: the job's store takes keys up "
                               "to {} and values up to {}",
                               request.key.size(), request.value.size(), kMaxJobStoreKeyBytes,
                               kMaxJobStoreValueBytes));
  }
  auto connection = take_connection();
  if (!connection) return tl::unexpected<Error>(lost(connection.error()));
  const Duration patience = std::chrono::milliseconds(request.wait_ms) + kRankZeroPatience;
  auto response =
      exchange(**connection, request, net::Deadline::after(network_->clock(), patience));
  // After a failure, requests and responses no longer match.
  give_back(response ? std::move(*connection) : nullptr);
  if (!response) return tl::unexpected<Error>(lost(response.error()));
  if (response->answer == JobStoreAnswer::refused) {
    return failure(ErrorKind::invalid_argument, response->value);
  }
  return response;
}

Result<JobStoreResponse> JobStore::await_key(StoreOperation operation, const std::string& key,
                                             Duration timeout) {
  const net::Deadline deadline = net::Deadline::after(network_->clock(), timeout);
  for (;;) {
    const Duration turn = std::min(deadline.left(), kTurn);
    auto response = ask({.operation = operation,
                         .wait_ms = static_cast<std::uint32_t>(net::milliseconds_of(turn)),
                         .key = key});
    if (!response || response->answer == JobStoreAnswer::ok) return response;
    if (deadline.passed()) {
      return failure(
          ErrorKind::timeout,
          fmt::format("no rank has set \"{}\" in the job's store at {}:{} within {} ms", key,
                      job_.master_address, job_.master_port, net::milliseconds_of(timeout)));
    }
  }
}

Status JobStore::set(const std::string& key, const std::string& value) {
  GRADWIRE_RETURN_IF_ERROR(ask({.operation = StoreOperation::set, .key = key, .value = value}));
  return {};
}

Status JobStore::append(const std::string& key, const std::string& value) {
  GRADWIRE_RETURN_IF_ERROR(ask({.operation = StoreOperation::append, .key = key, .value = value}));
  return {};
}

Result<std::string> JobStore::get(const std::string& key, Duration timeout) {
  GRADWIRE_ASSIGN_OR_RETURN(auto found, await_key(StoreOperation::get, key, timeout));
  return std::move(found.value);
}

Status JobStore::wait(const std::string& key, Duration timeout) {
  GRADWIRE_RETURN_IF_ERROR(await_key(StoreOperation::wait, key, timeout));
  return {};
}

Result<bool> JobStore::has(const std::string& key) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto found, ask({.operation = StoreOperation::wait, .key = key}));
  return found.answer == JobStoreAnswer::ok;
}

Result<std::int64_t> JobStore::add(const std::string& key, std::int64_t amount) {
  GRADWIRE_ASSIGN_OR_RETURN(
      const auto sum,
      ask({.operation = StoreOperation::add, .key = key, .value = fmt::to_string(amount)}));
  return std::strtoll(sum.value.c_str(), nullptr, 10);
}

Result<std::string> JobStore::compare_set(const std::string& key, const std::string& expected,
                                          const std::string& desired) {
  GRADWIRE_ASSIGN_OR_RETURN(auto now, ask({.operation = StoreOperation::compare_set,
                                           .key = key,
                                           .value = desired,
                                           .expected = expected}));
  return std::move(now.value);
}

Result<bool> JobStore::erase(const std::string& key) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto done, ask({.operation = StoreOperation::erase, .key = key}));
  return done.answer == JobStoreAnswer::ok;
}

Result<std::int64_t> JobStore::count() {
  GRADWIRE_ASSIGN_OR_RETURN(const auto keys, ask({.operation = StoreOperation::count}));
  return std::strtoll(keys.value.c_str(), nullptr, 10);
}

}  // namespace gradwire::bootstrap
