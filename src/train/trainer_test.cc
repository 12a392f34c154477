// A complete run in miniature: learn a vocabulary, train, stop, resume, export, read the GGUF file back.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "formats/format.h"
#include "learn/bpe_trainer.h"
#include "loader/model_files.h"
#include "train/finish.h"
#include "train/loss_plot.h"
#include "train/story_export.h"

namespace millrace {
namespace {

class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / "millrace_trainer_test";
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ / "data");
    std::ofstream data(root_ / "data" / "stories.txt");
    const std::vector<std::string> who{"cat", "dog", "bird", "girl", "boy", "frog", "bear"},
        what{"ran", "sang", "jumped", "slept", "played"};
    for (size_t i = 0; i < 200; ++i) {
      data << "Once upon a time there was a little " << who[i % 7] << " number " << i << ". The " << who[i % 7] << " "
           << what[i % 5] << " all day long in the garden with a friend.\nThen the " << who[(i + 3) % 7]
           << " came and they " << what[(i + 2) % 5] << " together " << i * 31 << " times.\n<|endoftext|>\n";
    }
    options_.data = (root_ / "data").string();
    options_.out = (root_ / "out").string();
    StoryModelConfig& model = options_.model;
    model.vocab = 420;
    model.context = 64;
    model.dim = 64;
    model.layers = 2;
    model.heads = 2;
    model.kv_heads = 1;
    model.ffn = 96;
    options_.steps = 12;
    options_.batch_tokens = 256;
    options_.window = 32;
    options_.warmup = 4;
    options_.evaluate_every = 4;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::filesystem::path root_;
  TrainOptions options_;
};

TEST_F(TrainerTest, TrainsResumesAndExports) {
  auto trained = train_stories(options_);
  ASSERT_TRUE(trained.ok()) << trained.error().message;
  EXPECT_EQ(trained->steps, 12);
  EXPECT_LT(trained->held_out_loss, 6.0);  // ln 420 = 6.04

  options_.resume = true;
  options_.steps = 20;
  auto resumed = train_stories(options_);
  ASSERT_TRUE(resumed.ok()) << resumed.error().message;
  EXPECT_EQ(resumed->steps, 20);
  EXPECT_LT(resumed->held_out_loss, trained->held_out_loss);
  auto curve = read_loss_csv(options_.out + "/loss.csv");
  ASSERT_TRUE(curve.ok());
  EXPECT_EQ(curve->size(), 5u);

  auto report = finish_stories({options_, "tiny", 1, 0.8});
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_GT(report->bits_per_byte, 0.5);
  EXPECT_LT(report->bits_per_byte, 8.0);
  ASSERT_EQ(report->stories.size(), 1u);
  EXPECT_TRUE(report->stories[0].starts_with("Once upon a time"));
  EXPECT_TRUE(std::filesystem::exists(options_.out + "/loss.png"));
}

TEST_F(TrainerTest, GgufHoldsTheWeightsInInterleavedOrder) {
  StoryModel model(options_.model, 4);
  auto spec = train_bpe(std::move(read_corpus(options_.data)).value().train, 420);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const std::string path = (root_ / "m.gguf").string();
  auto written = export_story_gguf(model, *spec, {"m", "", path});
  ASSERT_TRUE(written.ok()) << written.error().message;
  auto files = open_model_files(path);
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ(files->architecture, "llama");
  ASSERT_TRUE(files->tokenizer.has_value());
  EXPECT_EQ(files->tokenizer->tokens, spec->tokens);
  EXPECT_EQ(files->tokenizer->scores, spec->scores);
  EXPECT_TRUE(files->tokenizer->add_bos);
  EXPECT_TRUE(files->tokenizer->add_space_prefix);
  EXPECT_EQ(files->find("output.weight"), nullptr);
  EXPECT_EQ(files->tensors.size(), 2u + 2u * 9u);
  const StoredTensor* q = files->find("blk.1.attn_q.weight");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->tensor.format->name, "f16");
  std::vector<float> row(64);
  auto row_at = [&](int64_t r) {
    q->tensor.format->decode(q->tensor.data + r * q->tensor.format->row_bytes(64), row.data(), 64);
    return row[5];
  };
  // Head 1 has rows 32..63; its row 2i is row i of the trained head, 2i + 1 is row i + 16.
  const torch::Tensor trained = model.layers()[1].qkv;
  EXPECT_NEAR(row_at(32 + 6), trained[32 + 3][5].item<float>(), 1e-3);
  EXPECT_NEAR(row_at(32 + 7), trained[32 + 16 + 3][5].item<float>(), 1e-3);
  const StoredTensor* norm = files->find("output_norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->tensor.format->name, "f32");
}

TEST_F(TrainerTest, RejectsMissingInput) {
  options_.resume = true;
  EXPECT_EQ(train_stories(options_).error().kind, ErrorKind::user);  // nothing to resume
  options_.resume = false;
  options_.data = (root_ / "nowhere").string();
  EXPECT_EQ(train_stories(options_).error().kind, ErrorKind::user);
  EXPECT_EQ(story_model_config("huge").error().kind, ErrorKind::user);
  StoryModel model(options_.model, 1);
  std::ofstream(root_ / "best.pt") << "not an archive";
  EXPECT_EQ(load_weights(model, (root_ / "best.pt").string()).error().kind, ErrorKind::corrupt);
}

TEST(LossPlot, HasBothLinesAndClipsTheirStart) {
  std::vector<LossPoint> points;
  for (int i = 0; i < 40; ++i) points.push_back({i * 1e5, 8.0 / (1 + i), 8.5 / (1 + i)});
  const auto chart = loss_chart(points, "test");
  ASSERT_TRUE(chart.ok()) << chart.error().message;
  const ChartPanel& panel = chart->panels.at(0);
  ASSERT_EQ(panel.series.size(), 2u);
  EXPECT_EQ(panel.series[1].points.size(), 40u);
  EXPECT_LT(*panel.y.high, 8.0);
  EXPECT_FALSE(loss_chart({{1, 2, 3}}, "one point").ok());
}

}  // namespace
}  // namespace millrace
