// Runs that were stopped and continue: the same bytes as one run, nothing of another run, nothing damaged; and a disk
// that is full.
#include "compress/output/run_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <fstream>

#include "contains.h"
#include "short_compression.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::golden_gguf;
using testing::read_file;
using testing::ScratchModel;
using testing::short_compression;

// The folder beside an output goes with the test.
class ScratchRun {
 public:
  ~ScratchRun() {
    std::error_code ignored;
    fs::remove_all(state(), ignored);
  }
  std::string path() const { return out_.path(); }
  std::string state() const { return RunState::folder_of(out_.path()); }

 private:
  ScratchModel out_;
};

CompressOptions resumable(const ScratchRun& run, std::vector<std::string> passes) {
  CompressOptions options = short_compression(golden_gguf("llama"), run.path(), "");
  options.passes = std::move(passes);
  options.resume = true;
  return options;
}

// Ends after `blocks` decoder blocks.
void stop_after(CompressOptions options, int blocks) {
  options.cancelled = [&] { return --blocks == 0; };
  auto stopped = compress_model(options);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().kind, ErrorKind::cancelled);
  EXPECT_EQ(stopped.error().message, "interrupted; --resume continues");
  EXPECT_FALSE(fs::exists(options.output));
}

class ResumedRun : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(ResumedRun, GivesTheSameBytes) {
  const ScratchRun whole, parts;
  CompressOptions one = resumable(whole, GetParam());
  one.resume = false;
  one.calibration.held_out = 0.3;
  auto want = compress_model(one);
  ASSERT_TRUE(want.ok()) << want.error().message;
  CompressOptions options = resumable(parts, GetParam());
  options.calibration.held_out = 0.3;
  stop_after(options, 1);
  options.threads = 1;
  auto got = compress_model(options);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(got->resumed_blocks, 1);
  EXPECT_TRUE(read_file(parts.path()) == read_file(whole.path()));
  EXPECT_FALSE(fs::exists(parts.state()));
  // The rows of the report, too.
  ASSERT_EQ(got->matrices.size(), want->matrices.size());
  for (size_t i = 0; i < want->matrices.size(); ++i) {
    const CompressedMatrix &a = want->matrices[i], &b = got->matrices[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.format, b.format);
    EXPECT_EQ(a.bytes, b.bytes);
    EXPECT_EQ(a.calibration_rows, b.calibration_rows);
    EXPECT_EQ(a.output_error, b.output_error);
    EXPECT_EQ(a.held_out_error, b.held_out_error);
    EXPECT_EQ(a.rounded_held_out_error, b.rounded_held_out_error);
    EXPECT_EQ(a.weighted_error, b.weighted_error);
    EXPECT_EQ(a.zeros, b.zeros);
    ASSERT_EQ(a.passes.size(), b.passes.size());
    for (size_t p = 0; p < a.passes.size(); ++p) {
      EXPECT_EQ(a.passes[p].second.action, b.passes[p].second.action);
      EXPECT_EQ(a.passes[p].second.figures, b.passes[p].second.figures);
    }
  }
  EXPECT_EQ(got->output_bytes, want->output_bytes);
}

INSTANTIATE_TEST_SUITE_P(Passes, ResumedRun,
                         ::testing::Values(std::vector<std::string>{"gptq:format=q4_0"},
                                           std::vector<std::string>{"outliers", "squeezellm"},
                                           std::vector<std::string>{"owl", "gptq"},
                                           std::vector<std::string>{"llm_mq:bits=6,formats=q4_0+q8_0"},
                                           std::vector<std::string>{"quip:format=q4_0"},
                                           std::vector<std::string>{"lplr"}),
                         [](const auto& one) { return one.param.front().substr(0, one.param.front().find(':')); });

