// Fill-in-the-middle: detection of models that support it, and their prompts, on a golden model with the FIM tokens
// added to its vocabulary.
#include "prompt/infill_prompt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/ordered_json.h"
#include "run/language_model.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr TokenId kLastPlain = 123;
const fs::path kGolden = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/llama";

// The golden model, in which the last tokens before its special ones are respelled.
struct Coder {
  fs::path path;
  std::shared_ptr<const LanguageModel> model;
  std::vector<TokenId> ids;

  explicit Coder(const std::vector<std::string>& spellings) {
    path = fs::temp_directory_path() /
           ("millrace_coder_" + std::to_string(getpid()) + "_" + std::to_string(spellings.size()));
    fs::remove_all(path);
    fs::create_directories(path);
    for (const auto& entry : fs::directory_iterator(kGolden)) {
      const auto name = entry.path().filename();
      if (entry.path().extension() != ".gguf" && name != "tokenizer.json")
        fs::create_symlink(entry.path(), path / name);
    }
    std::ifstream file(kGolden / "tokenizer.json");
    Json json = Json::parse(file);
    Json& vocab = json["model"]["vocab"];
    for (const std::string& text : spellings) {
      const TokenId id = kLastPlain - static_cast<TokenId>(ids.size());
      Json kept = Json::object();
      std::string old;
      for (const auto& [token, number] : vocab.items()) {
        if (number == id) old = token;
        kept[number == id ? text : token] = number;
      }
      vocab = std::move(kept);
      Json merges = Json::array();  // without merges that produce or use a replaced token
      for (const Json& merge : json["model"]["merges"]) {
        const std::string pair = merge.is_string() ? merge.get<std::string>()
                                                   : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
        const std::string left = pair.substr(0, pair.find(' ')), right = pair.substr(pair.find(' ') + 1);
        if (left + right != old && left != old && right != old) merges.push_back(merge);
      }
      json["model"]["merges"] = std::move(merges);
      json["added_tokens"].push_back({{"id", id},
                                      {"content", text},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}});
      ids.push_back(id);
    }
    std::ofstream(path / "tokenizer.json") << json.dump();
    auto loaded = LanguageModel::load(path, {.threads = 1});
    EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
    if (loaded.ok()) model = *loaded;
  }
  ~Coder() { fs::remove_all(path); }
  std::vector<TokenId> encode(const std::string& text) const { return *model->encode(text, false, false); }
};

