#include "gradwire/train/federated/served_model.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/log.h"
#include "gradwire/recipe/federated_run.h"
#include "gradwire/recipe/federated_serve.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

/// The files of a server's folder.
namespace gradwire::test {
namespace {

using recipe::FederatedConfig, recipe::FederatedUse;
using testing::HasSubstr;

struct ServedModelFiles : testing::Test {
  static FederatedConfig config(const std::vector<std::string>& settings = {}) {
    auto parsed = nlohmann::ordered_json::parse(R"({
      "model": {"name": "mlp", "hidden": 4}, "rounds": 2,
      "round": {"ask": 3, "use": 3, "least": 2}, "update": {"bits": 8}})");
    for (const std::string& setting : settings) recipe::apply_setting(parsed, setting);
    return recipe::parse_federated_config(parsed, FederatedUse::serve);
  }
  std::unique_ptr<ServedModel> serve(bool resumes, const std::vector<std::string>& settings = {}) {
    return recipe::make_served_model(config(settings),
                                     {.folder = folder.path(), .resumes = resumes});
  }
  std::string error_of_resume(const std::string& setting) {
    return error_of([&] { serve(true, {setting}); });
  }

  TemporaryFolder folder;
};

TEST_F(ServedModelFiles, AreGoneOnWithByTheSameConfigurationAlone) {
  serve(false)->on_stop();
  EXPECT_THAT(error_of_resume("seed=99"), HasSubstr("seed is not given there, and 99 here"));
  EXPECT_THAT(error_of_resume("local.learning_rate=7"), HasSubstr("local.learning_rate"));
  EXPECT_THAT(error_of_resume("update.bits=4"), HasSubstr("update.bits is 8 there, and 4 here"));
  EXPECT_THAT(error_of_resume("round.use=2"), HasSubstr("round.use is 3 there, and 2 here"));
  EXPECT_THAT(error_of_resume("secure.dropping=0"), HasSubstr("secure.dropping is not given"));
  EXPECT_EQ(error_of_resume("rounds=9"), "no error");
}

TEST_F(ServedModelFiles, OfAnEarlierVersionAreGoneOnWithAndAWarning) {
  const TrainableModule module = recipe::make_module(config());
  const FederatedTensors tensors = federated_tensors(*module.module);
  GlobalModel(tensors.parameters, tensors.averaged, server_options(recipe::plan_of(config())))
      .save(folder / ServedModel::kCheckpoint,
            R"({"begun": 5, "name": 4, "clients": [],
                "proximal": {"mu": 0, "falls": 0, "last_loss": null}})");
  std::string log;
  set_log_sink([&](std::string_view line) { log += line; });
  const auto model = serve(true, {"seed=99"});
  set_log_sink({});
  EXPECT_EQ(model->first_round(), 6);
  EXPECT_THAT(log, HasSubstr("is of an earlier version, which wrote no configuration"));
}

TEST_F(ServedModelFiles, HaveACheckpointBeforeTheFirstRoundEnds) {
  serve(false);  // It begins no round, as if its port were in use.
  EXPECT_THAT(error_of([&] { serve(true); }), HasSubstr("leave out --resume"));
  const auto first = serve(false);
  EXPECT_EQ(first->begin(first->first_round()).version, 0);
  // It is killed.
  EXPECT_THAT(error_of([&] { serve(false); }), HasSubstr("go on with --resume"));
  const auto again = serve(true);
  EXPECT_EQ(again->first_round(), 2);
  EXPECT_TRUE(std::ranges::equal(again->model().values(), first->model().values()));
}

TEST_F(ServedModelFiles, ThatCannotBeWrittenAreNamedWithWhatToDo) {
  const auto model = serve(false);
  model->begin(1);
  std::filesystem::remove(folder / ServedModel::kCheckpoint);
  std::filesystem::create_directory(folder / ServedModel::kCheckpoint);
  EXPECT_THAT(error_of([&] { model->on_stop(); }),
              testing::AllOf(HasSubstr("checkpoint.safetensors cannot be written: "),
                             HasSubstr("; free some space, then go on with --resume")));
}

TEST_F(ServedModelFiles, KeepTheNumbersOfRoundsWithoutACheckpoint) {
  folder.write("begun_round", "7\n");
  const auto model = serve(false);
  EXPECT_EQ(model->first_round(), 8);
  model->begin(8);
  EXPECT_EQ(serve(true)->first_round(), 9);
}

}  // namespace
}  // namespace gradwire::test