TEST(RunState, RefusesAnotherRunByName) {
  const ScratchRun run;
  stop_after(resumable(run, {"gptq:format=q4_0"}), 1);
  const auto failure = [&](const CompressOptions& options) {
    auto done = compress_model(options);
    EXPECT_FALSE(done.ok());
    EXPECT_FALSE(fs::exists(run.path()));
    return done.ok() ? "" : done.error().message;
  };
  CompressOptions other = resumable(run, {"gptq:format=q5_0"});
  EXPECT_EQ(failure(other), "--resume: " + run.state() +
                                " was left by a run of another kind: passes was 'gptq:format=q4_0' and is "
                                "'gptq:format=q5_0'; run it as before, or remove the folder to begin again");
  other = resumable(run, {"gptq:format=q4_0"});
  other.keep = {"blk.1.*=q8_0"};
  EXPECT_CONTAINS(failure(other), "keep was '' and is 'blk.1.*=q8_0'");
  other = resumable(run, {"gptq:format=q4_0"});
  other.calibration.text += "more";
  EXPECT_CONTAINS(failure(other), "calibration text was '");
  other = resumable(run, {"gptq:format=q4_0"});
  other.calibration.windows = 5;
  EXPECT_CONTAINS(failure(other), "windows was '6' and is '5'");
  other = resumable(run, {"gptq:format=q4_0"});
  other.calibration.held_out = 0.5;
  EXPECT_CONTAINS(failure(other), "windows was '6' and is '3'");
  other = resumable(run, {"gptq:format=q4_0"});
  other.input = golden_gguf("qwen2_tied");
  EXPECT_CONTAINS(failure(other), "input was '");
  // What was left is still there.
  auto done = compress_model(resumable(run, {"gptq:format=q4_0"}));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->resumed_blocks, 1);
}

TEST(RunState, DoesDamagedBlocksAgain) {
  const ScratchRun whole, run;
  ASSERT_TRUE(compress_model(resumable(whole, {"gptq"})).ok());
  for (const size_t at : {size_t{3}, size_t{20}, size_t{400}, std::string::npos}) {
    stop_after(resumable(run, {"gptq"}), 1);
    const std::string block = run.state() + "/block-0";
    std::string bytes = read_file(block);
    ASSERT_GT(bytes.size(), 1000u);
    if (at == std::string::npos)
      bytes.resize(bytes.size() / 2);
    else
      bytes[at] ^= 1;
    std::ofstream(block, std::ios::binary) << bytes;
    auto done = compress_model(resumable(run, {"gptq"}));
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(done->resumed_blocks, 0);
    EXPECT_TRUE(read_file(run.path()) == read_file(whole.path()));
    fs::remove(run.path());
  }
}

TEST(RunState, TakesOnlyItsOwnFolder) {
  const ScratchRun run;
  fs::create_directory(run.state());
  std::ofstream(run.state() + "/diary.txt") << "mine";
  auto done = compress_model(resumable(run, {"rtn"}));
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message,
            run.state() + ": has files but no run.json, so it was not left by a compression; move it away");
  fs::remove(run.state() + "/diary.txt");
  std::ofstream(run.state() + "/run.json") << "{ no";
  done = compress_model(resumable(run, {"rtn"}));
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().kind, ErrorKind::corrupt);
  EXPECT_CONTAINS(done.error().message, "run.json: is damaged; remove " + run.state());
  fs::remove_all(run.state());
  std::ofstream(run.state()) << "a file";
  done = compress_model(resumable(run, {"rtn"}));
  ASSERT_FALSE(done.ok());
  EXPECT_CONTAINS(done.error().message, ": is not a folder, and finished blocks belong there");
}

TEST(RunState, IsNotForModelsThatAreMadeAtOnce) {
  const ScratchRun run;
  auto done = compress_model(resumable(run, {"shortgpt"}));
  ASSERT_FALSE(done.ok());
  EXPECT_CONTAINS(done.error().message, "no blocks or matrices for --resume");
}

TEST(RunState, SaysWhereAStoppedRunIsNotUsed) {
  const ScratchRun run;
  stop_after(resumable(run, {"gptq"}), 1);
  CompressOptions options = resumable(run, {"gptq"});
  options.resume = false;
  auto done = compress_model(options);
  ASSERT_TRUE(done.ok());
  EXPECT_CONTAINS(done->notes.back(), run.state() + " was left by a stopped run and is not used");
}

