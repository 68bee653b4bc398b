#include "gradwire/bootstrap/mesh/rank_endpoint.h"

#include "tests/fuzz/target.h"

namespace gradwire::fuzz {
namespace {

bootstrap::RankEndpoint endpoint(std::size_t rails) {
  bootstrap::RankEndpoint endpoint{.host = "b",
                                   .machine = "4242-4026531840",
                                   .cores = 16,
                                   .shares_memory = true,
                                   .encrypts = false,
                                   .rails = {}};
  for (std::size_t i = 0; i < rails; ++i) {
    const char* text = i % 2 == 0 ? "10.77.0.4:41234" : "[fd00::4]:29500";
    endpoint.rails.push_back(
        {.address = value_or_throw(net::SocketAddress::parse(text)), .interface = "gw0"});
  }
  return endpoint;
}

}  // namespace

std::vector<std::string> seeds() {
  return {encode(endpoint(1)), encode(endpoint(2)), encode(endpoint(bootstrap::kMaxRails))};
}

void repair(std::string&) {}

/// A rank's place in the store has one to kMaxRails addresses, can be printed, and is encoded to
/// the same bytes.
void test(std::string_view input) {
  const Result<bootstrap::RankEndpoint> endpoint =
      bootstrap::decode_rank_endpoint(std::string(input));
  if (!endpoint) {
    expect(endpoint.error().kind == ErrorKind::corrupted, "a refusal is of kind corrupted");
    expect(endpoint.error().message.size() < 300, "a refusal is no place for a whole text");
    return;
  }
  expect(!endpoint->rails.empty() && endpoint->rails.size() <= bootstrap::kMaxRails,
         "it has as many rails as can be");
  expect(endpoint->cores >= 0, "no machine has less than no core");
  for (std::size_t rail = 0; rail < endpoint->rails.size(); ++rail) {
    expect(endpoint->rails[rail].address.valid(), "each has an address");
    expect(!endpoint->describe(3, static_cast<int>(rail)).empty(), "and can be shown");
  }
  const Result<bootstrap::RankEndpoint> same = bootstrap::decode_rank_endpoint(encode(*endpoint));
  expect(same.has_value(), "what has been understood can be said again");
  expect(same->host == endpoint->host && same->machine == endpoint->machine &&
             same->cores == endpoint->cores && same->shares_memory == endpoint->shares_memory &&
             same->encrypts == endpoint->encrypts && same->rails == endpoint->rails,
         "and means the same");
}

}  // namespace gradwire::fuzz
