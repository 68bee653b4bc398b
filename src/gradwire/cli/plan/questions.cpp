#include "gradwire/cli/plan/questions.h"

#include <charconv>

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire {
namespace {

int number_of_machines(const std::string& answer) {
  int number = 0;
  const char* const end = answer.data() + answer.size();
  const auto [rest, error] = std::from_chars(answer.data(), end, number);
  if (error != std::errc{} || rest != end || number < 1)
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("\"{}\": expected a number of machines, 1 or more", answer));
  Strategy strategy{.nodes = number};
  check_strategy(strategy);
  return number;
}

}  // namespace

std::optional<PlanArguments> ask_for_plan(
    const std::function<std::optional<std::string>(const std::string&)>& ask,
    const std::function<void(const std::string&)>& tell) {
  PlanArguments given;
  // Returns false at the end of the input.
  const auto question = [&](const std::string& prompt,
                            const std::function<void(const std::string&)>& take) {
    while (true) {
      const std::optional<std::string> answer = ask(prompt);
      if (!answer || answer->empty()) return answer.has_value();
      try {
        take(*answer);
        return true;
      } catch (const Exception& e) {
        tell(e.what());
      }
    }
  };
  const bool complete = question(fmt::format("Which model? [{}] ", given.model),
                                 [&](const std::string& answer) {
                                   model_named(answer);
                                   given.model = answer;
                                 }) &&
                        question(fmt::format("How many machines? [{}] ", given.strategy.nodes),
                                 [&](const std::string& answer) {
                                   given.strategy.nodes = number_of_machines(answer);
                                 }) &&
                        question(fmt::format("Which network joins them? [{}] ", given.network),
                                 [&](const std::string& answer) {
                                   network_named(answer);
                                   given.network = answer;
                                 });
  return complete ? std::optional(given) : std::nullopt;
}

}  // namespace gradwire
