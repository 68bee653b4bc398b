#pragma once

#include <functional>
#include <optional>
#include <string>

#include "gradwire/cli/plan/plan_arguments.h"

namespace gradwire {

/// Asks for the model, the number of machines and the network, each until the answer is valid.
/// `ask` shows a prompt and returns the line read, or nullopt at the end of input; `tell` shows why
/// an answer is invalid. An empty answer takes the default. Returns nullopt if the input ends.
std::optional<PlanArguments> ask_for_plan(
    const std::function<std::optional<std::string>(const std::string&)>& ask,
    const std::function<void(const std::string&)>& tell);

}  // namespace gradwire
