#include "gradwire/report/federated_record.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/report/federated_data.h"

namespace gradwire::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using FederatedJson = nlohmann::ordered_json;
using Pointer = FederatedJson::json_pointer;

FederatedJson some_result() {
  return FederatedJson::parse(R"({
    "rounds": [
      {"round": 1, "accuracy": 0.25, "loss": 2.5, "asked": 4, "ready": 3, "used": 2, "stopped": 1,
       "dropped": 1, "abandoned": false, "up_bytes": 100, "down_bytes": 400, "seconds": 10.5,
       "training_loss": 2.75},
      {"round": 2, "accuracy": null, "loss": null, "asked": 4, "ready": 1, "used": 0, "stopped": 0,
       "dropped": 3, "abandoned": true, "up_bytes": 0, "down_bytes": 400, "seconds": 60,
       "training_loss": null, "reason": "too few"}],
    "fairness": {"jain": 0.75, "mean_accuracy": 0.5, "worst_tenth_accuracy": 0.125, "classes": [
      {"devices": "slow", "clients": 1, "sample_share": 0.75, "counted_share": 0.25,
       "accuracy": null, "compute_seconds": 9.5, "up_bytes": 50, "down_bytes": 200}]},
    "clients": [
      {"samples": 30, "eligible": 2, "asked": 2, "counted": 1, "accuracy": 0.5,
       "compute_seconds": 4.5, "up_bytes": 50, "down_bytes": 200}],
    "elapsed_s": 3})");
}

TEST(FederatedRecord, HasTheResultOfASimulation) {
  const auto record = parse_federated(some_result().dump());
  ASSERT_TRUE(record.has_value()) << record.error().message;
  ASSERT_EQ(record->rounds.size(), 2);
  const auto& first = record->rounds[0];
  EXPECT_EQ(first.number, 1);
  EXPECT_EQ(first.accuracy, 0.25);
  EXPECT_EQ(first.loss, 2.5);
  EXPECT_EQ(first.training_loss, 2.75);
  EXPECT_EQ((std::vector{first.asked, first.ready, first.used, first.dropped}),
            (std::vector{4, 3, 2, 1}));
  EXPECT_EQ(first.up_bytes, 100);
  EXPECT_EQ(first.down_bytes, 400);
  EXPECT_EQ(first.seconds, 10.5);
  EXPECT_FALSE(first.is_abandoned);
  EXPECT_TRUE(record->rounds[1].is_abandoned);
  EXPECT_TRUE(std::isnan(record->rounds[1].accuracy));
  EXPECT_EQ(record->jain, 0.75);
  EXPECT_EQ(record->mean_accuracy, 0.5);
  EXPECT_EQ(record->worst_tenth_accuracy, 0.125);
  ASSERT_EQ(record->classes.size(), 1);
  EXPECT_EQ(record->classes[0].devices, "slow");
  EXPECT_EQ(record->classes[0].counted_share, 0.25);
  EXPECT_TRUE(std::isnan(record->classes[0].accuracy));
  ASSERT_EQ(record->clients.size(), 1);
  EXPECT_EQ(record->clients[0].samples, 30);
  EXPECT_EQ(record->clients[0].counted, 1);
  EXPECT_EQ(record->clients[0].compute_seconds, 4.5);
}

/// The error of a result whose value at `place` is `bad`; without the key if `bad` is discarded.
std::string error_with(const std::string& place, const FederatedJson& bad) {
  FederatedJson result = some_result();
  const Pointer pointer(place);
  if (bad.is_discarded())
    result[pointer.parent_pointer()].erase(pointer.back());
  else
    result[pointer] = bad;
  const auto record = parse_federated(result.dump());
  if (record.has_value()) return "";
  EXPECT_EQ(record.error().kind, ErrorKind::invalid_argument);
  return record.error().message;
}

TEST(FederatedRecord, RefusesEachKeyThatIsMissing) {
  const FederatedJson missing(FederatedJson::value_t::discarded);
  const std::vector<std::pair<std::string, std::string>> objects = {
      {"/rounds/1", "rounds[1]."},
      {"/fairness/classes/0", "fairness.classes[0]."},
      {"/clients/0", "clients[0]."},
      {"/fairness", "fairness."},
      {"", ""}};
  const FederatedJson result = some_result();
  for (const auto& [place, path] : objects) {
    for (const auto& [key, value] : result[Pointer(place)].items()) {
      if (key == "stopped" || key == "reason" || key == "elapsed_s") continue;  // Not shown.
      EXPECT_THAT(error_with(place + "/" + key, missing), HasSubstr(path + key + " is missing"));
    }
  }
}

