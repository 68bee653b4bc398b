#include "gradwire/bootstrap/store/job_store.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/bootstrap/serve_store.h"
#include "gradwire/bootstrap/store/open_session.h"

namespace gradwire::bootstrap {
namespace {

/// Maximum time that one request waits at the server; renewing it shows that the server is alive.
constexpr Duration kTurn = std::chrono::seconds(5);

/// Maximum time for which rank 0 keeps the server up for the other ranks.
constexpr Duration kLeaveGrace = std::chrono::seconds(2);

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

}  // namespace

Result<std::unique_ptr<JobStore>> JobStore::open(std::shared_ptr<const net::HostNetwork> network,
                                                 const Job& job, net::Deadline deadline) {
  GRADWIRE_RETURN_IF_ERROR(check(job));
  std::unique_ptr<JobStore> store(new JobStore(network, job));
  if (job.rank == 0) {
    GRADWIRE_ASSIGN_OR_RETURN(auto server, serve_store(*network, job, std::nullopt, deadline));
    store->server_ = std::move(server);
  }
  GRADWIRE_ASSIGN_OR_RETURN(auto first, open_session(*network, job, claims_of(job), deadline));
  store->sessions_ = 1;
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
    server_->wait_until_idle(net::Deadline::after(network_->clock(), kLeaveGrace));
  server_.reset();
}

Result<StoreSession> JobStore::take_session() {
  if (fork_.in_child()) {
    return failure(ErrorKind::unsupported, "a forked child cannot use its parent's connection");
  }
  std::unique_lock lock(mutex_);
  given_back_.wait(lock, [this] {
    return closed_ || !idle_.empty() || sessions_ < StoreServer::kMaxConnections;
  });
  if (lost_) return tl::unexpected<Error>(*lost_);
  if (closed_) return failure(ErrorKind::aborted, "this rank has left it");
  if (!idle_.empty()) {
    StoreSession session = std::move(idle_.back());
    idle_.pop_back();
    return session;
  }
  ++sessions_;
  lock.unlock();
  auto opened = open_session(*network_, job_, claims_of(job_),
                             net::Deadline::after(network_->clock(), kRankZeroPatience));
  if (!opened) give_back(std::nullopt);
  return opened;
}

/// nullopt: the session is closed.
void JobStore::give_back(std::optional<StoreSession> session) {
  const std::lock_guard lock(mutex_);
  if (!session || closed_) --sessions_;
  if (session && !closed_) idle_.push_back(std::move(*session));
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

Result<StoreResponse> JobStore::ask(const StoreRequest& request) {
  if (request.key.size() > kMaxStoreKeyBytes ||
      request.value.size() + request.expected.size() > kMaxStoreValueBytes) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("a key of {} and a value of {} bytes: the job's store takes keys up "
                               "to {} and values up to {}",
                               request.key.size(), request.value.size(), kMaxStoreKeyBytes,
                               kMaxStoreValueBytes));
  }
  auto session = take_session();
  if (!session) return tl::unexpected<Error>(lost(session.error()));
  auto response = session->ask(request);
  give_back(response ? std::optional(std::move(*session)) : std::nullopt);
  if (!response) return tl::unexpected<Error>(lost(response.error()));
  if (response->answer == StoreAnswer::refused) {
    return failure(ErrorKind::invalid_argument, response->value);
  }
  return response;
}

Result<StoreResponse> JobStore::await_key(StoreOperation operation, const std::string& key,
                                          Duration timeout) {
  const net::Deadline deadline = net::Deadline::after(network_->clock(), timeout);
  for (;;) {
    const Duration turn = std::min(deadline.left(), kTurn);
    auto response = ask({.operation = operation,
                         .wait_ms = static_cast<std::uint32_t>(net::milliseconds_of(turn)),
                         .key = key});
    if (!response || response->answer == StoreAnswer::ok) return response;
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
  return found.answer == StoreAnswer::ok;
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
  return done.answer == StoreAnswer::ok;
}

Result<std::int64_t> JobStore::count() {
  GRADWIRE_ASSIGN_OR_RETURN(const auto keys, ask({.operation = StoreOperation::count}));
  return std::strtoll(keys.value.c_str(), nullptr, 10);
}

}  // namespace gradwire::bootstrap
