#include "gradwire/net/tls_stream.h"

#include <algorithm>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include "gradwire/base/check.h"

namespace gradwire::net {
namespace {

/// Size of OpenSSL's reads from the kernel.
constexpr std::size_t kReadBytes = 128 * 1024;

/// A pre-shared key implies a hash and thereby these: AES-128-GCM if both ends have it.
constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};

/// There is only one key, so its identity carries no information.
constexpr std::string_view kIdentity = "gradwire";

/// Returns the first of OpenSSL's queued errors.
std::string words_of_openssl() {
  const unsigned long error = ERR_get_error();
  const char* reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : "unknown error";
}

}  // namespace

/// Iterates over pieces of any size.
class TlsStream::Pieces {
 public:
  explicit Pieces(std::span<const ConstBytes> pieces) : rest_(pieces) { skip_empty(); }

  bool empty() const { return rest_.empty(); }

  /// Returns up to `max_bytes` contiguous bytes; empty only at the end.
  ConstBytes next(std::size_t max_bytes) {
    if (empty()) return {};
    const ConstBytes piece = rest_.front().subspan(begun_);
    const ConstBytes part = piece.first(std::min(max_bytes, piece.size()));
    begun_ += part.size();
    skip_empty();
    return part;
  }

 private:
  void skip_empty() {
    while (!rest_.empty() && begun_ == rest_.front().size()) {
      rest_ = rest_.subspan(1);
      begun_ = 0;
    }
  }

  std::span<const ConstBytes> rest_;
  std::size_t begun_ = 0;  ///< Offset in the first piece.
};

/// OpenSSL writes into out_, so that several records are sent together, and reads from the socket.
struct TlsStream::Hooks {
  static TlsStream& stream_of(BIO* bio) { return *static_cast<TlsStream*>(BIO_get_data(bio)); }

  static int write(BIO* bio, const char* data, std::size_t size, std::size_t* written) {
    const auto bytes = std::as_bytes(std::span(data, size));
    std::vector<std::byte>& out = stream_of(bio).out_;
    out.insert(out.end(), bytes.begin(), bytes.end());
    *written = size;
    return 1;
  }

  static int read(BIO* bio, char* data, std::size_t size, std::size_t* got) {
    TlsStream& stream = stream_of(bio);
    BIO_clear_retry_flags(bio);
    ssize_t count;
    do {
      count = ::recv(stream.descriptor_, data, size, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    *got = count > 0 ? static_cast<std::size_t>(count) : 0;
    if (count > 0) return 1;
    if (count < 0 && is_not_now(errno)) {
      BIO_set_retry_read(bio);
    } else {
      stream.end_ = Transfer{.ended = true, .cause = count == 0 ? 0 : errno};
    }
    return 0;
  }

  static long control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static SSL_SESSION* session_of(SSL* ssl) {
    const auto* stream = static_cast<const TlsStream*>(SSL_get_app_data(ssl));
    SSL_SESSION* session = SSL_SESSION_new();
    const auto* key = reinterpret_cast<const unsigned char*>(stream->key_.data());
    GRADWIRE_CHECK(session != nullptr &&
                   SSL_SESSION_set1_master_key(session, key, stream->key_.size()) == 1 &&
                   SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kAes128GcmSha256)) == 1 &&
                   SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1);
    return session;
  }

  static int use_key(SSL* ssl, const EVP_MD* /*hash*/, const unsigned char** identity,
                     std::size_t* size, SSL_SESSION** session) {
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *size = kIdentity.size();
    *session = session_of(ssl);
    return 1;
  }

  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t size,
                      SSL_SESSION** session) {
    const std::string_view given(reinterpret_cast<const char*>(identity), size);
    *session = given == kIdentity ? session_of(ssl) : nullptr;
    return 1;
  }

  static BIO_METHOD* make_method() {
    BIO_METHOD* method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "gradwire");
    GRADWIRE_CHECK(method != nullptr && BIO_meth_set_write_ex(method, &Hooks::write) == 1 &&
                   BIO_meth_set_read_ex(method, &Hooks::read) == 1 &&
                   BIO_meth_set_ctrl(method, &Hooks::control) == 1);
    return method;
  }

  static SSL_CTX* make_context() {
    SSL_CTX* context = SSL_CTX_new(TLS_method());
    GRADWIRE_CHECK(context != nullptr &&
                   SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                   SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                   SSL_CTX_set_ciphersuites(context, kCiphers) == 1 &&
                   SSL_CTX_set_num_tickets(context, 0) == 1);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_psk_use_session_callback(context, &Hooks::use_key);
    SSL_CTX_set_psk_find_session_callback(context, &Hooks::find_key);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, kReadBytes);
    return context;
  }
};

void TlsStream::Deleter::operator()(bio_method_st* method) const {
  BIO_meth_free(method);
}

void TlsStream::Deleter::operator()(ssl_ctx_st* context) const {
  SSL_CTX_free(context);
}

