#include "gradwire/torch/gradwire_store.h"

#include <algorithm>
#include <utility>

#include <torch/csrc/distributed/c10d/exception.h>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/connect.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/host_network.h"

namespace gradwire {
namespace {

std::string text_of(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<std::uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

/// Timeouts are thrown as c10::DistStoreError, which c10d's callers expect.
[[noreturn]] void throw_error(const Error& error) {
  if (error.kind == ErrorKind::timeout) C10_THROW_ERROR(DistStoreError, error.message);
  throw Exception(error);
}

template <class T>
T unwrap(Result<T> result) {
  if (!result) throw_error(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// In c10d, zero means no timeout.
Duration limit_of(std::chrono::milliseconds timeout) {
  constexpr auto kForEver = std::chrono::hours(24 * 365);
  return timeout == c10d::Store::kNoTimeout ? Duration(kForEver) : Duration(timeout);
}

}  // namespace

c10::intrusive_ptr<GradwireStore> GradwireStore::open(const bootstrap::Job& job,
                                                      std::chrono::milliseconds timeout) {
  auto network = std::make_shared<const net::KernelNetwork>();
  const Duration limit = std::min(limit_of(timeout), bootstrap::StartOptions{}.timeout);
  std::shared_ptr<bootstrap::JobStore> opened = value_or_throw(
      bootstrap::JobStore::open(network, job, net::Deadline::after(network->clock(), limit)));
  return c10::make_intrusive<GradwireStore>(std::move(opened), timeout);
}

c10::intrusive_ptr<c10d::Store> GradwireStore::clone() {
  return c10::make_intrusive<GradwireStore>(job_store_, timeout_);
}

void GradwireStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  unwrap(job_store_->set(key, text_of(value)));
}

std::vector<std::uint8_t> GradwireStore::compareSet(const std::string& key,
                                                    const std::vector<std::uint8_t>& expected,
                                                    const std::vector<std::uint8_t>& desired) {
  return bytes_of(unwrap(job_store_->compare_set(key, text_of(expected), text_of(desired))));
}

std::vector<std::uint8_t> GradwireStore::get(const std::string& key) {
  return bytes_of(unwrap(job_store_->get(key, limit_of(timeout_))));
}

std::int64_t GradwireStore::add(const std::string& key, std::int64_t amount) {
  return unwrap(job_store_->add(key, amount));
}

bool GradwireStore::deleteKey(const std::string& key) {
  return unwrap(job_store_->erase(key));
}

bool GradwireStore::check(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (!unwrap(job_store_->has(key))) return false;
  }
  return true;
}

std::int64_t GradwireStore::getNumKeys() {
  return unwrap(job_store_->count());
}

void GradwireStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void GradwireStore::wait(const std::vector<std::string>& keys,
                         const std::chrono::milliseconds& timeout) {
  const SteadyClock clock;
  const net::Deadline deadline = net::Deadline::after(clock, limit_of(timeout));
  for (const std::string& key : keys) unwrap(job_store_->wait(key, deadline.left()));
}

void GradwireStore::append(const std::string& key, const std::vector<std::uint8_t>& value) {
  unwrap(job_store_->append(key, text_of(value)));
}

std::vector<std::vector<std::uint8_t>> GradwireStore::multiGet(
    const std::vector<std::string>& keys) {
  std::vector<std::vector<std::uint8_t>> values;
  for (const std::string& key : keys) values.push_back(get(key));
  return values;
}

void GradwireStore::multiSet(const std::vector<std::string>& keys,
                             const std::vector<std::vector<std::uint8_t>>& values) {
  TORCH_CHECK(keys.size() == values.size(), "multiSet: ", keys.size(), " keys and ", values.size(),
              " values");
  for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

}  // namespace gradwire
