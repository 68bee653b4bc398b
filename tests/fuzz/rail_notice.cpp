#include "gradwire/engine/links/rail_notice.h"

#include "tests/fuzz/target.h"

namespace gradwire::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (std::uint32_t kind = 0; kind < 3; ++kind) {
    all.push_back(
        string_of(encode(engine::RailNotice{.kind = static_cast<engine::RailNotice::Kind>(kind),
                                            .rail = kind,
                                            .generation = 7,
                                            .written_bytes = 1 << 20,
                                            .received_frames = 40})));
  }
  return all;
}

void repair(std::string& input) {
  input.resize(engine::kRailNoticeBytes);
}

/// A notice that is not refused has a known kind, and is encoded to the same bytes.
void test(std::string_view input) {
  const Result<engine::RailNotice> notice = engine::decode_rail_notice(bytes_of(input));
  if (!notice) {
    expect(notice.error().kind == ErrorKind::corrupted, "a refusal is of kind corrupted");
    return;
  }
  expect(input.size() == engine::kRailNoticeBytes, "another size is refused");
  expect(notice->kind <= engine::RailNotice::Kind::suspect, "the kind is known");
  expect(string_of(encode(*notice)) == input, "it is encoded to the same bytes");
}

}  // namespace gradwire::fuzz
