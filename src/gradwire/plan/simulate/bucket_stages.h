#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/gradient/averager.h"
#include "gradwire/plan/simulate/operation_times.h"
#include "gradwire/plan/simulate/traffic.h"

namespace gradwire {

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
  std::string codec = "none";  ///< Of kind none or codec (codec/catalogue.h).
  CodecSpeed speed;
  /// Codec threads per processor, for hosts simulated on one machine.
  double codec_slowdown = 1;
  std::size_t piece_elements = std::size_t{1} << 20;  ///< Values encoded at a time.
};

/// Returns the jobs of a bucket: one, or one for each piece that is encoded separately
/// (gradient/coded_averager_piece.h). Throws Exception(invalid_argument) for an unknown codec, or
/// one whose encoded size depends on more than the number of values.
std::vector<std::vector<TrafficStage>> bucket_stages(const BucketShape& bucket,
                                                     const ExchangeModel& model);

/// Returns the stage of a collective on `bytes` bytes of all ranks' chunks together.
TrafficStage network_stage(const ExchangeModel& model, Collective collective, double bytes);

/// Returns the codec threads per processor with one thread per rank, at least 1: the maximum over
/// all machines.
double codec_slowdown(const Topology& topology);

}  // namespace gradwire