void TlsStream::Deleter::operator()(ssl_st* ssl) const {
  SSL_free(ssl);
}

TlsStream::TlsStream(int descriptor, End end, const SessionKey& key, std::uint32_t records_per_key)
    : descriptor_(descriptor),
      key_(key),
      records_per_key_(records_per_key),
      method_(Hooks::make_method()),
      context_(Hooks::make_context()),
      ssl_(SSL_new(context_.get())) {
  BIO* bio = BIO_new(method_.get());
  GRADWIRE_CHECK(ssl_ && bio != nullptr && SSL_set_app_data(ssl_.get(), this) == 1);
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  if (end == End::client) {
    SSL_set_connect_state(ssl_.get());
    // No certificate is trusted, so only the key admits a server. A server has no certificate, so
    // it cannot admit a client without the key.
    SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
  } else {
    SSL_set_accept_state(ssl_.get());
  }
}

TlsStream::~TlsStream() = default;

short TlsStream::wanted_events() const {
  return pending() > 0 ? POLLOUT : POLLIN;
}

Transfer TlsStream::handshake() {
  if (!handshake_done_) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    if (result != 1) {
      const Transfer end = ended(result);
      // Sends the alert, or the next handshake message.
      const Transfer sent = send_pending();
      return end.ended ? end : sent;
    }
    if (SSL_session_reused(ssl_.get()) != 1) {
      openssl_error_ = "the peer has not used the job's key";
      end_ = Transfer{.ended = true};
      return *end_;
    }
    handshake_done_ = true;
  }
  return send_pending();
}

/// Returns the state of the stream after a call that did not succeed.
Transfer TlsStream::ended(int result) {
  const int what = SSL_get_error(ssl_.get(), result);
  if (what == SSL_ERROR_WANT_READ) return {};
  if (!end_) {
    if (what != SSL_ERROR_ZERO_RETURN) openssl_error_ = words_of_openssl();
    end_ = Transfer{.ended = true};
  }
  return *end_;
}

/// Passes as much of out_ to the kernel as it takes.
Transfer TlsStream::send_pending() {
  Transfer sent;
  while (pending() > 0) {
    const ssize_t count =
        ::send(descriptor_, out_.data() + sent_, pending(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && is_not_now(errno)) return sent;
    if (count < 0) return {.bytes = sent.bytes, .ended = true, .cause = errno};
    sent.bytes += static_cast<std::size_t>(count);
    sent_ += static_cast<std::size_t>(count);
  }
  out_.clear();
  sent_ = 0;
  return sent;
}

/// Encrypts about kBatchBytes. Returns the number of bytes encrypted.
std::size_t TlsStream::encrypt(Pieces& pieces) {
  std::size_t total = 0;
  ERR_clear_error();
  while (out_.size() < kBatchBytes) {
    const ConstBytes part = pieces.next(kRecordBytes);
    if (part.empty()) break;
    if (++records_ > records_per_key_) {
      GRADWIRE_CHECK(SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
      records_ = 1;
    }
    std::size_t written = 0;
    const int result = SSL_write_ex(ssl_.get(), part.data(), part.size(), &written);
    if (result != 1) {
      (void)ended(result);
      break;
    }
    total += written;
  }
  return total;
}

Transfer TlsStream::write(std::span<const ConstBytes> bytes) {
  Pieces pieces(bytes);
  Transfer taken;
  while (!pieces.empty()) {
    Transfer sent = send_pending();
    if (!sent.ended && pending() == 0) {
      if (std::exchange(held_, false)) taken.bytes += pieces.next(1).size();
      const std::size_t encrypted = encrypt(pieces);
      sent = send_pending();
      held_ = encrypted > 0 && pending() > 0;
      taken.bytes += encrypted - (held_ ? 1 : 0);
    }
    if (sent.ended || openssl_error_) {
      return {.bytes = taken.bytes, .ended = true, .cause = sent.cause};
    }
    if (pending() > 0) return taken;
  }
  return taken;
}

Transfer TlsStream::read(std::span<const Bytes> pieces) {
  Transfer got;
  for (Bytes piece : pieces) {
    while (!piece.empty()) {
      std::size_t count = 0;
      ERR_clear_error();
      const int result = end_ ? 0 : SSL_read_ex(ssl_.get(), piece.data(), piece.size(), &count);
      if (result != 1) {
        const Transfer end = end_ ? *end_ : ended(result);
        if (end.ended) flush();  // Sends the alert to the peer.
        return {.bytes = got.bytes, .ended = end.ended, .cause = end.cause};
      }
      got.bytes += count;
      piece = piece.subspan(count);
    }
  }
  return got;
}

std::size_t TlsStream::undecryptable_without(std::size_t unacknowledged) const {
  const std::size_t missing = unacknowledged + pending();
  return missing == 0 ? 0 : missing + kRecordBytes;
}

bool TlsStream::has_unread() const {
  return SSL_has_pending(ssl_.get()) == 1;
}

}  // namespace gradwire::net
