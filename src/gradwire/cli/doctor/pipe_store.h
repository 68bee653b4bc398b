#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "gradwire/base/unique_fd.h"
#include "gradwire/comm/store.h"

namespace gradwire {

/// A request to the store that an agent's parent keeps, as a line of JSON, and its answer.
struct NoteRequest {
  std::string key;
  std::optional<std::string> value;  ///< To set; nothing: to get.
  Duration patience = {};            ///< Of a get.
};

std::string line_of(const NoteRequest& request);
std::string line_of(const Result<std::string>& answer);
/// Nothing for what is no such line.
std::optional<NoteRequest> parse_request(const std::string& line);
Result<std::string> parse_answer(const std::string& line);

/// The store of the process that started this one, over two pipes: so the hosts of a job can leave
/// each other notes though nothing but the remote shell connects them.
class PipeStore final : public Store {
 public:
  /// Answers come in on `in`, requests go out on `out`.
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

}  // namespace gradwire
