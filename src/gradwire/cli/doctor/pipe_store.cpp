#include "gradwire/cli/doctor/pipe_store.h"

#include <array>
#include <cerrno>
#include <string_view>

#include <nlohmann/json.hpp>

namespace gradwire::cli {
namespace {

tl::unexpected<Error> parent_is_gone() {
  return failure(ErrorKind::disconnected, "the parent process is gone");
}

std::string line_of(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string line_of(const StoreRequest& request) {
  if (request.value)
    return line_of(nlohmann::json{{"set", request.key}, {"value", *request.value}});
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(request.patience).count();
  return line_of(nlohmann::json{{"get", request.key}, {"ms", ms}});
}

std::string line_of(const Result<std::string>& answer) {
  if (answer) return line_of(nlohmann::json{{"value", *answer}});
  return line_of(nlohmann::json{{"kind", static_cast<int>(answer.error().kind)},
                                {"error", answer.error().message}});
}

std::optional<StoreRequest> parse_request(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* key) -> std::optional<std::string> {
    if (!json.is_object() || !json.contains(key) || !json[key].is_string()) return std::nullopt;
    return json[key].get<std::string>();
  };
  if (const auto key = text("set"); key && text("value")) {
    return StoreRequest{.key = *key, .value = text("value")};
  }
  const auto key = text("get");
  if (!key || !json.contains("ms") || !json["ms"].is_number_integer()) return std::nullopt;
  return StoreRequest{.key = *key,
                      .value = std::nullopt,
                      .patience = std::chrono::milliseconds(json["ms"].get<std::int32_t>())};
}

Result<std::string> parse_answer(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("value") && json["value"].is_string()) {
    return json["value"].get<std::string>();
  }
  if (!json.is_object() || !json.contains("kind") || !json["kind"].is_number_integer()) {
    return failure(ErrorKind::corrupted, "the parent process sent an invalid answer");
  }
  return failure(static_cast<ErrorKind>(json["kind"].get<int>()), json.value("error", ""));
}

Status PipeStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  return write_line(line_of(StoreRequest{.key = key, .value = value}));
}

Result<std::string> PipeStore::get(const std::string& key, Duration timeout) {
  const std::lock_guard lock(mutex_);
  const StoreRequest request{.key = key, .value = std::nullopt, .patience = timeout};
  GRADWIRE_RETURN_IF_ERROR(write_line(line_of(request)));
  const auto line = read_line();
  if (!line) return line;
  return parse_answer(*line);
}

Status PipeStore::write_line(const std::string& line) {
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t wrote = ::write(out_.get(), rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return parent_is_gone();
    rest.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return {};
}

Result<std::string> PipeStore::read_line() {
  std::array<char, 4096> piece;
  std::size_t end = 0;
  while ((end = buffer_.find('\n')) == std::string::npos) {
    const ssize_t got = ::read(in_.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return parent_is_gone();
    buffer_.append(piece.data(), static_cast<std::size_t>(got));
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

}  // namespace gradwire::cli
