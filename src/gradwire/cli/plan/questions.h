#pragma once

#include <functional>
#include <optional>
#include <string>

#include "gradwire/cli/plan/plan_arguments.h"

namespace gradwire {

/// Asks for the model, the number of machines and the network, until each answer can be used.
/// `ask` shows a prompt and returns the line that came, or nothing at the end of input; `tell` says
/// what is wrong with one. An empty answer takes the default. Nothing, if the input ends.
std::optional<PlanArguments> ask_for_plan(
    const std::function<std::optional<std::string>(const std::string&)>& ask,
    const std::function<void(const std::string&)>& tell);

}  // namespace gradwire
