#include "gradwire/net/tls_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "tests/net/wire.h"

namespace gradwire::net {
namespace {

using test::Wire;
using testing::HasSubstr;
using End = TlsStream::End;

SessionKey key_of(std::string_view text) {
  const std::string transcript = "transcript";
  return derive_session_key(text, std::as_bytes(std::span(transcript)));
}

/// The two ends of an encrypted connection, with an attacker in between.
struct Ends {
  explicit Ends(std::string_view client_key = "key", std::string_view server_key = "key",
                std::uint32_t records_per_key = TlsStream::kRecordsPerKey)
      : client(client_socket.descriptor(), End::client, key_of(client_key), records_per_key),
        server(server_socket.descriptor(), End::server, key_of(server_key), records_per_key) {}

  /// Runs until both have finished the handshake, or one has failed.
  void handshake() {
    Transfer from_client;
    Transfer from_server;
    const Deadline deadline = test::soon_enough();
    while (!(client.handshake_done() && server.handshake_done()) && !from_client.ended &&
           !from_server.ended) {
      ASSERT_FALSE(deadline.passed());
      from_client = client.handshake();
      from_server = server.handshake();
    }
  }

  Wire wire;
  Socket client_socket = wire.take_first();
  Socket server_socket = wire.take_second();
  TlsStream client;
  TlsStream server;
};

/// Writes all of `text`, waiting as needed.
void write_all(TlsStream& stream, const Socket& socket, std::string_view text) {
  auto rest = std::as_bytes(std::span(text));
  const Deadline deadline = test::soon_enough();
  while (!rest.empty()) {
    const Transfer taken = stream.write(std::span<const ConstBytes>(&rest, 1));
    ASSERT_FALSE(taken.ended);
    rest = rest.subspan(taken.bytes);
    if (!rest.empty()) {
      ASSERT_TRUE(wait_for(socket, POLLOUT, deadline));
    }
  }
}

struct Heard {
  std::string text;
  bool ended = false;
  int cause = 0;
};

/// Reads `size` bytes, or to the end.
Heard read_all(TlsStream& stream, const Socket& socket, std::size_t size) {
  Heard heard;
  const Deadline deadline = test::soon_enough();
  while (heard.text.size() < size && !heard.ended && !deadline.passed()) {
    std::string buffer(std::min<std::size_t>(size - heard.text.size(), 7000), '\0');
    const Bytes piece = std::as_writable_bytes(std::span(buffer));
    const Transfer got = stream.read(std::span(&piece, 1));
    heard.text += buffer.substr(0, got.bytes);
    heard.ended = got.ended;
    heard.cause = got.cause;
    if (got.bytes == 0 && !got.ended) wait_for(socket, POLLIN, deadline);
  }
  return heard;
}

TEST(TlsStream, CarriesBytesThatNobodyInBetweenCanRead) {
  Ends ends;
  ends.handshake();
  const std::string text = "the gradients of layer 4";
  write_all(ends.client, ends.client_socket, text);
  EXPECT_EQ(read_all(ends.server, ends.server_socket, text.size()).text, text);
  write_all(ends.server, ends.server_socket, text);
  EXPECT_EQ(read_all(ends.client, ends.client_socket, text.size()).text, text);
  EXPECT_FALSE(ends.wire.has_seen("gradients"));
}

TEST(TlsStream, KeysAreRenewed) {
  Ends ends("key", "key", 2);
  ends.handshake();
  for (int i = 0; i < 200; ++i) {
    const std::string text = "message " + std::to_string(i);
    write_all(ends.client, ends.client_socket, text);
    ASSERT_EQ(read_all(ends.server, ends.server_socket, text.size()).text, text);
    write_all(ends.server, ends.server_socket, text);
    ASSERT_EQ(read_all(ends.client, ends.client_socket, text.size()).text, text);
  }
}

TEST(TlsStream, AnotherKeyIsRefused) {
  Ends ends("key", "another key");
  ends.handshake();
  EXPECT_FALSE(ends.server.handshake_done());
  EXPECT_TRUE(ends.server.openssl_error() || ends.client.openssl_error());
}

/// Results of both ends when the client's first bytes after the handshake are changed once.
struct Fate {
  Heard server;
  std::optional<std::string> server_complaint;
  std::optional<std::string> client_complaint;
};

Fate fate_after(const std::function<void(std::string&)>& change) {
  Ends ends;
  ends.handshake();
  bool changed = false;
  ends.wire.change([&](int from, std::string& bytes) {
    if (from == 0 && !std::exchange(changed, true)) change(bytes);
  });
  const std::string text(100'000, 'x');
  write_all(ends.client, ends.client_socket, text);
  Fate fate;
  fate.server = read_all(ends.server, ends.server_socket, text.size());
  fate.server_complaint = ends.server.openssl_error();
  if (fate.server.ended) (void)read_all(ends.client, ends.client_socket, 1);
  fate.client_complaint = ends.client.openssl_error();
  return fate;
}

std::size_t first_record(const std::string& bytes) {
  return 5 + static_cast<unsigned char>(bytes[3]) * 256u + static_cast<unsigned char>(bytes[4]);
}

TEST(TlsStream, AChangedBitEndsTheStreamAtBothEnds) {
  for (const std::size_t place : {0u, 2u, 4u, 5u, 5000u}) {
    const Fate fate = fate_after(
        [&](std::string& bytes) { bytes.at(place) = static_cast<char>(bytes[place] ^ 1); });
    EXPECT_EQ(fate.server.text, "") << place;
    EXPECT_TRUE(fate.server_complaint) << place;
    EXPECT_TRUE(fate.client_complaint) << place;
  }
}

TEST(TlsStream, OmittedAndRepeatedRecordsEndTheStream) {
  const Fate left_out = fate_after([](std::string& bytes) { bytes.erase(0, first_record(bytes)); });
  EXPECT_EQ(left_out.server.text, "");
  EXPECT_TRUE(left_out.server_complaint);
  const Fate twice =
      fate_after([](std::string& bytes) { bytes.insert(0, bytes.substr(0, first_record(bytes))); });
  EXPECT_EQ(twice.server.text, std::string(16 * 1024, 'x'));
  EXPECT_TRUE(twice.server_complaint);
}

TEST(TlsStream, TheEndOfTheConnectionIsAnEnd) {
  Ends ends;
  ends.handshake();
  write_all(ends.client, ends.client_socket, "last words");
  ::shutdown(ends.client_socket.descriptor(), SHUT_WR);
  const Heard heard = read_all(ends.server, ends.server_socket, 1000);
  EXPECT_EQ(heard.text, "last words");
  EXPECT_TRUE(heard.ended);
  EXPECT_EQ(heard.cause, 0);
  EXPECT_FALSE(ends.server.openssl_error());
}

/// A TLS 1.3 server with a self-signed certificate and without our key.
class Impostor {
 public:
  explicit Impostor(const Socket& socket) {
    X509_set_pubkey(certificate_.get(), key_.get());
    X509_gmtime_adj(X509_getm_notBefore(certificate_.get()), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate_.get()), 3600);
    X509_sign(certificate_.get(), key_.get(), EVP_sha256());
    EXPECT_EQ(SSL_CTX_use_certificate(context_.get(), certificate_.get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_.get(), key_.get()), 1);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), socket.descriptor());
  }

