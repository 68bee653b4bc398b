#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "gradwire/base/unique_fd.h"
#include "gradwire/bootstrap/store/store.h"

namespace gradwire::cli {

/// A request to the store in an agent's parent, sent as a line of JSON.
struct StoreRequest {
  std::string key;
  std::optional<std::string> value;  ///< Value to set; nullopt: get.
  Duration patience = {};            ///< Timeout of a get.
};

std::string line_of(const StoreRequest& request);
std::string line_of(const Result<std::string>& answer);
/// Returns nullopt if the line is not a request.
std::optional<StoreRequest> parse_request(const std::string& line);
Result<std::string> parse_answer(const std::string& line);

/// Client of the parent's store, over two pipes, so that the hosts of a job can exchange entries
/// with only the remote shell between them.
class PipeStore final : public bootstrap::Store {
 public:
  /// Reads answers from `in`, writes requests to `out`.
  PipeStore(UniqueFd in, UniqueFd out) : in_(std::move(in)), out_(std::move(out)) {}

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, Duration timeout) override;

 private:
  Status write_line(const std::string& line);
  Result<std::string> read_line();

  std::mutex mutex_;
  UniqueFd in_;
  UniqueFd out_;
  std::string buffer_;
};

}  // namespace gradwire::cli
