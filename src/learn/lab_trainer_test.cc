// A lab run in miniature: vocabulary, training, stop and resume, export; and the examples against the engine's
// tokenizer and template.
#include "learn/lab_trainer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/ordered_json.h"
#include "lab/lab_files.h"
#include "learn/lab_checkpoint.h"
#include "learn/lab_mixture.h"
#include "loader/model_files.h"
#include "text/template/chat_template.h"

namespace millrace {
namespace {

class LabTrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("millrace_lab_trainer_" + std::to_string(::getpid()));
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  static const TokenizerSpec& spec() {
    static const TokenizerSpec kSpec = *learn_lab_vocabulary({}, 1024);
    return kSpec;
  }
  static ArchSpec small_spec(int64_t experts = 0, HiddenActivation activation = HiddenActivation::silu) {
    ArchSpec out;
    out.vocab = 1024;
    out.context = 2048;
    out.width = out.hidden = out.moe.hidden = 64;
    out.heads = 2;
    out.kv_heads = 1;
    out.moe.experts = experts;
    out.activation = activation;
    complete_llama(out, 1, 50000);
    return out;
  }
  LabTrainOptions options(const char* name) {
    write_lab_vocabulary((root_ / "given.txt").string(), spec()).ok();
    LabTrainOptions out;
    out.out = (root_ / name).string();
    out.vocabulary = (root_ / "given.txt").string();
    out.spec = small_spec();
    out.batch_tokens = 512;
    out.tokens = 6000;
    out.length_doubling = 4000;
    out.items = 2;
    out.evaluate_every = 1000;
    return out;
  }
  std::filesystem::path root_;
};

TEST_F(LabTrainerTest, AResumedRunEqualsAnUninterruptedOne) {
  LabTrainOptions whole = options("whole"), parts = options("parts");
  ASSERT_TRUE(train_lab(whole).ok());
  parts.tokens = 2000;
  parts.threads = 1;
  ASSERT_TRUE(train_lab(parts).ok());
  EXPECT_EQ(train_lab(parts).error().kind, ErrorKind::user);  // would overwrite the checkpoint
  parts.tokens = whole.tokens;
  parts.resume = true;
  ASSERT_TRUE(train_lab(parts).ok());
  const auto a = load_lab_checkpoint(whole.out + "/checkpoint.bin"),
             b = load_lab_checkpoint(parts.out + "/checkpoint.bin");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->weights(), b->weights());
}

TEST_F(LabTrainerTest, AnExactRunLearnsLikeARoundedOne) {
  LabTrainOptions rounded = options("rounded"), exact = options("exact");
  exact.exact = true;
  for (LabTrainOptions* run : {&rounded, &exact}) {
    run->tokens = 1000;
    run->log_every = 1;
    run->items = 1;
  }
  const auto a = train_lab(rounded), b = train_lab(exact);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_GT(a->loss, 1);
  EXPECT_NEAR(a->loss, b->loss, 0.01);
  EXPECT_NE(load_lab_checkpoint(rounded.out + "/checkpoint.bin")->weights(),
            load_lab_checkpoint(exact.out + "/checkpoint.bin")->weights());
}

// A product of other columns would write past the end of its output.
TEST_F(LabTrainerTest, RefusesSizesThatItsLoopsDoNotHave) {
  LabTrainOptions run = options("odd");
  run.spec.vocab = 1000;
  EXPECT_EQ(train_lab(run).error().message,
            "train-lab cannot train a vocabulary of 1000; it must be a multiple of 32 up to 131072");
}

// A folder of stories, some of which are held out.
std::string story_folder(const std::filesystem::path& root) {
  const std::filesystem::path folder = root / "stories";
  std::filesystem::create_directories(folder);
  std::ofstream part(folder / "part.txt");
  for (int i = 0; i < 200; ++i) {
    const std::string name = "number " + std::to_string(i * 7919);
    part << "Once upon a time there was a " << name << ". Every day the " << name << " went to the garden of " << name
         << " and looked at the trees. One day " << name << " found a red ball under a tree.\n<|endoftext|>\n";
  }
  return folder.string();
}

