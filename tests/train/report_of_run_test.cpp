#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/idx_files.h"
#include "tests/support/page_data.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/subprocess.h"

namespace gradwire::test {
namespace {

TEST(ReportOfARun, ShowsTheLossesThatTheRunHad) {
  const TemporaryFolder folder;
  write_image_data(folder.path(), 320, 20);
  write_file(folder / "c.json", R"({"model": {"name": "mlp", "hidden": 16}, "batch_size": 32,
                                    "optimizer": {"learning_rate": 0.02}, "epochs": 2})");
  const auto gradwire = own_program().parent_path() / "gradwire";
  const auto trained = run({gradwire, "train", folder / "c.json", "--data", folder.path(), "-n",
                            "2", "--output", folder / "out"});
  ASSERT_EQ(trained.status, 0) << trained.output;
  const auto reported = run({gradwire, "report", folder / "out", "-o", folder / "page.html"});
  ASSERT_EQ(reported.status, 0) << reported.output;

  const auto record = nlohmann::json::parse(std::ifstream(folder / "out" / "run.json"));
  const auto losses = record["steps"]["loss"].get<std::vector<double>>();
  const auto shown = data_of_page(folder / "page.html")["runs"][0];
  const auto curve = shown["loss"]["loss"].get<std::vector<double>>();
  EXPECT_EQ(shown["strategy"], "DDP x2");
  ASSERT_EQ(losses.size(), 20u);
  ASSERT_EQ(curve.size(), losses.size());
  EXPECT_LT(losses.back(), losses.front()) << "it has learnt";
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(curve[i], losses[i], 1e-5 * losses[i]) << "step " << i << ", to six digits";
  }
}

}  // namespace
}  // namespace gradwire::test
