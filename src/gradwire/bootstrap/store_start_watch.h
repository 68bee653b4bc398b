#pragma once

#include <optional>
#include <string>

#include "gradwire/bootstrap/start_watch.h"
#include "gradwire/bootstrap/store.h"

namespace gradwire::bootstrap {

/// StartWatch over a store that does not know about ranks, such as a launcher's: ranks write
/// failures to it and poll for them. Such a store does not report that a process has exited; the
/// connections between ranks do.
class StoreStartWatch final : public StartWatch {
 public:
  struct Identity {
    Rank rank = 0;
    int world_size = 1;
    std::string name = {};  ///< RankEndpoint::describe(), for error messages on other ranks.
  };

  /// `prefix`: of keys that no other component uses, the same on all ranks.
  StoreStartWatch(Store& store, std::string prefix, Identity self);

  Result<bool> seal() override { return true; }
  bool is_authenticated() const override { return false; }
  const net::Socket& socket() const override { return none_; }
  Status check() override;
  Error fail(const Error& error) override;
  Status complete(net::Deadline deadline, const ConnectionCheck& check_connections) override;

 private:
  std::string key_of_connected(Rank rank) const;
  Status await(const std::string& key, const std::string& what, net::Deadline deadline,
               const ConnectionCheck& check_connections);

  Store& store_;
  std::string prefix_;
  Identity self_;
  std::optional<Error> failed_;  ///< Set once it is read from the store.
  net::Socket none_;
};

}  // namespace gradwire::bootstrap
