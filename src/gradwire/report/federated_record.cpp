#include "gradwire/report/federated_record.h"

#include "gradwire/base/json_fields.h"

namespace gradwire::report {
namespace {

constexpr double kMostAmount = 9e15;
constexpr int kMostCount = 1 << 30;

double amount_in(JsonFields& fields, std::string_view key) {
  return fields.number(key, 0, kMostAmount);
}

int count_in(JsonFields& fields, std::string_view key) {
  return fields.integer(key, 0, kMostCount);
}

double share_in(JsonFields& fields, std::string_view key) {
  return fields.number(key, 0, 1);
}

double accuracy_in(JsonFields& fields, std::string_view key) {
  const double value = fields.number_or_nan(key);
  if (value < 0 || value > 1) fields.refuse(key, "a number from 0 to 1, or null");
  return value;
}

FederatedRecord::Round round_of(JsonFields& fields) {
  return {.number = count_in(fields, "round"),
          .accuracy = accuracy_in(fields, "accuracy"),
          .loss = fields.number_or_nan("loss"),
          .training_loss = fields.number_or_nan("training_loss"),
          .asked = count_in(fields, "asked"),
          .ready = count_in(fields, "ready"),
          .used = count_in(fields, "used"),
          .dropped = count_in(fields, "dropped"),
          .is_abandoned = fields.flag("abandoned"),
          .up_bytes = amount_in(fields, "up_bytes"),
          .down_bytes = amount_in(fields, "down_bytes"),
          .seconds = amount_in(fields, "seconds")};
}

FederatedRecord::Client client_of(JsonFields& fields) {
  return {.samples = count_in(fields, "samples"),
          .eligible = count_in(fields, "eligible"),
          .asked = count_in(fields, "asked"),
          .counted = count_in(fields, "counted"),
          .accuracy = accuracy_in(fields, "accuracy"),
          .compute_seconds = amount_in(fields, "compute_seconds"),
          .up_bytes = amount_in(fields, "up_bytes"),
          .down_bytes = amount_in(fields, "down_bytes")};
}

FederatedRecord::DeviceClass class_of(JsonFields& fields) {
  return {.devices = fields.text("devices"),
          .clients = count_in(fields, "clients"),
          .sample_share = share_in(fields, "sample_share"),
          .counted_share = share_in(fields, "counted_share"),
          .accuracy = accuracy_in(fields, "accuracy"),
          .compute_seconds = amount_in(fields, "compute_seconds"),
          .up_bytes = amount_in(fields, "up_bytes"),
          .down_bytes = amount_in(fields, "down_bytes")};
}

FederatedRecord federated_of(JsonFields fields) {
  FederatedRecord record;
  for (auto& round : fields.objects("rounds", 1)) record.rounds.push_back(round_of(round));
  JsonFields fairness = fields.object("fairness");
  record.jain = share_in(fairness, "jain");
  record.mean_accuracy = accuracy_in(fairness, "mean_accuracy");
  record.worst_tenth_accuracy = accuracy_in(fairness, "worst_tenth_accuracy");
  for (auto& one : fairness.objects("classes", 0)) record.classes.push_back(class_of(one));
  for (auto& client : fields.objects("clients", 0)) record.clients.push_back(client_of(client));
  return record;
}

}  // namespace

Result<FederatedRecord> parse_federated(std::string_view text) {
  return read_json_fields(text, "result", federated_of);
}

}  // namespace gradwire::report
