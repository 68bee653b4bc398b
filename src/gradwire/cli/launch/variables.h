#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gradwire {

/// Environment variables to set, in this order.
using VariableList = std::vector<std::pair<std::string, std::string>>;

/// A complete environment.
using VariableMap = std::map<std::string, std::string, std::less<>>;

/// Returns this process's environment without kTorchrunOnly.
VariableMap own_variables();

/// Set by torchrun for its ranks to find its store; hidden from ranks that gradwire starts.
inline constexpr const char* kTorchrunOnly[] = {"TORCHELASTIC_RUN_ID",
                                                "TORCHELASTIC_USE_AGENT_STORE"};

/// Returns the entries in the form of exec(2): "NAME=value".
std::vector<std::string> entries_of(const VariableMap& variables);

}  // namespace gradwire
