#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/start.h"
#include "gradwire/bootstrap/store/store.h"

namespace gradwire::bootstrap {

/// Start over a store that does not know about ranks, such as a launcher's: ranks write endpoints,
/// failures and their progress to it, and poll for those of the others. Such a store does not
/// report that a process has exited; the connections between ranks do.
///
/// Each rank writes its endpoint under "<prefix>endpoint/<nonce>". Rank 0 gathers all and publishes
/// them in a few values, so that no rank has to read one value per peer.
///
/// The store may still contain the keys of an earlier start with the same scope. (A launcher that
/// restarts its workers keeps the store, and counts restarts separately on each host.) Hence each
/// start has its own generation. A rank writes a fresh nonce to "<scope>nonce/<rank>". Rank 0
/// answers under that nonce, in "<scope>generation/<nonce>", with the generation, also a fresh
/// nonce. A process that replaces one that died while others wait writes another nonce, so rank 0
/// uses the endpoint of the live process.
class GivenStoreStart final : public Start {
 public:
  /// `timeout`: of the whole start, for error messages. `store` and `job` must outlive the start.
  GivenStoreStart(Store& store, const std::string& scope, const Job& job, Duration timeout);

  /// Gets the generation from rank 0; must be called first. Fails with timeout (names the missing
  /// ranks) or disconnected.
  Status join(net::Deadline deadline);

  /// Returns the secret that rank 0 creates and writes to the store.
  Result<std::string> share_secret(net::Deadline deadline);

  Result<std::vector<RankEndpoint>> exchange_endpoints(const RankEndpoint& own,
                                                       net::Deadline deadline) override;
  bool is_authenticated() const override { return false; }
  const net::Socket& socket() const override { return none_; }
  Status check() override;
  Error fail(const Error& error) override;
  Status await_all(net::Deadline deadline, const ConnectionCheck& check_connections) override;

 private:
  /// Rank 0's state for another rank.
  struct Joiner {
    std::string nonce;     ///< Its latest nonce; empty: none seen.
    std::string endpoint;  ///< The endpoint it wrote under that nonce; empty: none seen.
  };
  std::string nonce_key(Rank rank) const;
  std::string generation_key(const std::string& nonce) const;
  std::string endpoint_key(const std::string& nonce) const;
  std::string part_key(std::ptrdiff_t part) const;
  std::string connected_key(Rank rank) const;
  Status admit(Rank rank, Joiner& joiner, Duration patience);
  Status admit_all(std::vector<Joiner>& joiners, net::Deadline deadline);
  Result<bool> are_unchanged(const std::vector<Joiner>& joiners);
  Result<std::vector<std::string>> gather(const std::string& own, net::Deadline deadline);
  Status publish(const std::vector<std::string>& endpoints);
  Result<std::vector<std::string>> fetch(net::Deadline deadline);
  bool has_joined(Rank rank);
  Error missing();
  Status await(const std::string& key, const std::string& what, net::Deadline deadline,
               const ConnectionCheck& check_connections);

  Store& store_;
  std::string scope_;
  const Job& job_;
  Duration timeout_;
  std::string nonce_;       ///< Nonce of this rank.
  std::string generation_;  ///< Empty until rank 0 has answered.
  std::string prefix_;      ///< Prefix of the keys of this generation.
  std::string name_;        ///< RankEndpoint::describe() of this rank, for messages to other ranks.
  std::optional<Error> failed_;  ///< Set once it is read from the store.
  net::Socket none_;
};

}  // namespace gradwire::bootstrap
