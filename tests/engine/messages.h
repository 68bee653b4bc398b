#pragma once

#include <numeric>
#include <vector>

#include "gradwire/engine/executor.h"
#include "tests/support/sim_collective.h"

namespace gradwire::test {

/// The request of a message of `data` from one rank to another, for either rank.
inline engine::OperationRequest message(std::vector<float>& data, Rank from, Rank to, Rank self,
                                        int ranks, int tag) {
  engine::OperationRequest request;
  request.program = engine::CompiledProgram::compile(
      value_or_throw(schedule::make_schedule(
          {schedule::Collective::point_to_point, from, to},
          schedule::algorithm_names(schedule::Collective::point_to_point).front(),
          topology::Topology::uniform(ranks))),
      self);
  request.fingerprint = {.collective = schedule::Collective::point_to_point,
                         .type = DataType::float32,
                         .root = from,
                         .count = data.size()};
  request.fingerprint.set_algorithm(request.program->schedule.name);
  request.input = reinterpret_cast<const std::byte*>(data.data());
  request.output = reinterpret_cast<std::byte*>(data.data());
  request.timeout = std::chrono::milliseconds(500);
  request.tag = tag;
  return request;
}

inline std::vector<float> counting_from(float first, std::size_t count) {
  std::vector<float> data(count);
  std::iota(data.begin(), data.end(), first);
  return data;
}

}  // namespace gradwire::test
