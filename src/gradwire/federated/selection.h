#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gradwire/federated/client_id.h"

namespace gradwire::federated {

/// How clients are drawn, and what their updates weigh in the mean.
enum class Selection : std::uint8_t {
  uniform,       ///< All alike; an update weighs as many as its client has samples (McMahan et al.,
                 ///< "Communication-Efficient Learning of Deep Networks from Decentralized Data",
                 ///< AISTATS 2017, algorithm 1).
  proportional,  ///< In proportion to their samples, with replacement; an update weighs as often
                 ///< as its client was drawn (Li et al., "Federated Optimization in Heterogeneous
                 ///< Networks", MLSys 2020, algorithm 1).
  fair,  ///< Like uniform, but those that have counted least are drawn first, in expectation.
};
/// "uniform", "proportional", "fair".
std::string_view name_of(Selection selection);
/// Inverse of name_of(). Throws Exception(invalid_argument).
Selection selection_named(std::string_view name);

/// A client that could take part in a round.
struct Candidate {
  ClientId client = 0;
  std::int64_t samples = 1;  ///< Its training data's.
  std::int64_t counted = 0;  ///< Rounds in which its update counted.
};

struct Drawn {
  ClientId client = 0;
  std::int64_t samples = 1;
  std::int64_t times = 1;  ///< How often; more than once with Selection::proportional alone.
};

/// Draws `count` of the candidates, by the seed, whatever their order; all of them if there are no
/// more, but with Selection::proportional always `count` draws. Candidates have samples. The result
/// is ordered by client.
std::vector<Drawn> draw(std::vector<Candidate> candidates, int count, Selection selection,
                        std::uint64_t seed);

}  // namespace gradwire::federated
