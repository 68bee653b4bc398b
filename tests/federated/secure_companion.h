#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/federated/remote/coordinator.h"
#include "gradwire/federated/remote/enrolment.h"
#include "gradwire/federated/remote/masked_upload.h"
#include "tests/federated/fake_server_model.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::test {

/// A coordinator of secure rounds, and the identities of its clients.
struct SecureDesk {
  SecureDesk(int clients, const federated::SecurePolicy& policy) {
    for (int i = 0; i < clients; ++i)
      identities.push_back(enrolment.enrol(fmt::format("phone-{}", i), ""));
    const auto certificate = [this](federated::ClientId id) {
      const auto* client = enrolment.find(id);
      return client != nullptr ? std::optional(client->certificate) : std::nullopt;
    };
    federated::Coordinator::Options options{
        .policy = {.ask = clients, .use = clients, .least = 2, .update_bits = 16},
        .certificates = certificate};
    options.policy.secure = federated::SecureRound{
        .policy = policy,
        .signing_keys =
            [certificate](federated::ClientId id) -> std::optional<federated::PublicKey> {
          const auto found = certificate(id);
          return found ? std::optional(found->key) : std::nullopt;
        }};
    coordinator.emplace(options, model, [](federated::ClientId) { return "phone"; });
    coordinator->begin_round(now);
  }

  TemporaryFolder folder;
  federated::Enrolment enrolment{folder / "key", federated::Enrolment::Missing::created};
  std::vector<federated::ClientIdentity> identities;
  FakeServerModel model;
  Time now{std::chrono::hours(1)};
  std::optional<federated::Coordinator> coordinator;
};

/// A client in memory that follows the protocol.
class SecureCompanion {
 public:
  SecureCompanion(SecureDesk& desk, const federated::ClientIdentity& identity)
      : desk_(desk), identity_(identity) {}

  const federated::Question& question() const { return question_; }
  std::optional<federated::Answer> ask() {
    return desk_.coordinator->reply(identity_.id, 1, round(), question_, desk_.now);
  }
  bool is_done() const { return is_done_; }
  bool counts() const { return counts_; }

  /// Asks until it has to wait, or, before it sends `last`, no more.
  void go_on(std::string_view last = "") {
    while (!is_done_ && name_of(question_) != last) {
      const auto answer = ask();
      if (!answer) return;
      take(*answer);
    }
  }
  /// Chooses the question after this answer.
  void take(const federated::Answer& answer) {
    if (std::holds_alternative<federated::Offer>(answer)) {
      question_ = federated::Fetch{};
    } else if (const auto* task = std::get_if<federated::Task>(&answer)) {
      task_ = federated::digest_of_task(task->version, task->plan);
      desk_.coordinator->on_task_sent(identity_.id, desk_.now);
      question_ = federated::Ready{1};
    } else if (const auto* order = std::get_if<federated::UploadOrder>(&answer)) {
      upload_.emplace(value_or_throw(federated::MaskedUpload::begin(
          identity_, round(), task_, order->secure().value(), {},
          contribution_of(identity_.id, order->bits, order->weight), history_)));
      question_ = value_or_throw(upload_->first());
    } else if (const auto* secure = std::get_if<federated::SecureOrder>(&answer)) {
      question_ = value_or_throw(upload_->after(*secure));
    } else {
      const auto* refusal = std::get_if<federated::Refusal>(&answer);
      EXPECT_EQ(refusal, nullptr) << refusal->reason;
      is_done_ = true;
      counts_ = std::holds_alternative<federated::Done>(answer);
    }
  }

 private:
  std::int64_t round() const { return desk_.coordinator->round_number(); }

  SecureDesk& desk_;
  federated::ClientIdentity identity_;
  federated::SecureHistory history_;
  federated::Digest task_{};
  std::optional<federated::MaskedUpload> upload_;
  federated::Question question_ = federated::CheckIn{10, -1};
  bool is_done_ = false, counts_ = false;
};

}  // namespace gradwire::test
