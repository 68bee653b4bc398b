#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gradwire {

/// Variables of an environment to be set, in this order.
using VariableList = std::vector<std::pair<std::string, std::string>>;

/// A whole environment.
using VariableMap = std::map<std::string, std::string, std::less<>>;

/// This process's, without what tells torchrun's own ranks that they are such.
VariableMap own_variables();

/// Those that torchrun sets for its ranks to find its store, which ours must not see.
inline constexpr const char* kTorchrunOnly[] = {"TORCHELASTIC_RUN_ID",
                                                "TORCHELASTIC_USE_AGENT_STORE"};

/// As exec(2) has it: "NAME=value".
std::vector<std::string> entries_of(const VariableMap& variables);

}  // namespace gradwire
