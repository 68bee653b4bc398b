#include <string_view>

#include "tests/train/programs/ranks.h"

/// One program, because each that includes libtorch takes 15 seconds to compile.
int main(int argc, char** argv) {
  const std::string_view kind = argc < 2 ? "" : argv[1];
  if (kind == "limited") return gradwire::test::limited_rank(argc - 1, argv + 1);
  if (kind == "option") return gradwire::test::option_rank(argc - 1, argv + 1);
  if (kind == "pipeline") return gradwire::test::pipeline_rank(argc - 1, argv + 1);
  if (kind == "proof") return gradwire::test::proof_rank(argc - 1, argv + 1);
  return 2;
}
