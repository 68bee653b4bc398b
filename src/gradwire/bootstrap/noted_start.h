#pragma once

#include <optional>
#include <string>

#include "gradwire/bootstrap/start_watch.h"
#include "gradwire/bootstrap/store.h"

namespace gradwire {

/// StartWatch over a store that does not know about ranks, such as a launcher's: ranks write
/// failures to it and poll for them. Such a store does not report that a process has exited; the
/// connections between ranks do.
class NotedStart final : public StartWatch {
 public:
  struct Who {
    Rank rank = 0;
    int world_size = 1;
    std::string name = {};  ///< RankPlace::describe(), for error messages on other ranks.
  };

  /// `prefix`: of keys that no other component uses, the same on all ranks.
  NotedStart(Store& store, std::string prefix, Who who);

  Result<bool> seal() override { return true; }
  bool is_authenticated() const override { return false; }
  const Socket& socket() const override { return none_; }
  Status look() override;
  Error fail(const Error& error) override;
  Status complete(Deadline deadline, const Standing& standing) override;

 private:
  std::string key_of_connected(Rank rank) const;
  Status await(const std::string& key, const std::string& what, Deadline deadline,
               const Standing& standing);

  Store& store_;
  std::string prefix_;
  Who who_;
  std::optional<Error> failed_;  ///< Set once it is read from the store.
  Socket none_;
};

}  // namespace gradwire
