#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/net/payload_checksum.h"
#include "gradwire/net/socket.h"

struct bio_method_st;
struct ssl_ctx_st;
struct ssl_st;

namespace gradwire::net {

/// Encrypts and authenticates the bytes of one connection: TLS 1.3 (RFC 8446) by OpenSSL, over a
/// non-blocking socket.
///
/// The session key authenticates the peer, as a pre-shared key with an ephemeral Diffie-Hellman
/// exchange (psk_dhe_ke). There are no certificates, and recorded traffic cannot be decrypted with
/// a secret that is stolen later (forward secrecy). Any modification, omission or insertion on the
/// path ends the stream.
///
/// Records are encrypted ahead of the kernel's send buffer. The last byte of unsent records is not
/// counted as taken, so that the owner, which is notified when the socket is writable, always has a
/// byte left to write; its next write must begin with that byte. Not thread-safe.
class TlsStream {
 public:
  /// This end's role: client is the end that connected, server the one that accepted.
  enum class End : std::uint8_t { client, server };

  /// Maximum payload of one record (RFC 8446, 5.1). A record can be read only when it is complete.
  static constexpr std::size_t kRecordBytes = 16 * 1024;

  /// Bytes encrypted at once, so that one system call sends several records. Small enough to stay
  /// in the cache and not to delay a high-priority operation.
  static constexpr std::size_t kBatchBytes = 4 * kRecordBytes;

  /// Records per key. A key of AES-GCM should encrypt at most 2^24.5 records (RFC 8446, 5.5); the
  /// key is updated earlier, after about 64 GB.
  static constexpr std::uint32_t kRecordsPerKey = 1u << 22;

  /// `descriptor` of a connected socket, which must outlive this object. The key must be used for
  /// this connection only.
  TlsStream(int descriptor, End end, const SessionKey& key,
            std::uint32_t records_per_key = kRecordsPerKey);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  /// Advances the TLS handshake without waiting, until handshake_done(). The result, as that of the
  /// functions below, has ended = true if the stream is unusable.
  Transfer handshake();
  bool handshake_done() const { return handshake_done_ && pending() == 0; }

  /// Returns the poll(2) events for which handshake() waits.
  short wanted_events() const;

  /// Writes `pieces`, in order; bytes: the number taken. If some are not taken, the socket becomes
  /// writable later, and the next call must continue with them.
  Transfer write(std::span<const ConstBytes> pieces);
  /// Transport::abandon_write(): the byte that write() has encrypted and not counted.
  std::size_t abandon_write() { return std::exchange(held_, false) ? 1 : 0; }

  /// Fills `pieces`, in order; bytes: the number received, even if the stream then ended. If some
  /// are not filled, the socket becomes readable when there is more.
  Transfer read(std::span<const Bytes> pieces);

  /// Returns true if there may be unread bytes that the socket will not report as readable.
  bool has_unread() const;

  /// Returns the encrypted bytes that the kernel has not taken, in bytes on the wire.
  std::size_t pending() const { return out_.size() - sent_; }

  /// Returns how many of the last written bytes the peer may be unable to decrypt until
  /// `unacknowledged` bytes on the wire have reached it.
  std::size_t undecryptable_without(std::size_t unacknowledged) const;

  /// Returns OpenSSL's error if it ended the stream, such as "decryption failed or bad record mac";
  /// nullopt if the connection below ended.
  const std::optional<std::string>& openssl_error() const { return openssl_error_; }

  /// Passes pending bytes to the kernel as far as it has room, for an owner that will not write
  /// again.
  void flush() { (void)send_pending(); }

 private:
  class Pieces;
  struct Deleter {
    void operator()(bio_method_st* method) const;
    void operator()(ssl_ctx_st* context) const;
    void operator()(ssl_st* ssl) const;
  };
  struct Hooks;  // Callbacks for OpenSSL.

  Transfer send_pending();
  std::size_t encrypt(Pieces& pieces);
  Transfer ended(int result);

  int descriptor_;
  SessionKey key_;
  std::uint32_t records_per_key_;
  std::uint32_t records_ = 0;  ///< Records encrypted with the current key.
  std::unique_ptr<bio_method_st, Deleter> method_;
  std::unique_ptr<ssl_ctx_st, Deleter> context_;
  std::unique_ptr<ssl_st, Deleter> ssl_;
  std::vector<std::byte> out_;  ///< Records; those before sent_ have been taken by the kernel.
  std::size_t sent_ = 0;
  bool held_ = false;  ///< The last byte in out_ has not been counted as taken.
  bool handshake_done_ = false;
  std::optional<Transfer> end_;  ///< Set when reading has ended.
  std::optional<std::string> openssl_error_;
};

}  // namespace gradwire::net
