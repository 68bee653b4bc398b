#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/exchange/exchange.h"
#include "gradwire/plan/simulate/operation_times.h"
#include "gradwire/plan/simulate/traffic.h"

namespace gradwire::plan {

/// Throughput of a codec on one core, in bytes of float32 per second.
struct CodecSpeed {
  double encode = 1.5e9;  ///< Including error feedback if the codec uses it.
  double decode = 4e9;
  double decode_add = 3e9;
};

/// Parses the output of `gradwire bench codec --json`. Keys are codecs as on the command line
/// ("top_k:0.01"). `source`: the name in error messages. Throws Exception(invalid_argument).
std::map<std::string, CodecSpeed> parse_codec_speeds(std::string_view json,
                                                     const std::string& source);

/// Parameters of a bucket's exchange.
struct ExchangeModel {
  int ranks = 1;
  OperationTimes times;
  std::string codec = "none";  ///< Codec of kind none or codec (codec/catalogue.h).
  CodecSpeed speed;
  /// Codec threads per processor, for hosts simulated on one machine.
  double codec_slowdown = 1;
  std::size_t piece_elements = std::size_t{1} << 20;  ///< Values encoded at a time.
};

/// The work of a unit's operations: jobs of consecutive stages, several where pieces are encoded
/// separately.
struct UnitTraffic {
  std::vector<std::vector<TrafficStage>> reduction;  ///< All-reduce, or reduce-scatter.
  std::vector<std::vector<TrafficStage>> gather;
};

/// Returns the traffic of a unit: in stage 0 of ZeRO an all-reduce, otherwise a reduce-scatter and
/// an all-gather. Throws Exception(invalid_argument) for an unknown codec, one whose encoded size
/// depends on more than the number of values, or any codec from stage 1 on.
UnitTraffic unit_traffic(const exchange::UnitShape& unit, int stage, const ExchangeModel& model);

/// Returns the codec threads per processor with one thread per rank, at least 1: the maximum over
/// all machines.
double codec_slowdown(const topology::Topology& topology);

}  // namespace gradwire::plan
