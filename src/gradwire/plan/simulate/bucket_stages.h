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

/// How fast one core works with a codec, in bytes of float32 a second.
struct CodecSpeed {
  double encode = 1.5e9;  ///< With error feedback where the codec wants it.
  double decode = 4e9;
  double decode_add = 3e9;
};

/// What `gradwire bench codec --json` wrote, by codec as on the command line ("top_k:0.01").
/// `source` is what errors call it. Throws Exception(invalid_argument).
std::map<std::string, CodecSpeed> parse_codec_speeds(std::string_view json,
                                                     const std::string& source);

/// What decides how buckets travel.
struct ExchangeModel {
  int ranks = 1;
  OperationTimes times;
  std::string codec = "none";  ///< Of kind none or codec (codec/catalogue.h).
  CodecSpeed speed;
  /// Codec threads that share a processor: hosts simulated on one machine.
  double codec_slowdown = 1;
  std::size_t piece_elements = std::size_t{1} << 20;  ///< Values that are coded at once.
};

/// The jobs of a bucket: one, or one for each piece that is coded by itself
/// (gradient/coded_averager_piece.h). Throws Exception(invalid_argument): an unknown codec, or one
/// whose bytes depend on more than a number of values.
std::vector<std::vector<TrafficStage>> bucket_stages(const BucketShape& bucket,
                                                     const ExchangeModel& model);

/// How many codec threads share a processor where each rank has one, at least 1: of the machine
/// on which that is worst.
double codec_slowdown(const Topology& topology);

}  // namespace gradwire
