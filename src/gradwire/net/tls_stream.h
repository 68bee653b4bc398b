#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/net/session_key.h"
#include "gradwire/net/socket.h"

struct bio_method_st;
struct ssl_ctx_st;
struct ssl_st;

namespace gradwire {

/// The bytes of one connection, encrypted and authenticated: TLS 1.3 (RFC 8446) by OpenSSL, over a
/// non-blocking socket.
///
/// Who the other end is follows from the session key, as a pre-shared key with a fresh
/// Diffie-Hellman exchange (psk_dhe_ke): there are no certificates, and what was recorded cannot be
/// read with a secret that is stolen later. Whatever is changed, left out or put in on the way ends
/// the stream.
///
/// Records are encrypted some ahead of what the kernel takes. So that the owner, who is asked to
/// write again when there is room, always has something left to write, the last byte of what the
/// kernel has not taken yet is not counted as taken: the next write begins with that byte. One
/// caller at a time.
class TlsStream {
 public:
  /// Which end of the connection this is: the one that connected, or the one that accepted.
  enum class End : std::uint8_t { client, server };

  /// Most that one record holds (RFC 8446, 5.1): it can be read only when all of it is there.
  static constexpr std::size_t kRecordBytes = 16 * 1024;

  /// Encrypted at once, so that one system call takes several records; little enough to stay in the
  /// cache, and that an urgent operation does not wait long behind it.
  static constexpr std::size_t kBatchBytes = 4 * kRecordBytes;

  /// A key of AES-GCM shall not encrypt more than 2^24.5 records (RFC 8446, 5.5): then comes the
  /// next one. These are some 64 GB.
  static constexpr std::uint32_t kRecordsAKey = 1u << 22;

  /// `descriptor` of a connected socket, which must outlive this. The key must be used for this
  /// connection alone.
  TlsStream(int descriptor, End end, const SessionKey& key,
            std::uint32_t records_a_key = kRecordsAKey);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  /// Goes as far as it can without waiting, until greeted(). The answer, as that of the others
  /// below, has ended = true if the stream is of no use any more.
  Transfer greet();
  bool greeted() const { return greeted_ && pending() == 0; }

  /// What greet() waits for, as poll(2)'s events.
  short wanted_events() const;

  /// Hands `pieces`, in order, to the stream; bytes: those taken. If not all are, the socket
  /// becomes writable later, and the next call must go on with those that were not.
  Transfer write(std::span<const ConstBytes> pieces);

  /// Fills `pieces`, in order; bytes: those that came, also if the stream then ended. If not all
  /// are full, the socket becomes readable when there is more.
  Transfer read(std::span<const Bytes> pieces);

  /// Whether bytes may have come that are not read and of which the socket will not tell.
  bool has_unread() const;

  /// What has been encrypted, but not taken by the kernel, in bytes on the wire.
  std::size_t pending() const { return out_.size() - sent_; }

  /// Of the bytes written, how many of the last the other end may not be able to read as long as
  /// `unacknowledged` bytes on the wire have not reached it.
  std::size_t useless_without(std::size_t unacknowledged) const;

  /// What OpenSSL found wrong, if that is why the stream ended: "decryption failed or bad record
  /// mac". Nothing if the connection ended below it.
  const std::optional<std::string>& complaint() const { return complaint_; }

  /// Hands what is pending to the kernel if it has room: for who will not write again.
  void flush() { (void)send_pending(); }

 private:
  class Pieces;
  struct Deleter {
    void operator()(bio_method_st* method) const;
    void operator()(ssl_ctx_st* context) const;
    void operator()(ssl_st* ssl) const;
  };
  struct Hooks;  // OpenSSL's calls of us.

  Transfer send_pending();
  std::size_t encrypt(Pieces& pieces);
  Transfer ended(int result);

  int descriptor_;
  SessionKey key_;
  std::uint32_t records_a_key_;
  std::uint32_t records_ = 0;  ///< With the present key.
  std::unique_ptr<bio_method_st, Deleter> method_;
  std::unique_ptr<ssl_ctx_st, Deleter> context_;
  std::unique_ptr<ssl_st, Deleter> ssl_;
  std::vector<std::byte> out_;  ///< Records; those before sent_ are the kernel's.
  std::size_t sent_ = 0;
  bool held_ = false;  ///< The last byte in out_ has not been counted as taken.
  bool greeted_ = false;
  std::optional<Transfer> end_;  ///< How reading ended.
  std::optional<std::string> complaint_;
};

}  // namespace gradwire
