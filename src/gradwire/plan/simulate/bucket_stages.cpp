#include "gradwire/plan/simulate/bucket_stages.h"

#include <algorithm>
#include <memory>

#include "gradwire/base/json_fields.h"
#include "gradwire/base/refuse.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/exchange/coded_layout.h"

namespace gradwire::plan {
namespace {

constexpr std::size_t kAlignment = 16;  ///< Alignment of encoded parts (exchange/coded_piece.cpp).

double slot_bytes(const codec::Codec& codec, std::size_t count) {
  if (count == 0) return 0;
  return static_cast<double>((codec.encoded_bytes(count) + kAlignment - 1) / kAlignment *
                             kAlignment);
}

TrafficStage network_stage(const ExchangeModel& model, schedule::Collective collective,
                           double bytes) {
  const OperationTime time = model.times(collective, bytes);
  return {TrafficStage::network, time.seconds, std::min(time.port_seconds, time.seconds)};
}

/// `values`: number of float32 values.
TrafficStage coding(const ExchangeModel& model, double values, double bytes_per_second) {
  return {TrafficStage::processor, values * sizeof(float) / bytes_per_second * model.codec_slowdown,
          0};
}

std::shared_ptr<const codec::Codec> codec_of(const ExchangeModel& model) {
  const codec::CodecSpec spec = value_or_throw(codec::parse_codec(model.codec));
  if (spec.kind() == codec::CodecKind::none) return nullptr;
  if (spec.kind() == codec::CodecKind::codec) return value_or_throw(codec::make_codec(spec));
  refuse(
      "codec \"{}\": its encoded size depends on more than the number of "
      "values; simulate none, bf16, int8, int4 or top_k:0.01",
      model.codec);
}

/// Stages of a piece: encode, exchange, reduce and encode the mean, gather, decode.
std::vector<TrafficStage> piece_stages(const exchange::CodedPieceLayout& piece,
                                       const codec::Codec& codec, const ExchangeModel& model) {
  const std::unique_ptr<codec::Codec> own_mean = codec.for_mean(model.ranks);
  const codec::Codec& mean = own_mean ? *own_mean : codec;
  double sent = 0;
  for (const exchange::CodedRange& part : piece.parts) sent += slot_bytes(codec, part.count());
  const std::size_t largest = piece.parts.front().count();
  const auto all = static_cast<double>(piece.all.count()), own = static_cast<double>(largest);
  TrafficStage adding = coding(model, own, model.speed.decode);
  adding.seconds += coding(model, own * (model.ranks - 1), model.speed.decode_add).seconds;
  adding.seconds += coding(model, own, model.speed.encode).seconds;
  return {coding(model, all, model.speed.encode),
          network_stage(model, schedule::Collective::all_to_all, sent), adding,
          network_stage(model, schedule::Collective::all_gather,
                        model.ranks * slot_bytes(mean, largest)),
          coding(model, all, model.speed.decode)};
}

}  // namespace

std::map<std::string, CodecSpeed> parse_codec_speeds(std::string_view json,
                                                     const std::string& source) {
  const auto read = read_json_fields(json, source, [](JsonFields fields) {
    std::map<std::string, CodecSpeed> speeds;
    for (JsonFields row : fields.objects("rows", 0)) {
      const auto rate = [&](const char* key) { return 1e9 * row.number(key, 1e-6, 1e6); };
      speeds[row.text("codec")] = {rate("encode_gbps"), rate("decode_gbps"),
                                   rate("decode_add_gbps")};
    }
    return speeds;
  });
  return value_or_throw(read);
}

UnitTraffic unit_traffic(const exchange::UnitShape& unit, int stage, const ExchangeModel& model) {
  if (model.ranks == 1) return {};
  const std::shared_ptr<const codec::Codec> codec = codec_of(model);
  const auto bytes = static_cast<double>(unit.count * sizeof(float));
  if (stage > 0 && codec) refuse("ZeRO is simulated with codec none only");
  if (stage > 0) {
    return {{{network_stage(model, schedule::Collective::reduce_scatter, bytes)}},
            {{network_stage(model, schedule::Collective::all_gather, bytes)}}};
  }
  if (unit.skip_compression || !codec)
    return {{{network_stage(model, schedule::Collective::all_reduce, bytes)}}, {}};
  UnitTraffic traffic;
  for (const exchange::CodedPieceLayout& piece :
       exchange::cut_into_pieces(unit.count, model.piece_elements, model.ranks))
    traffic.reduction.push_back(piece_stages(piece, *codec, model));
  return traffic;
}

double codec_slowdown(const topology::Topology& topology) {
  std::map<int, std::pair<double, int>> machines;  // Ranks and processors, by kernel.
  double slowdown = 1;
  for (int host = 0; host < topology.hosts(); ++host) {
    const topology::Host& one = topology.host(host);
    if (one.cores == 0) continue;
    const auto ranks = static_cast<double>(topology.ranks_on(host).size());
    slowdown = std::max(slowdown, ranks / one.cores);
    if (one.kernel < 0) continue;
    auto& [together, cores] = machines[one.kernel];
    together += ranks;
    cores = one.cores;
    slowdown = std::max(slowdown, together / cores);
  }
  return slowdown;
}

}  // namespace gradwire::plan