std::vector<TokenId> joined(std::initializer_list<std::vector<TokenId>> parts) {
  std::vector<TokenId> out;
  for (const auto& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

std::vector<TokenId> start_of(const LanguageModel& model) {
  const TokenizerSpec& spec = model.parts().tokenizer->spec();
  return spec.add_bos && spec.bos ? std::vector<TokenId>{*spec.bos} : std::vector<TokenId>{};
}

TEST(Infill, FindsTokensByTheirSpelling) {
  TokenizerSpec spec;
  spec.tokens = {"a", "<|fim_middle|>", "<|fim_prefix|>", "b>", "<|fim_suffix|>", "<|file_sep|>", "<|repo_name|>"};
  const auto qwen = find_infill_tokens(spec);
  ASSERT_TRUE(qwen.ok());
  EXPECT_EQ(qwen->prefix, 2);
  EXPECT_EQ(qwen->suffix, 4);
  EXPECT_EQ(qwen->middle, 1);
  EXPECT_EQ(qwen->file, 5);
  EXPECT_EQ(qwen->repository, 6);
  spec.tokens = {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"};
  EXPECT_EQ(find_infill_tokens(spec)->suffix, 1);
  spec.tokens = {"▁<PRE>", "▁<SUF>", "▁<MID>"};
  EXPECT_EQ(find_infill_tokens(spec)->middle, 2);
  spec.tokens = {"<fim_prefix>", "<fim_suffix>"};
  EXPECT_FALSE(find_infill_tokens(spec).ok());
  spec.fim_middle = 0;  // as in the file's metadata
  EXPECT_EQ(find_infill_tokens(spec)->middle, 0);
}

TEST(Infill, PromptHasPrefixSuffixAndStartOfTheMiddle) {
  Coder coder({"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"});
  ASSERT_TRUE(coder.model);
  const auto before = coder.encode("ab <|fim_middle|>");  // plain text, not the token
  const auto prompt = infill_prompt(*coder.model, before, {"yz", "m", {}}, 100);
  ASSERT_TRUE(prompt.ok()) << prompt.error().message;
  EXPECT_EQ(prompt->tokens, joined({start_of(*coder.model),
                                    {coder.ids[0]},
                                    before,
                                    coder.encode("m"),
                                    {coder.ids[1]},
                                    coder.encode("yz"),
                                    {coder.ids[2]}}));
  EXPECT_EQ(std::ranges::count(prompt->tokens, coder.ids[2]), 1);
  EXPECT_EQ(prompt->dropped_tokens, 0);
}

TEST(Infill, OtherFilesComeFirstAndAreTruncatedAtTheStart) {
  Coder coder({"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"});
  ASSERT_TRUE(coder.model);
  const auto before = coder.encode("ab");
  const InfillText text{"yz", "", {{"one", "uvw"}, {"two", "xyz"}}};
  const auto files = joined({{coder.ids[3]},
                             coder.encode("project\n"),
                             {coder.ids[4]},
                             coder.encode("one\n"),
                             coder.encode("uvw"),
                             {coder.ids[4]},
                             coder.encode("two\n"),
                             coder.encode("xyz"),
                             {coder.ids[4]},
                             coder.encode("file\n")});
  const auto rest = joined({{coder.ids[0]}, before, {coder.ids[1]}, coder.encode("yz"), {coder.ids[2]}});
  const auto whole = infill_prompt(*coder.model, before, text, 1000);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->tokens, joined({start_of(*coder.model), files, rest}));
  const auto most = static_cast<int64_t>(whole->tokens.size()) - 7;
  const auto cut = infill_prompt(*coder.model, before, text, most);
  EXPECT_EQ(cut->dropped_tokens, 7);
  EXPECT_EQ(cut->tokens, joined({start_of(*coder.model), std::vector<TokenId>(files.begin() + 7, files.end()), rest}));
  EXPECT_EQ(infill_prompt(*coder.model, before, text, 1)->tokens, joined({start_of(*coder.model), rest}));
}

// A model may separate files without a name of the project, or name the project without separating files.
TEST(Infill, FilesWithOneOfTheTwoTokens) {
  const InfillText text{"yz", "", {{"one", "uvw"}}};
  {
    Coder coder({"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"});
    ASSERT_TRUE(coder.model);
    const auto separated = infill_prompt(*coder.model, {}, text, 1000);
    ASSERT_TRUE(separated.ok()) << separated.error().message;
    EXPECT_EQ(separated->tokens, joined({start_of(*coder.model),
                                         {coder.ids[3]},
                                         coder.encode("one\n"),
                                         coder.encode("uvw"),
                                         {coder.ids[3]},
                                         coder.encode("file\n"),
                                         {coder.ids[0]},
                                         {coder.ids[1]},
                                         coder.encode("yz"),
                                         {coder.ids[2]}}));
  }
  Coder coder({"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>"});
  ASSERT_TRUE(coder.model);
  const auto snippets = infill_prompt(*coder.model, {}, text, 1000);
  ASSERT_TRUE(snippets.ok()) << snippets.error().message;
  const auto between = coder.encode("\n\n--- snippet ---\n\n");
  EXPECT_EQ(snippets->tokens, joined({start_of(*coder.model),
                                      between,
                                      coder.encode("uvw"),
                                      between,
                                      {coder.ids[0]},
                                      {coder.ids[1]},
                                      coder.encode("yz"),
                                      {coder.ids[2]}}));
}

TEST(Infill, RefusesOtherModels) {
  auto model = LanguageModel::load(kGolden, {.threads = 1});
  ASSERT_TRUE(model.ok());
  const auto prompt = infill_prompt(**model, {1}, {}, 100);
  ASSERT_FALSE(prompt.ok());
  EXPECT_EQ(prompt.error().kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace millrace
