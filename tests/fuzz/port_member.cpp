#include "gradwire/bootstrap/mesh/port_switch.h"
#include "gradwire/net/local_socket.h"
#include "tests/fuzz/target.h"

namespace gradwire::fuzz {
namespace {

net::SocketAddress address(const char* text) {
  return value_or_throw(net::SocketAddress::parse(text));
}

}  // namespace

std::vector<std::string> seeds() {
  return {
      encode(bootstrap::PortMember{.destination = {.service = 7, .rank = 3},
                                   .addresses = {address("127.0.0.1:29500")}}),
      encode(bootstrap::PortMember{.destination = {.service = 4294967295, .rank = -1},
                                   .addresses = {address("10.0.0.1:1"), address("[::1]:65535")}}),
      encode(bootstrap::PortMember{.destination = {}, .addresses = {address("[fe80::1]:80")}})};
}

void repair(std::string& input) {
  if (input.size() > net::kMaxLocalMessage)
    input.resize(net::kMaxLocalMessage);  // The socket does the same.
}

/// A message of a local process is either parsed as a valid one or refused.
void test(std::string_view input) {
  const auto member = bootstrap::decode_port_member(input);
  if (!member) return;
  expect(!member->addresses.empty(), "it says where to listen");
  for (const net::SocketAddress& address : member->addresses)
    expect(address.valid(), "at an address");
  const auto same = bootstrap::decode_port_member(encode(*member));
  expect(same.has_value(), "what has been understood can be said again");
  expect(same->destination == member->destination && same->addresses == member->addresses,
         "and means the same");
}

}  // namespace gradwire::fuzz