  void handshake() { SSL_accept(ssl_.get()); }

 private:
  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key_{EVP_EC_gen("P-256"), &EVP_PKEY_free};
  std::unique_ptr<X509, void (*)(X509*)> certificate_{X509_new(), &X509_free};
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_{SSL_CTX_new(TLS_server_method()),
                                                        &SSL_CTX_free};
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_{nullptr, &SSL_free};
};

TEST(TlsStream, ACertificateIsNoSubstituteForTheKey) {
  Ends ends;
  Impostor impostor(ends.server_socket);
  const Deadline deadline = test::soon_enough();
  Transfer went;
  while (!went.ended && !ends.client.handshake_done() && !deadline.passed()) {
    went = ends.client.handshake();
    impostor.handshake();
  }
  EXPECT_TRUE(went.ended);
  EXPECT_FALSE(ends.client.handshake_done());
  EXPECT_THAT(ends.client.openssl_error().value_or(""), HasSubstr("certificate"));
}

TEST(SessionKey, DependsOnTheSecretAndOnEveryMessage) {
  const std::string one = "one";
  const std::string two = "two";
  const auto derive = [](const std::string& secret, const std::string& transcript) {
    return derive_session_key(secret, std::as_bytes(std::span(transcript)));
  };
  EXPECT_EQ(derive(one, two), derive(one, two));
  EXPECT_NE(derive(one, two), derive(one, one));
  EXPECT_NE(derive(one, two), derive(two, two));
}

}  // namespace
}  // namespace gradwire::net
