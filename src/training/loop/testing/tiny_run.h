// Whole runs at a tiny size for tests: 28 pictures of 8 px, models of a few thousand parameters.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/stop_token.h"
#include "collective/testing/forwarding_group.h"
#include "loop/trainer.h"

namespace yard::loop {

// A group of one that shows each step's sums, [loss, not finite, stop, out of memory, seconds],
// once they are taken; they may be changed.
class HookedGroup final : public collective::ForwardingGroup {
 public:
  using Hook = std::function<void(int sum_number, std::span<double> sums)>;  // numbers from 1
  explicit HookedGroup(Hook hook) : HookedGroup(collective::single_rank_group(), std::move(hook)) {}

  std::unique_ptr<collective::Work> all_reduce(std::span<std::byte> inout, collective::DType dtype,
                                               collective::ReduceOp op) override;

 private:
  HookedGroup(std::unique_ptr<Group> alone, Hook hook)
      : ForwardingGroup(*alone), alone_(std::move(alone)), hook_(std::move(hook)) {}

  std::unique_ptr<Group> alone_;
  const Hook hook_;
  int sum_count_ = 0;
};

// One that asks for a stop when the sums of so many steps have been taken.
HookedGroup stopping_group(StopSource stop, int step_count);

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Shards, tokenizer and recipe text are made once for all tests.
  static const std::string& recipe_text();
  std::string path(const std::string& name) const { return dir_ + "/" + name; }

  Status run(const std::string& output, const std::vector<std::string>& overrides = {});
  // The recipe as it is, saved at the end of stages alone: made once for all tests. `output` is a
  // link to it.
  void use_plain_run(const std::string& output);
  Status run_on(collective::Group& group, const StopToken& stop, const std::string& output,
                const std::vector<std::string>& overrides = {});
  Status run_on_ranks(int world_size, const std::string& output,
                      const std::vector<std::string>& overrides);
  // Stopped after so many steps at a time and taken up again until it is done; the number of runs.
  int run_in_pieces(int step_count, const std::string& output,
                    const std::vector<std::string>& overrides);

  // Losses and held-out losses of both runs.
  void expect_near(const std::string& output, const std::string& reference, double tolerance);
  std::vector<Json> beats(const std::string& output, const std::string& event) const;
  // Alarms of that kind.
  std::vector<std::string> alarms(const std::string& output, const std::string& kind) const;
  std::map<int64_t, double> losses(const std::string& output) const;
  // Files of the saved model and their bytes.
  std::map<std::string, std::string> weights(const std::string& output) const;

  std::string dir_;
  uint64_t memory_bytes_ = 0;  // TrainerOptions'
  int64_t profiled_steps_ = 0;
  int64_t stop_at_stage_ = -1;
};

}  // namespace yard::loop
