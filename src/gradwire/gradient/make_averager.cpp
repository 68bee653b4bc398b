#include "gradwire/gradient/make_averager.h"

#include <utility>

#include <fmt/format.h>

#include "gradwire/codec/catalogue.h"
#include "gradwire/gradient/auto_averager.h"
#include "gradwire/gradient/averager_arguments.h"
#include "gradwire/gradient/coded_averager.h"
#include "gradwire/gradient/dense_averager.h"
#include "gradwire/gradient/power_sgd_averager.h"

namespace gradwire {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kAutoCodec = "int8";  ///< Codec of plain "auto".

/// A codec, and whether it is only used if it makes steps shorter.
struct Choice {
  CodecSpec codec;
  bool automatic = false;
};

Choice choice_of(std::string_view text) {
  value_or_throw(check_codec(text));
  const bool automatic = text == kAuto || text.starts_with("auto:");
  if (automatic) {
    text = text == kAuto ? kAutoCodec : text.substr(kAuto.size() + 1);
  }
  return {value_or_throw(parse_codec(text)), automatic};
}

void check_single_values(const Choice& choice) {
  const bool single =
      choice.codec.kind() == CodecKind::none || choice.codec.kind() == CodecKind::codec;
  if (single && !choice.automatic) return;
  throw Exception(
      ErrorKind::invalid_argument,
      fmt::format("codec \"{}{}\": ZeRO (each rank gets its own part of the mean) requires an "
                  "element-wise codec, such as int8; not auto or power_sgd",
                  choice.automatic ? "auto:" : "", choice.codec.text()));
}

std::unique_ptr<CodecAverager> codec_averager(std::shared_ptr<Communicator> communicator,
                                              std::vector<BucketShape> buckets,
                                              const CodecSpec& spec,
                                              const AveragerOptions& options) {
  if (spec.kind() == CodecKind::low_rank) {
    return power_sgd_averager(std::move(communicator), std::move(buckets),
                              static_cast<std::size_t>(spec.parameter), options);
  }
  return coded_averager(std::move(communicator), std::move(buckets), spec, options);
}

}  // namespace

std::unique_ptr<Averager> make_averager(std::shared_ptr<Communicator> communicator,
                                        std::vector<BucketShape> buckets,
                                        const AveragerOptions& options) {
  const Choice choice = choice_of(options.codec);
  const bool plain = choice.codec.kind() == CodecKind::none;
  if (options.reduce_scatter_only) check_single_values(choice);
  if (!plain) check_codable(buckets, choice.codec.text());
  if (plain || communicator->size() == 1) {
    return dense_averager(std::move(communicator), std::move(buckets), options.timeout);
  }
  auto averager = codec_averager(communicator, std::move(buckets), choice.codec, options);
  if (!choice.automatic) return averager;
  return auto_averager(std::move(communicator), std::move(averager), choice.codec.text(), options);
}

}  // namespace gradwire
