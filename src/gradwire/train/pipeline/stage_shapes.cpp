#include "gradwire/train/pipeline/stage_shapes.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/pipeline/activation_codec.h"
#include "gradwire/train/pipeline/evaluation_mode.h"

namespace gradwire {
namespace {

constexpr std::int64_t kExampleSamples = 2;

/// A shape as text, for other ranks: "5 32 768 float32" with the type's number.
std::string text_of(const BoundaryShape& shape) {
  return fmt::format("{} {}", static_cast<int>(shape.type), fmt::join(shape.sizes, " "));
}

BoundaryShape shape_in(const std::string& text) {
  std::istringstream words(text);
  int type = 0;
  words >> type;
  BoundaryShape shape{.type = static_cast<torch::ScalarType>(type)};
  for (std::int64_t size = 0; words >> size;) shape.sizes.push_back(size);
  return shape;
}

BoundaryShape shape_of(const torch::Tensor& output, std::int64_t samples, pipeline::Stage stage) {
  if (output.dim() == 0 || output.size(0) != samples) {
    refuse(
        "the last layer of stage {} returned a tensor of {} rows for {} samples: what passes "
        "between stages must have the samples in its first dimension",
        stage, output.dim() == 0 ? 0 : output.size(0), samples);
  }
  if (!output.is_floating_point()) {
    refuse(
        "the last layer of stage {} returned {}: what passes between stages must be of a "
        "floating-point type, because gradients pass back; cut elsewhere",
        stage, c10::toString(output.scalar_type()));
  }
  return {output.sizes().slice(1).vec(), output.scalar_type()};
}

/// The shapes that a stage returns for two samples of zeros, or the first of the batch: a line for
/// each value of each edge.
std::string output_shapes(const LocalStage& stage, const torch::Tensor& inputs,
                          const StageEdges& edges, const EdgeShapes& shapes, PipelineStages& work) {
  StageValues received;
  if (stage.stage == 0) {
    const torch::Tensor first = inputs.narrow(0, 0, 1);
    received[kPassing] = torch::cat({first, first});
  }
  for (const auto& [edge, values] : edges.into(stage.stage)) {
    for (std::size_t v = 0; v < values.size(); ++v) {
      received[values[v]] = shapes.at(edge)[v].empty(kExampleSamples).zero_();
    }
  }
  const StageValues outputs = work.forward(stage, received, 0, 0);
  std::string text;
  for (const auto& [edge, values] : edges.out_of(stage.stage)) {
    const torch::ScalarType type = outputs.at(values.front()).scalar_type();
    for (const StageValue value : values) {
      const BoundaryShape shape = shape_of(outputs.at(value), kExampleSamples, stage.stage);
      if (shape.type != type) {
        refuse(
            "stage {} sends {} and {} to stage {}: skip connections need the type of what passes",
            edge.first, c10::toString(type), c10::toString(shape.type), edge.second);
      }
      text += text_of(shape) + "\n";
    }
  }
  return text;
}

/// Codecs encode float32 only.
void check_codecs(const Pipeline::Options& options, const std::vector<std::size_t>& cut,
                  const EdgeShapes& all) {
  const auto& [forward, backward] = options.activation_codec;
  const int boundaries = static_cast<int>(cut.size()) - 1;
  const auto there = codecs_of(forward, boundaries), back = codecs_of(backward, boundaries);
  for (const auto& [edge, shapes] : all) {
    const auto boundary = static_cast<std::size_t>(edge.second - 1);
    const torch::ScalarType type = shapes.front().type;
    if (type == torch::kFloat32) continue;
    if (!there[boundary].encodes() && !back[boundary].encodes()) continue;
    refuse(
        "activation_codec {}, {}: codecs encode Float, but stage {} receives {}; cut elsewhere, or "
        "use none",
        forward, backward, edge.second, c10::toString(type));
  }
}

}  // namespace

void find_shapes(const HybridStages& stages, const Pipeline::Options& options,
                 const torch::Tensor& inputs, PipelineStages& work, EdgeShapes& shapes) {
  const pipeline::PipelineSchedule schedule =
      schedule_for(options, stages, options.micro_batches, true);
  const EvaluationMode evaluation(stages.stages);
  const torch::NoGradGuard no_grad;
  for (pipeline::Stage s = 0; s + 1 < schedule.stages(); ++s) {
    const auto local = std::ranges::find(stages.stages, s, &LocalStage::stage);
    const auto texts = collective_try(*options.process_group, [&]() -> std::string {
      return local == stages.stages.end()
                 ? ""
                 : output_shapes(*local, inputs, stages.edges, shapes, work);
    });
    const Rank owner = schedule.rank_of[static_cast<std::size_t>(s)];
    std::istringstream lines(texts[static_cast<std::size_t>(owner)]);
    for (const auto& [edge, values] : stages.edges.out_of(s)) {
      std::string line;
      for (std::size_t v = 0; v < values.size() && std::getline(lines, line); ++v) {
        shapes[edge].push_back(shape_in(line));
      }
    }
  }
  check_codecs(options, stages.cut, shapes);
}

}  // namespace gradwire
