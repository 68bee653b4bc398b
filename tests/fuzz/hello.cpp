#include <algorithm>

#include <sys/socket.h>
#include <unistd.h>

#include "gradwire/bootstrap/handshake/handshake.h"
#include "tests/fuzz/target.h"

/// Bytes of an unauthenticated peer in place of a handshake. The first byte selects the receiving
/// end.
namespace gradwire::fuzz {
namespace {

constexpr int kRanks = 4;

bootstrap::SharedSecret shared() {
  return {.secret = "a secret that no input has", .purpose = "mesh"};
}

/// Returns a hello with fixed bytes in place of the random ones, so that runs are reproducible.
std::string hello(const bootstrap::Claims& claims) {
  constexpr std::size_t kNonce = 32;
  return string_of(bootstrap::make_hello(claims, "mesh"))
             .substr(0, bootstrap::kHelloSize - kNonce) +
         std::string(kNonce, 'n');
}

/// An answer starts as a hello does: with magic and version.
std::string answer() {
  return hello({}).substr(0, 12) + std::string(4, '\0') + std::string(32, 'n');
}

struct Ends {
  net::Socket ours;
  net::Socket theirs;
};

Ends connect_both() {
  int descriptors[2];
  expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, descriptors) == 0,
         "(there are sockets)");
  return {net::Socket(descriptors[0]), net::Socket(descriptors[1])};
}

/// Sends all bytes at once, and then closes.
void say(net::Socket& end, std::string_view said) {
  const ssize_t written = ::write(end.descriptor(), said.data(), said.size());
  expect(written == static_cast<ssize_t>(said.size()), "(a socket takes that much)");
  ::shutdown(end.descriptor(), SHUT_WR);
}

/// Each step reads at least one message, or the end of the stream.
void check_refused(bootstrap::Handshake& handshake) {
  for (int step = 0; step < 10; ++step) {
    if (!handshake.advance()) return;
    expect(!handshake.done(), "nobody gets in without the secret");
  }
  expect(false, "an end is an end");
}

void check_hello(std::string_view text) {
  const ConstBytes message = bytes_of(text);
  const auto destination = bootstrap::destination_of(message);
  expect(destination.has_value() ==
             (text.size() >= bootstrap::kHelloSize && bootstrap::has_magic(message) &&
              bootstrap::version_in(message) == bootstrap::kProtocolVersion),
         "a hello is one of ours, of our version");
  if (text.size() < bootstrap::kHelloSize) return;
  const bootstrap::Claims claims = bootstrap::claims_in(message);
  expect(!destination || destination->rank == claims.to, "it is for the rank that it names");
  const bootstrap::Claims same = bootstrap::claims_in(bootstrap::make_hello(claims, "mesh"));
  expect(same.from == claims.from && same.to == claims.to && same.world_size == claims.world_size &&
             same.rail == claims.rail && same.encrypts == claims.encrypts,
         "claims said again mean the same");
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string to_server(1, '\0');
  const std::string to_client(1, '\1');
  const std::string proof(32, 'p');
  const std::string accepted(8, '\0');
  return {to_server + hello({.from = 1, .to = 0, .world_size = kRanks}) + proof,
          to_server + hello({.from = 3, .to = 2, .world_size = 8, .rail = 1, .encrypts = true}),
          to_client + answer() + proof + accepted, to_client + answer() + accepted + proof};
}

void repair(std::string&) {}

/// A peer without the secret is refused, whatever it sends. Fields that are read from a hello
/// before it is authenticated match the sent ones.
void test(std::string_view input) {
  Reader reader(input);
  const bool to_server = reader.byte() % 2 == 0;
  const std::string_view said = reader.rest();
  Ends ends = connect_both();
  say(ends.theirs, said);
  if (to_server) {
    if (!said.empty()) check_hello(said);
    bootstrap::ServerHandshake server(
        std::move(ends.ours), "a peer", bootstrap::one_secret(shared()), kRanks,
        [](const bootstrap::Claims&) { return bootstrap::Verdict::accepted; });
    check_refused(server);
  } else {
    const bootstrap::Claims claims{.from = 1, .to = 0, .world_size = kRanks};
    bootstrap::ClientHandshake client(std::move(ends.ours), "a peer", shared(), claims);
    check_refused(client);
  }
}

}  // namespace gradwire::fuzz
