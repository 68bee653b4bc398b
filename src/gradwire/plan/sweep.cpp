#include "gradwire/plan/sweep.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/refuse.h"

namespace gradwire::plan {
namespace {

[[noreturn]] void refuse_range(const std::string& text) {
  refuse("--sweep {}: expected nodes=FROM..TO, 1 to {}, as in nodes=2..4096", text, kMaxNodes);
}

int number_of(std::string_view digits, const std::string& text) {
  int value = 0;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || rest != digits.data() + digits.size() || value < 1 ||
      value > kMaxNodes) {
    refuse_range(text);
  }
  return value;
}

std::string label(const Sweep::Line& line) {
  return line.algorithm == "auto" ? line.network : line.network + ", " + line.algorithm;
}

PlanInput changed(const PlanInput& input, int nodes, const Network& network,
                  const std::string& algorithm) {
  PlanInput then = input;
  if (network.name != input.network.name) then.measured.communication = 0;
  then.network = network;
  then.network.cards = input.network.cards;
  then.strategy.nodes = nodes;
  then.strategy.algorithm = algorithm;
  return then;
}

}  // namespace

std::vector<int> parse_sweep(const std::string& text) {
  constexpr std::string_view prefix = "nodes=";
  const std::size_t dots = text.find("..");
  if (!text.starts_with(prefix) || dots == std::string::npos) refuse_range(text);
  const std::string_view view(text);
  const int first = number_of(view.substr(prefix.size(), dots - prefix.size()), text);
  const int last = number_of(view.substr(dots + 2), text);
  if (first > last) refuse_range(text);
  std::vector<int> nodes;
  for (int n = first; n < last; n *= 2) nodes.push_back(n);
  nodes.push_back(last);
  return nodes;
}

Sweep sweep_nodes(const PlanInput& input, const std::vector<int>& nodes,
                  const std::vector<Network>& networks,
                  const std::vector<std::string>& algorithms) {
  Sweep sweep{.nodes = nodes};
  const bool choice = input.strategy.codec == "none" && input.strategy.servers == 0;
  for (const Network& network : networks) {
    const bool any = choice && !network.by_bus_bandwidth;
    for (const std::string& algorithm : algorithms) {
      Sweep::Line line{network.name, any ? algorithm : "auto", {}};
      for (const int n : nodes)
        line.steps.push_back(step_time(changed(input, n, network, line.algorithm)));
      sweep.lines.push_back(std::move(line));
      if (!any) break;
    }
  }
  return sweep;
}

report::LinePlot plot_of(const Sweep& sweep, const std::string& title) {
  report::LinePlot plot{.title = title, .y_title = "efficiency, %"};
  plot.x_title = "nodes";
  for (const Sweep::Line& line : sweep.lines) {
    report::PlotLine drawn{.name = label(line)};
    for (std::size_t i = 0; i < sweep.nodes.size(); ++i) {
      drawn.x.push_back(sweep.nodes[i]);
      drawn.y.push_back(100 * line.steps[i].eta);
    }
    plot.lines.push_back(std::move(drawn));
  }
  return plot;
}

std::string table_of(const Sweep& sweep) {
  std::string text = fmt::format("{:>7}", "nodes");
  std::vector<std::size_t> widths;
  for (const Sweep::Line& line : sweep.lines) {
    widths.push_back(std::max<std::size_t>(8, label(line).size()));
    text += fmt::format("  {:>{}}", label(line), widths.back());
  }
  for (std::size_t i = 0; i < sweep.nodes.size(); ++i) {
    text += fmt::format("\n{:>7}", sweep.nodes[i]);
    for (std::size_t j = 0; j < sweep.lines.size(); ++j)
      text += fmt::format("  {:>{}.1f} %", 100 * sweep.lines[j].steps[i].eta, widths[j] - 2);
  }
  return text + "\n";
}

std::string to_json(const Sweep& sweep) {
  nlohmann::ordered_json json = {{"nodes", sweep.nodes},
                                 {"lines", nlohmann::ordered_json::array()}};
  for (const Sweep::Line& line : sweep.lines) {
    nlohmann::ordered_json drawn = {{"network", line.network}, {"algorithm", line.algorithm}};
    for (const StepTime& step : line.steps) {
      drawn["eta"].push_back(step.eta);
      drawn["step_ms"].push_back(1e3 * step.step);
      drawn["t_c_ms"].push_back(1e3 * step.t_c);
    }
    json["lines"].push_back(std::move(drawn));
  }
  return json.dump(2) + "\n";
}

}  // namespace gradwire::plan