TEST(FederatedRecord, RefusesEachKeyThatIsWrong) {
  const FederatedJson none = FederatedJson::array();
  EXPECT_THAT(error_with("/rounds", none), HasSubstr("rounds"));
  for (const char* key : {"round", "asked", "ready", "used", "dropped"}) {
    EXPECT_THAT(error_with("/rounds/0/" + std::string(key), -1),
                AllOf(HasSubstr("rounds[0]." + std::string(key)), HasSubstr("a whole number")));
  }
  for (const char* key : {"up_bytes", "down_bytes", "seconds"}) {
    EXPECT_THAT(error_with("/rounds/0/" + std::string(key), nullptr),
                AllOf(HasSubstr("rounds[0]." + std::string(key)), HasSubstr("a number")));
  }
  for (const char* key : {"loss", "training_loss"})
    EXPECT_THAT(error_with("/rounds/0/" + std::string(key), "x"), HasSubstr("a number"));
  EXPECT_THAT(error_with("/rounds/0/abandoned", 0), HasSubstr("true or false"));
  for (const char* place :
       {"/rounds/0/accuracy", "/fairness/mean_accuracy", "/fairness/worst_tenth_accuracy",
        "/fairness/classes/0/accuracy", "/clients/0/accuracy"}) {
    EXPECT_THAT(error_with(place, 83.5), HasSubstr("a number from 0 to 1, or null")) << place;
    EXPECT_EQ(error_with(place, nullptr), "") << place;
  }
  EXPECT_THAT(error_with("/fairness/jain", 1.5), HasSubstr("fairness.jain is 1.5"));
  EXPECT_THAT(error_with("/fairness/classes/0/devices", 1), HasSubstr("a string"));
  EXPECT_THAT(error_with("/clients", 3), HasSubstr("clients is 3"));
  for (const char* key : {"samples", "eligible", "asked", "counted"})
    EXPECT_THAT(error_with("/clients/0/" + std::string(key), 0.5), HasSubstr("a whole number"));
  EXPECT_FALSE(parse_federated("[1]").has_value());
  EXPECT_FALSE(parse_federated("hello").has_value());
}

// --- figures ---

FederatedJson figures_of(FederatedRecord record) {
  return federated_json({.name = "a", .source = "a.json", .record = std::move(record)});
}

const double kUnmeasured = std::nan("");

TEST(FederatedFigures, SumRounds) {
  FederatedRecord record;
  record.rounds = {{.number = 1,
                    .accuracy = 0.25,
                    .loss = 2.5,
                    .training_loss = kUnmeasured,
                    .asked = 4,
                    .used = 2,
                    .up_bytes = 100,
                    .down_bytes = 400,
                    .seconds = 10},
                   {.number = 2,
                    .accuracy = kUnmeasured,
                    .loss = kUnmeasured,
                    .training_loss = kUnmeasured,
                    .asked = 4,
                    .is_abandoned = true,
                    .down_bytes = 300,
                    .seconds = 60},
                   {.number = 3,
                    .accuracy = 0.75,
                    .loss = 1.5,
                    .training_loss = kUnmeasured,
                    .asked = 8,
                    .used = 4,
                    .up_bytes = 200,
                    .down_bytes = 500,
                    .seconds = 20},
                   {.number = 4,
                    .accuracy = 0.5,
                    .loss = 1.75,
                    .training_loss = kUnmeasured,
                    .asked = 4,
                    .used = 2,
                    .up_bytes = 100,
                    .down_bytes = 400,
                    .seconds = 10}};
  const auto rounds = figures_of(record)["rounds"];
  EXPECT_EQ(rounds["committed"], 3);
  EXPECT_EQ(rounds["abandoned"], 1);
  EXPECT_EQ(rounds["seconds"], 100);
  EXPECT_EQ(rounds["up_bytes"], 400);
  EXPECT_EQ(rounds["down_bytes"], 1600);
  EXPECT_EQ(rounds["accuracy"], FederatedJson::parse(R"({"count": 3, "first": 0.25, "last": 0.5,
                                                         "best": 0.75, "best_round": 3})"));
  EXPECT_EQ(rounds["loss"]["best"], 1.5) << "the lowest";
  EXPECT_TRUE(rounds["training_loss"].is_null()) << "not measured, not shown";
  EXPECT_EQ(rounds["asked"]["median"], 4);
  EXPECT_EQ(rounds["asked"]["most"], 8);
  EXPECT_EQ(rounds["curve"]["round"], FederatedJson({1, 2, 3, 4}));
  EXPECT_EQ(rounds["curve"]["accuracy"], FederatedJson({0.25, nullptr, 0.75, 0.5}));
  EXPECT_EQ(rounds["curve"]["abandoned"], FederatedJson({0, 1, 0, 0}));
  EXPECT_EQ(rounds["curve"]["used"], FederatedJson({2, 0, 4, 2}));
}

TEST(FederatedFigures, ManyRoundsAreMeansOfIntervals) {
  FederatedRecord record;
  for (int i = 1; i <= 1000; ++i) {
    record.rounds.push_back({.number = i,
                             .accuracy = i % 4 == 0 ? 0.001 * i : kUnmeasured,
                             .asked = i,
                             .is_abandoned = i % 10 == 0});
  }
  const auto rounds = figures_of(record)["rounds"];
  const auto& curve = rounds["curve"];
  ASSERT_EQ(curve["round"].size(), 500);
  EXPECT_EQ(curve["round"][0], 1.5);
  EXPECT_EQ(curve["asked"][1], 3.5);
  EXPECT_TRUE(curve["accuracy"][0].is_null());
  EXPECT_EQ(curve["accuracy"][1], 0.004);
  int abandoned = 0;
  for (const int count : curve["abandoned"]) abandoned += count;
  EXPECT_EQ(abandoned, 100);
  EXPECT_EQ(rounds["accuracy"]["last"], 1.0) << "of the round itself";
}