// Numbers that JSON does not have, and parts.
TEST(RunState, KeepsEveryField) {
  const ScratchRun run;
  auto state = RunState::open(run.state(), {{"passes", "x"}});
  ASSERT_TRUE(state.ok()) << state.error().message;
  TensorResult one{.tensor = 7, .factored = true, .index_bytes = 12, .bytes = {1, 2, 255}};
  one.parts.push_back({"blk.0.attn_q.low_rank_a", find_format("q8_0"), {3, 32}, {9, 8}, true});
  CompressedMatrix matrix{.name = "blk.0.attn_q.weight", .rows = 3, .cols = 4, .format = "q8_0 pair", .bytes = 5};
  matrix.output_error = NAN;
  matrix.passes.emplace_back("svd", PassRow{"factored", "because", {{"rank", 0.1}, {"most", INFINITY}}});
  one.matrices.push_back(matrix);
  ASSERT_TRUE(state->write(4, {one, TensorResult{}}).ok());
  EXPECT_FALSE(state->read(5));
  const auto read = state->read(4);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), 2u);
  const TensorResult& got = read->front();
  EXPECT_EQ(got.tensor, 7u);
  EXPECT_TRUE(got.factored);
  EXPECT_EQ(got.index_bytes, 12);
  EXPECT_EQ(got.bytes, one.bytes);
  EXPECT_EQ(got.parts.at(0).name, "blk.0.attn_q.low_rank_a");
  EXPECT_EQ(got.parts.at(0).format, find_format("q8_0"));
  EXPECT_EQ(got.parts.at(0).dims, (std::vector<int64_t>{3, 32}));
  EXPECT_EQ(got.parts.at(0).bytes, (std::vector<uint8_t>{9, 8}));
  EXPECT_TRUE(got.parts.at(0).of_factored);
  EXPECT_TRUE(std::isnan(got.matrices.at(0).output_error));
  EXPECT_EQ(got.matrices.at(0).passes.at(0).second.why, "because");
  EXPECT_EQ(got.matrices.at(0).passes.at(0).second.figures.at(0).second, 0.1);
  EXPECT_TRUE(std::isnan(got.matrices.at(0).passes.at(0).second.figures.at(1).second));
}

// Files may not grow beyond some bytes, which is what a full disk looks like to a writer.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    before_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit small{bytes, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    ::signal(SIGXFSZ, before_);
  }

 private:
  rlimit limit_{};
  sighandler_t before_;
};

// Whether a file of this output, complete or not, is there.
bool anything_left(const std::string& output) {
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(output).parent_path()))
    if (entry.path().string().starts_with(output)) return true;
  return false;
}

TEST(FullDiskIn, TheMiddleOfTheOutputLeavesNothing) {
  const ScratchRun run;
  CompressOptions options = resumable(run, {"rtn:format=q8_0"});
  options.resume = false;
  auto done = [&] {
    const FullDisk full(20000);
    return compress_model(options);
  }();
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().kind, ErrorKind::resource) << done.error().message;
  EXPECT_CONTAINS(done.error().message, run.path() + ": cannot write: ");
  EXPECT_FALSE(anything_left(run.path()));
}

// Blocks fit, the output does not; then there is space again.
TEST(FullDiskIn, ABlockOrTheOutputCanBeResumed) {
  const ScratchRun whole, run;
  ASSERT_TRUE(compress_model(resumable(whole, {"rtn:format=q8_0"})).ok());
  const rlim_t size = fs::file_size(whole.path());
  for (const rlim_t bytes : {size / 4, size - 100}) {
    auto done = [&] {
      const FullDisk full(bytes);
      return compress_model(resumable(run, {"rtn:format=q8_0"}));
    }();
    ASSERT_FALSE(done.ok()) << bytes;
    EXPECT_EQ(done.error().kind, ErrorKind::resource) << done.error().message;
    EXPECT_FALSE(fs::exists(run.path()));
  }
  auto done = compress_model(resumable(run, {"rtn:format=q8_0"}));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_GT(done->resumed_blocks, 0);
  EXPECT_TRUE(read_file(run.path()) == read_file(whole.path()));
}

}  // namespace
}  // namespace millrace