TEST_F(LabTrainerTest, StoriesAloneAreResumedAndEvaluatedToo) {
  LabTrainOptions whole = options("whole"), parts = options("parts");
  for (LabTrainOptions* run : {&whole, &parts}) {
    run->only_stories = true;
    EXPECT_EQ(train_lab(*run).error().message,
              "this model (--size) is trained on stories alone: give their folder with --stories");
    run->stories = story_folder(root_);
    run->spec.context = 256;
    run->first_length = 300;
    run->last_length = 4000;
    run->length_doubling = 1000;
  }
  ASSERT_TRUE(train_lab(whole).ok());
  parts.tokens = 2000;
  ASSERT_TRUE(train_lab(parts).ok());
  parts.tokens = whole.tokens;
  parts.resume = true;
  ASSERT_TRUE(train_lab(parts).ok());
  EXPECT_EQ(load_lab_checkpoint(whole.out + "/checkpoint.bin")->weights(),
            load_lab_checkpoint(parts.out + "/checkpoint.bin")->weights());
  std::ostringstream scores;
  scores << std::ifstream(whole.out + "/accuracy.csv").rdbuf();
  EXPECT_NE(scores.str().find(",stories,4000,2,"), std::string::npos) << scores.str();
  EXPECT_EQ(scores.str().find("needle"), std::string::npos) << scores.str();
}