FederatedRecord::Client client(int samples, int eligible, int counted, double accuracy = NAN) {
  return {.samples = samples,
          .eligible = eligible,
          .asked = counted + 1,
          .counted = counted,
          .accuracy = accuracy,
          .compute_seconds = 0.5 * counted,
          .up_bytes = 10.0 * counted,
          .down_bytes = 20.0 * counted};
}

TEST(FederatedFigures, GroupClientsAtTheQuartilesOfTheirSamples) {
  FederatedRecord record{.rounds = {{}}, .jain = 0.625};
  record.clients = {client(80, 9, 1),  client(10, 10, 4), client(20, 10, 3), client(60, 10, 0),
                    client(30, 10, 2), client(40, 10, 2), client(50, 10, 2), client(70, 10, 6)};
  const auto figures = figures_of(record);
  EXPECT_EQ(figures["jain"], 0.625);
  EXPECT_EQ(figures["clients"], 8);
  const auto& part = figures["participation"];
  EXPECT_EQ(part["never"], 1);
  EXPECT_EQ(part["counted"]["median"], 2);
  EXPECT_EQ(part["counted"]["upper_quartile"], 3.25);  // numpy.quantile([...], 0.75)
  EXPECT_EQ(part["eligible"]["least"], 9);
  const auto& groups = part["groups"];
  ASSERT_EQ(groups.size(), 4);  // Quartiles at 27.5, 45 and 62.5 samples.
  EXPECT_EQ(groups[0], FederatedJson::parse(R"({"least": 10, "most": 20, "clients": 2,
      "sample_share": 0.0833333, "counted_share": 0.35, "eligible": 10, "asked": 4.5,
      "counted": 3.5})"));
  EXPECT_EQ(groups[3]["least"], 70);
  EXPECT_EQ(groups[3]["eligible"], 9.5);
  EXPECT_EQ(groups[3]["counted_share"], 0.35);
  EXPECT_EQ(figures["cost"]["compute_seconds"]["most"], 3);
  EXPECT_EQ(figures["cost"]["down_bytes"]["median"], 40);
  EXPECT_TRUE(figures["accuracy"].is_null());
  EXPECT_TRUE(figures["accuracy_histogram"].is_null());
}

TEST(FederatedFigures, EqualClientsAreOneGroup) {
  FederatedRecord record{.rounds = {{}}};
  for (int i = 0; i < 10'000; ++i) record.clients.push_back(client(0, 1, 0));
  const auto figures = figures_of(record);
  const auto& groups = figures["participation"]["groups"];
  ASSERT_EQ(groups.size(), 1);
  EXPECT_EQ(groups[0]["clients"], 10'000);
  EXPECT_TRUE(groups[0]["sample_share"].is_null()) << "a share of nothing";
  EXPECT_LT(figures.dump().size(), 3000) << "whatever the number of clients";
}

TEST(FederatedFigures, OmitWhatIsUnknown) {
  const auto figures = figures_of({.rounds = {{.accuracy = kUnmeasured}},
                                   .mean_accuracy = kUnmeasured,
                                   .worst_tenth_accuracy = kUnmeasured});
  EXPECT_TRUE(figures["participation"].is_null());
  EXPECT_TRUE(figures["cost"].is_null());
  EXPECT_TRUE(figures["mean_accuracy"].is_null());
  EXPECT_TRUE(figures["worst_tenth_accuracy"].is_null());
  EXPECT_TRUE(figures["rounds"]["accuracy"].is_null());
  EXPECT_TRUE(figures["classes"].empty());
}

TEST(FederatedFigures, SpreadAccuracies) {
  FederatedRecord record{.rounds = {{}}, .mean_accuracy = 0.625, .worst_tenth_accuracy = 0.25};
  record.clients = {client(1, 1, 1, 1.0), client(1, 1, 1, 0.25), client(1, 1, 1),
                    client(1, 1, 1, 0.5), client(1, 1, 1, 0.75)};
  record.classes = {{.devices = "slow", .clients = 5, .sample_share = 1.0 / 3, .accuracy = 0.5}};
  const auto figures = figures_of(record);
  EXPECT_EQ(figures["accuracy"]["count"], 4) << "of those that were tested";
  EXPECT_EQ(figures["accuracy"]["median"], 0.625);
  EXPECT_EQ(figures["worst_tenth_accuracy"], 0.25);
  const auto& bars = figures["accuracy_histogram"];
  ASSERT_EQ(bars["counts"].size(), 20);
  EXPECT_EQ(bars["counts"][19], 1) << "all correct: in the last bar";
  EXPECT_EQ(bars["counts"][5], 1);
  EXPECT_EQ(bars["above"], 0);
  EXPECT_EQ(figures["classes"][0]["sample_share"], 0.333333);
}

}  // namespace
}  // namespace gradwire::report
