#pragma once

#include <optional>
#include <string>

#include "gradwire/comm/start_watch.h"
#include "gradwire/comm/store.h"

namespace gradwire {

/// A StartWatch by notes in a store that knows nothing of ranks, such as a launcher's: ranks look
/// there for news. That a process has ended such a store does not tell; those connected with it do.
class NotedStart final : public StartWatch {
 public:
  struct Who {
    Rank rank = 0;
    int world_size = 1;
    std::string name = {};  ///< RankPlace::describe(), for the others' messages.
  };

  /// `prefix`: of keys that nobody else uses, the same on all ranks.
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
  std::optional<Error> failed_;  ///< Once it was read.
  Socket none_;
};

}  // namespace gradwire