TEST_F(LabTrainerTest, StoriesLongHasHeadsOf64AndALongContext) {
  ArchSpec arch = *lab_spec("stories-long");
  EXPECT_TRUE(trainable(arch).ok());
  EXPECT_EQ(arch.layers[0].head_dim, 64);
  EXPECT_EQ(arch.context, 8192);
  EXPECT_TRUE(lab_only_stories("stories-long"));
  EXPECT_FALSE(lab_only_stories("lab"));
  arch.vocab = 1024;
  const std::string path = (root_ / "long.gguf").string();
  ASSERT_TRUE(export_lab_gguf(LabModel(arch, 5), spec(), "test", "f16", path).ok());
  const auto model = import_lab_gguf(path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_TRUE(same_model(model->model.spec(), arch));
}

TEST_F(LabTrainerTest, ExamplesAreTheTemplatesTokens) {
  LabMixture mixture(spec(), {}, 1, 2048);
  auto engine_spec = spec();
  const auto tokenizer = Tokenizer::create(engine_spec);
  const auto chat = ChatTemplate::parse(lab_chat_template());
  ASSERT_TRUE(tokenizer.ok() && chat.ok());
  for (const LabTask& task : lab_tasks()) {
    const LabItem item = make_lab_item(task, 3, 0, LabSplit::train, {200, 800});
    const LabExample example = mixture.encode(item, false);
    nlohmann::ordered_json context = {{"messages", lab_item_json(item)["messages"]},
                                      {"bos_token", "<s>"},
                                      {"eos_token", "</s>"},
                                      {"add_generation_prompt", true}};
    const auto text = chat->render(context);
    ASSERT_TRUE(text.ok());
    const std::vector<TokenId> prompt = (*tokenizer)->encode(*text, {.add_special = false});
    const auto middle = example.ids.begin() + example.answer;
    EXPECT_EQ(prompt, std::vector<TokenId>(example.ids.begin(), middle)) << task.name;
    EXPECT_EQ((*tokenizer)->decode({middle, example.ids.end()}, true), item.answer) << task.name;
    EXPECT_EQ(example.ids.back(), kEosId);
  }
}

TEST_F(LabTrainerTest, DigitsAreTokensOfTheirOwn) {
  for (const std::string& token : std::vector(spec().tokens.begin() + kFirstPieceId, spec().tokens.end()))
    if (token.find_first_of("0123456789") != std::string::npos) {
      EXPECT_EQ(token.size(), 1u) << token;
    }
}

TEST_F(LabTrainerTest, FollowUpsAreForTrainingAlone) {
  LabMixture mixture(spec(), {}, 1, 2048);
  const LabItem item = make_lab_item(*find_lab_task("multidoc"), 3, 0, LabSplit::train, {400, 400});
  const LabExample test = mixture.encode(item, false), train = mixture.encode(item, true);
  ASSERT_FALSE(item.more.empty());
  EXPECT_GT(train.ids.size(), test.ids.size());
  EXPECT_TRUE(std::equal(test.ids.begin(), test.ids.end(), train.ids.begin()));
  for (size_t i = 0; i < static_cast<size_t>(test.answer); ++i) EXPECT_EQ(test.weights[i], 0);
  LabMixture narrow(spec(), {}, 1, std::ssize(test.ids) + 3);
  EXPECT_EQ(narrow.encode(item, true).ids, test.ids);
  LabMixture short_one(spec(), {}, 1, 20);
  EXPECT_TRUE(short_one.encode(item, true).ids.empty());
}

TEST_F(LabTrainerTest, ExportedModelHasVocabularyAndTemplate) {
  LabTrainOptions run = options("exported");
  run.tokens = 600;
  ASSERT_TRUE(train_lab(run).ok());
  const auto model = load_lab_checkpoint(run.out + "/checkpoint.bin");
  ASSERT_TRUE(model.ok());
  const std::string path = (root_ / "model.gguf").string();
  ASSERT_TRUE(export_lab_gguf(*model, spec(), "test", "f16", path).ok());
  const auto files = open_model_files(path);
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ(files->chat_template, lab_chat_template());
  EXPECT_EQ(files->tokenizer->tokens, spec().tokens);
  EXPECT_EQ(export_lab_gguf(*model, spec(), "test", "nothing", path).error().message,
            "unknown number format (--format): nothing");
}

TEST_F(LabTrainerTest, AnExportedModelCanBeTrainedFurther) {
  for (int64_t experts : {0, 4}) {
    const ArchSpec arch = small_spec(experts);
    const LabModel model(arch, 5);
    const std::string path = (root_ / "exported.gguf").string();
    ASSERT_TRUE(export_lab_gguf(model, spec(), "test", "f32", path).ok());
    const auto same = import_lab_gguf(path);
    ASSERT_TRUE(same.ok()) << same.error().message;
    EXPECT_TRUE(same_model(same->model.spec(), arch));
    EXPECT_EQ(same->model.weights(), model.weights());
    EXPECT_EQ(same->spec.tokens, spec().tokens);
    ASSERT_TRUE(export_lab_gguf(model, spec(), "test", "q8_0", path).ok());
    const auto rounded = import_lab_gguf(path);
    ASSERT_TRUE(rounded.ok()) << rounded.error().message;
    for (size_t i = 0; i < model.weights().size(); ++i)
      ASSERT_NEAR(rounded->model.weights()[i], model.weights()[i], 0.01) << i;
  }
  LabTrainOptions run = options("further");
  run.vocabulary.clear();
  run.from = (root_ / "exported.gguf").string();
  run.tokens = 1;
  run.rates.muon = run.rates.adam = run.rates.decay = 0;
  ASSERT_TRUE(train_lab(run).ok());
  EXPECT_EQ(load_lab_checkpoint(run.out + "/checkpoint.bin")->weights(), import_lab_gguf(run.from)->model.weights());
  run.start = run.out + "/checkpoint.bin";
  EXPECT_EQ(train_lab(run).error().message, "--from brings weights and vocabulary: omit --start and --vocabulary");
}

// What changes the products and is not trained must not be dropped in silence; sizes are checked before memory is
// taken.
TEST_F(LabTrainerTest, RejectsModelsThatItWouldReadWrongly) {
  const ArchSpec arch = small_spec(4, HiddenActivation::relu);
  const std::string path = (root_ / "edited.gguf").string();
  ASSERT_TRUE(export_lab_gguf(LabModel(arch, 5), spec(), "test", "f32", path).ok());
  std::ostringstream read;
  read << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string original = read.str();
  // The message for the file in which `with` is written `skip` bytes after the end of the first `text`.
  const auto message = [&](const std::string& text, size_t skip, const std::string& with) {
    std::string bytes = original;
    const size_t at = bytes.find(text);
    EXPECT_NE(at, std::string::npos) << text;
    if (at == std::string::npos) return std::string();
    bytes.replace(at + text.size() + skip, with.size(), with);
    std::ofstream(path, std::ios::binary) << bytes;
    const auto model = import_lab_gguf(path);
    return model.ok() ? "accepted" : model.error().message;
  };
  const std::string start = "train-lab cannot continue from " + path + ": ";
  constexpr size_t kType = 4, kLength = 8;  // before a value, and before a text
  EXPECT_EQ(message("llama.hidden_activation", kType + kLength, "gelu"),
            start + "it trains silu and relu, not the activation \"gelu\"");
  EXPECT_EQ(message("llama.expert_used_count", kType, "\1"),
            start + "a token uses 1 experts, and it trains models that use 2");
  EXPECT_EQ(message("llama.vocab_siz", 0, "x"), start + "it does not train models with the key llama.vocab_sizx");
  EXPECT_EQ(message("blk.0.attn_", 0, "x"), start + "it does not train the tensor blk.0.attn_xorm.weight");
  EXPECT_NE(message("llama.block_count", kType, "\x80").find(start + "its metadata describe "), std::string::npos);
  EXPECT_EQ(message("llama.rope.dimension_count", kType, "\x10"), start + "rope rotates 16 of a head's 32 dims");
}

TEST_F(LabTrainerTest, RejectsWhatIsNoCheckpoint) {
  const std::string path = (root_ / "bad.bin").string();
  EXPECT_EQ(load_lab_checkpoint(path).error().message, "no such checkpoint: " + path);
  std::ofstream(path) << std::string(500, 'x');
  EXPECT_EQ(load_lab_checkpoint(path).error().message, "not a checkpoint of a lab model: " + path);
  EXPECT_EQ(lab_spec("huge").error().message,
            "unknown model (--size); available: lab, lab-draft, lab-relu, lab-mha, lab-experts, stories-long: huge");
}

}  // namespace
}  // namespace millrace
