#include "gradwire/bootstrap/rank_place.h"

#include "tests/fuzz/target.h"

namespace gradwire::fuzz {
namespace {

RankPlace place(std::size_t rails) {
  RankPlace place{.host = "b",
                  .machine = "4242-4026531840",
                  .cores = 16,
                  .shares_memory = true,
                  .encrypts = false,
                  .rails = {}};
  for (std::size_t i = 0; i < rails; ++i) {
    const char* text = i % 2 == 0 ? "10.77.0.4:41234" : "[fd00::4]:29500";
    place.rails.push_back(
        {.address = value_or_throw(SocketAddress::parse(text)), .interface = "gw0"});
  }
  return place;
}

}  // namespace

std::vector<std::string> seeds() {
  return {encode(place(1)), encode(place(2)), encode(place(kMaxRails))};
}

void repair(std::string&) {}

/// A rank's place in the store has one to kMaxRails addresses, can be printed, and is encoded to
/// the same bytes.
void test(std::string_view input) {
  const Result<RankPlace> place = decode_rank_place(std::string(input));
  if (!place) {
    expect(place.error().kind == ErrorKind::corrupted, "a refusal is of kind corrupted");
    expect(place.error().message.size() < 300, "a refusal is no place for a whole text");
    return;
  }
  expect(!place->rails.empty() && place->rails.size() <= kMaxRails,
         "it has as many rails as can be");
  expect(place->cores >= 0, "no machine has less than no core");
  for (std::size_t rail = 0; rail < place->rails.size(); ++rail) {
    expect(place->rails[rail].address.valid(), "each has an address");
    expect(!place->describe(3, static_cast<int>(rail)).empty(), "and can be shown");
  }
  const Result<RankPlace> same = decode_rank_place(encode(*place));
  expect(same.has_value(), "what has been understood can be said again");
  expect(same->host == place->host && same->machine == place->machine &&
             same->cores == place->cores && same->shares_memory == place->shares_memory &&
             same->encrypts == place->encrypts && same->rails == place->rails,
         "and means the same");
}

}  // namespace gradwire::fuzz
