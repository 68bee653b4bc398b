#include "gradwire/exchange/make_exchange.h"

#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/exchange/auto_exchange.h"
#include "gradwire/exchange/coded_exchange.h"
#include "gradwire/exchange/communicator_exchange.h"
#include "gradwire/exchange/power_sgd_exchange.h"
#include "gradwire/exchange/traced_exchange.h"

namespace gradwire::exchange {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kAutoCodec = "int8";  ///< Codec of plain "auto".

/// A codec, and whether it is only used if it makes steps shorter.
struct Choice {
  codec::CodecSpec codec;
  bool automatic = false;
};

Choice choice_of(std::string_view text) {
  value_or_throw(codec::check_codec(text));
  const bool automatic = text == kAuto || text.starts_with("auto:");
  if (automatic) {
    text = text == kAuto ? kAutoCodec : text.substr(kAuto.size() + 1);
  }
  return {value_or_throw(codec::parse_codec(text)), automatic};
}

void check_single_values(const Choice& choice) {
  const bool single = choice.codec.kind() == codec::CodecKind::none ||
                      choice.codec.kind() == codec::CodecKind::codec;
  if (single && !choice.automatic) return;
  refuse(
      "codec \"{}{}\": ZeRO (each rank gets its own part of the mean) requires an "
      "element-wise codec, such as int8; not auto or power_sgd",
      choice.automatic ? "auto:" : "", choice.codec.text());
}

std::unique_ptr<CompressedExchange> compressed(std::unique_ptr<Exchange> plain,
                                               std::shared_ptr<Communicator> communicator,
                                               std::vector<UnitShape> units,
                                               const codec::CodecSpec& spec,
                                               const ExchangeOptions& options) {
  if (spec.kind() == codec::CodecKind::low_rank) {
    return power_sgd_exchange(std::move(plain), std::move(communicator), std::move(units),
                              static_cast<std::size_t>(spec.parameter), options);
  }
  return coded_exchange(std::move(plain), std::move(communicator), std::move(units), spec, options);
}

std::unique_ptr<Exchange> untraced(std::shared_ptr<Communicator> communicator,
                                   std::vector<UnitShape> units, const ExchangeOptions& options) {
  const Choice choice = choice_of(options.codec);
  const bool plain_only = choice.codec.kind() == codec::CodecKind::none;
  if (options.sharded) check_single_values(choice);
  if (!plain_only) check_codable(units, choice.codec.text());
  auto plain = communicator_exchange(communicator, units, options.timeout);
  if (plain_only || communicator->size() == 1) return plain;
  auto exchange =
      compressed(std::move(plain), communicator, std::move(units), choice.codec, options);
  if (!choice.automatic) return exchange;
  return auto_exchange(std::move(communicator), std::move(exchange), choice.codec.text(), options);
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(std::shared_ptr<Communicator> communicator,
                                        std::vector<UnitShape> units,
                                        const ExchangeOptions& options, TraceRecorder* trace) {
  return traced_exchange(untraced(std::move(communicator), std::move(units), options), trace);
}

}  // namespace gradwire::exchange
