#include "gradwire/bootstrap/slurm.h"

#include <charconv>

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire {
namespace {

std::optional<int> to_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// Removes and returns the prefix of `rest` before the first of `separators`.
std::string_view take_until(std::string_view& rest, std::string_view separators) {
  const std::size_t at = rest.find_first_of(separators);
  const std::string_view head = rest.substr(0, at);
  rest.remove_prefix(head.size());
  return head;
}

/// Returns the first name of a host list; empty or nullopt if it is malformed. Brackets may appear
/// anywhere in the name and repeatedly ("rack[0-1]node[1-2]"); the first host takes the first
/// number of each, with its leading zeros.
std::optional<std::string> expand_first(std::string_view rest) {
  std::string name;
  for (;;) {
    name += take_until(rest, "[,]");
    if (rest.empty() || rest.front() == ',') return name;
    if (rest.front() == ']') return std::nullopt;
    rest.remove_prefix(1);
    std::string_view range = take_until(rest, "]");
    const std::string_view first = take_until(range, ",-");
    if (rest.empty() || !to_number(first)) return std::nullopt;
    name += first;
    rest.remove_prefix(1);
  }
}

/// "2(x3)": three nodes with two tasks each.
struct NodeRun {
  int tasks = 0;
  int nodes = 0;
};

std::optional<NodeRun> parse_run(std::string_view text) {
  const std::size_t open = text.find("(x");
  const std::optional<int> tasks = to_number(text.substr(0, open));
  if (!tasks) return std::nullopt;
  if (open == std::string_view::npos) return NodeRun{*tasks, 1};
  if (text.back() != ')') return std::nullopt;
  const std::optional<int> nodes = to_number(text.substr(open + 2, text.size() - open - 3));
  if (!nodes) return std::nullopt;
  return NodeRun{*tasks, *nodes};
}

}  // namespace

std::string first_slurm_host(std::string_view hosts) {
  const std::string name = expand_first(hosts).value_or("");
  if (name.empty()) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("\"{}\" is not a Slurm host list such as n[01-03,7],m2: set "
                                "MASTER_ADDR to the host of rank 0",
                                hosts));
  }
  return name;
}

std::optional<int> slurm_tasks_on_node(std::string_view tasks_per_node, int node) {
  std::string_view rest = tasks_per_node;
  while (!rest.empty()) {
    const std::optional<NodeRun> run = parse_run(take_until(rest, ","));
    if (!run) return std::nullopt;
    if (node < run->nodes) return run->tasks;
    node -= run->nodes;
    if (!rest.empty()) rest.remove_prefix(1);
  }
  return std::nullopt;
}

}  // namespace gradwire
