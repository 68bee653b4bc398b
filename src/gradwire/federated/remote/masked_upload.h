#pragma once

#include <map>
#include <memory>
#include <optional>

#include "gradwire/federated/remote/identity.h"
#include "gradwire/federated/remote/messages.h"
#include "gradwire/federated/secure/masking_client.h"

namespace gradwire::federated {

/// Demands of a client on its server.
struct SecureDemands {
  bool is_required = false;  ///< The client uploads nothing that the server could read.
  /// Less it does not accept. With a threshold of t a sum has at least t + 1 clients. With `active`
  /// the server may be a liar.
  SecurePolicy least{.neighbours = 2, .threshold = 2};

  /// Each of the three requires secure aggregation: `active`, and a least threshold, mean nothing
  /// without it.
  static SecureDemands of(bool is_required, bool active, std::optional<int> least_threshold);
};

/// A MaskingClient whose messages are questions and answers: each order of the server has one
/// question that follows. Not thread-safe.
class MaskedUpload {
 public:
  /// `task`: digest_of_task(). Fails as MaskingClient::join(), and the others as its functions.
  static Result<MaskedUpload> begin(const ClientIdentity& identity, std::int64_t round,
                                    const Digest& task, const SecurePolicy& policy,
                                    const SecureDemands& demands, Contribution contribution,
                                    SecureHistory& history);

  Result<Question> first();
  Result<Question> after(const SecureOrder& order);

 private:
  using Keys = std::map<ClientId, PublicKey>;
  MaskedUpload(MaskingClient client, std::shared_ptr<Keys> keys, const PublicKey& authority,
               Contribution contribution)
      : client_(std::move(client)),
        keys_(std::move(keys)),
        authority_(authority),
        contribution_(std::move(contribution)) {}
  Result<Question> after_roster(const SecureOrder& order);
  Result<Question> after_shares(ConstBytes message);

  MaskingClient client_;
  std::shared_ptr<Keys> keys_;  ///< The certified ones, which client_ reads.
  PublicKey authority_;
  Contribution contribution_;
};

}  // namespace gradwire::federated
