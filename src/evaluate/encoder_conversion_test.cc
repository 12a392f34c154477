// Conversions of encoders: a folder's GGUF file has the reference's tokens, hidden states and scores
// (tests/golden/make_encoders.py), quantized files have nearly its vectors, and what cannot be converted is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/ordered_json.h"
#include "evaluate/embedder.h"
#include "evaluate/golden_floats_test.h"
#include "evaluate/pooling.h"
#include "models/convert/convert.h"
#include "models/ranking_head.h"
#include "prompt/rank_prompt.h"
#include "run/language_model.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<float>>;

const fs::path kFolders = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/encoders";

// A path that is removed at the end.
struct Output {
  explicit Output(const char* ending = ".gguf") : path(fs::path(::testing::TempDir()) / new_name(ending)) {}
  ~Output() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  static std::string new_name(const char* ending) {
    static int count = 0;
    return "encoder_conversion_" + std::to_string(getpid()) + "_" + std::to_string(++count) + ending;
  }
  fs::path path;
};

Result<ConvertReport> convert_encoder(const fs::path& from, const fs::path& to, const std::string& format = "",
                                      const std::string& task = "") {
  ThreadPool pool(1);
  ConvertOptions options;
  options.input = from.string();
  options.output = to.string();
  options.format = format;
  options.task = task;
  options.pooling_type = gguf_pooling_type;
  return convert_model(options, pool);
}

std::shared_ptr<const LanguageModel> load_converted(const fs::path& path) {
  auto model = LanguageModel::load(path, {.threads = 1});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

Rows rows_of(const std::shared_ptr<const LanguageModel>& model, const std::vector<std::vector<TokenId>>& texts,
             Pooling pooling) {
  auto embedder = Embedder::create(model, {.threads = 1, .context = 48, .batch_tokens = 512});
  EXPECT_TRUE(embedder.ok()) << (embedder.ok() ? "" : embedder.error().message);
  Rows out;
  const auto done = (*embedder)->run(texts, pooling, [&](size_t, std::vector<float> values) -> Result<void> {
    out.push_back(std::move(values));
    return {};
  });
  EXPECT_TRUE(done.ok());
  return out;
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double both = 0, left = 0, right = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    both += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    left += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    right += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return both / std::sqrt(left * right);
}

std::vector<std::string> convertible_encoders() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolders))
    if (!fs::exists(entry.path() / "2_Dense")) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

class EncoderConversion : public ::testing::TestWithParam<std::string> {
 protected:
  fs::path folder() const { return kFolders / GetParam(); }
  Json reference() const { return Json::parse(std::ifstream(folder() / "encoded.json")); }
};

// The folder's own results are those of the reference (encoders_test.cc).
TEST_P(EncoderConversion, OfAFolderKeepsTokensStatesAndScores) {
  const Output output;
  const auto report = convert_encoder(folder(), output.path);
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto before = load_converted(folder()), after = load_converted(output.path);
  ASSERT_TRUE(before && after);
  const Json expected = reference();
  const auto tokens = expected["tokens"].get<std::vector<std::vector<TokenId>>>();
  const bool ranks = expected["pooling"] == "rank";
  const auto prompt = RankPrompt::create(*after);
  ASSERT_TRUE(prompt.ok());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto text = expected["texts"][i].get<std::string>();
    const auto got = ranks ? prompt->tokens(expected["query"].get<std::string>(), text) : after->encode(text);
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(*got, tokens[i]) << i;
  }
  // F32 weights are copied as they are, so the bits do not change.
  EXPECT_EQ(rows_of(after, tokens, Pooling::none), rows_of(before, tokens, Pooling::none));
  const auto pooling = model_pooling(*after->parts().files), old = model_pooling(*before->parts().files);
  ASSERT_TRUE(pooling.ok() && old.ok());
  if (!ranks) EXPECT_EQ(*pooling, *old);
  if (!ranks) return;
  const auto head = RankingHead::read(*after->parts().files, after->parts().model->spec());
  ASSERT_TRUE(head.ok() && *head);
  const bool mean = (*head)->row() == RankingHead::Row::mean;
  const auto rows = rows_of(after, tokens, mean ? Pooling::mean : Pooling::cls);
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_NEAR((*head)->score(rows[i], false), expected["scores"][i].get<double>(), 5e-4) << i;
}

TEST_P(EncoderConversion, QuantizedVectorsPointTheSameWay) {
  const auto before = load_converted(folder());
  ASSERT_TRUE(before);
  const auto tokens = reference()["tokens"].get<std::vector<std::vector<TokenId>>>();
  const Rows vectors = rows_of(before, tokens, Pooling::mean);
  // Rows of 32 values are no whole blocks of q4_k, which falls back to q5_0. The attention of these random models is
  // peaked, so that 5 bits turn their vectors by up to 35 degrees. A rounded input may choose other experts.
  const bool mixture = GetParam() == "nomic_bert_moe";
  for (const auto& [format, least] : {std::pair{"q8_0", mixture ? 0.98 : 0.998}, {"q4_k", 0.8}}) {
    for (const fs::path& from : {folder(), folder() / "model.gguf"}) {
      SCOPED_TRACE(from.string() + " to " + format);
      const Output output;
      const auto report = convert_encoder(from, output.path, format);
      if (before->parts().model->spec().width % 32 != 0) {
        ASSERT_FALSE(report.ok());
        EXPECT_NE(report.error().message.find("columns are not whole blocks of"), std::string::npos)
            << report.error().message;
        continue;
      }
      ASSERT_TRUE(report.ok()) << report.error().message;
      EXPECT_TRUE(report->formats.contains(format == std::string("q4_k") ? "q5_0" : format));
      const auto after = load_converted(output.path);
      ASSERT_TRUE(after);
      const Rows quantized = rows_of(after, tokens, Pooling::mean);
      ASSERT_EQ(quantized.size(), vectors.size());
      for (size_t i = 0; i < vectors.size(); ++i) EXPECT_GT(cosine(quantized[i], vectors[i]), least) << i;
      EXPECT_NE(quantized, vectors);
    }
  }
}

// A folder in another number format keeps the files that say how vectors are pooled.
TEST_P(EncoderConversion, OfAFolderToAFolderKeepsItsPooling) {
  const Output output("");
  const auto report = convert_encoder(folder(), output.path, "bf16");
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto before = load_converted(folder()), after = load_converted(output.path);
  ASSERT_TRUE(before && after);
  EXPECT_EQ(fs::exists(output.path / "1_Pooling"), fs::exists(folder() / "1_Pooling"));
  const auto pooling = model_pooling(*after->parts().files), old = model_pooling(*before->parts().files);
  ASSERT_TRUE(pooling.ok() && old.ok());
  EXPECT_EQ(*pooling, *old);
  const auto tokens = reference()["tokens"].get<std::vector<std::vector<TokenId>>>();
  const Rows vectors = rows_of(before, tokens, Pooling::mean), rounded = rows_of(after, tokens, Pooling::mean);
  for (size_t i = 0; i < vectors.size(); ++i) EXPECT_GT(cosine(rounded[i], vectors[i]), 0.999) << i;
}

INSTANTIATE_TEST_SUITE_P(All, EncoderConversion, ::testing::ValuesIn(convertible_encoders()),
                         [](const auto& test) { return test.param; });

// The reference multiplies with the sum of each matrix and the task's adapter.
TEST(EncoderConversions, AddTheAdaptersOfATask) {
  const fs::path folder = kFolders / "jina_bert3";
  const Json expected = Json::parse(std::ifstream(folder / "encoded.json"));
  const auto tokens = expected["tokens"].get<std::vector<std::vector<TokenId>>>();
  ASSERT_EQ(expected["tasks"].size(), 2u);
  for (const auto& [task, hidden] : expected["tasks"].items()) {
    SCOPED_TRACE(task);
    const Output output;
    const auto report = convert_encoder(folder, output.path, "", task);
    ASSERT_TRUE(report.ok()) << report.error().message;
    const auto names_prefix = [](const std::string& note) { return note.find("begin with 'query: '") != note.npos; };
    EXPECT_EQ(std::ranges::any_of(report->notes, names_prefix), task == "retrieval.query");
    const auto model = load_converted(output.path);
    ASSERT_TRUE(model);
    const Rows rows = rows_of(model, tokens, Pooling::none);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_LT(error_of(rows[i], floats_of(hidden[i].get<std::string>())), 1e-4) << i;
      EXPECT_GT(error_of(rows[i], floats_of(expected["hidden"][i].get<std::string>())), 1e-2) << i;
    }
  }
  const Output output, other("");
  const auto unknown = convert_encoder(folder, output.path, "", "poetry");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("has retrieval.query, text-matching"), std::string::npos)
      << unknown.error().message;
  EXPECT_FALSE(convert_encoder(kFolders / "bert", output.path, "", "poetry").ok());
  EXPECT_FALSE(convert_encoder(folder, other.path, "", "text-matching").ok());
}

TEST(EncoderConversions, OthersAreRefusedByName) {
  const Output folder(""), file;
  auto report = convert_encoder(kFolders / "bert" / "model.gguf", folder.path);
  ASSERT_FALSE(report.ok());
  EXPECT_TRUE(report.error().message.ends_with(
      "a GGUF file of an encoder (bert) cannot become a folder; convert it to another GGUF file"))
      << report.error().message;
  report = convert_encoder(kFolders / "gemma_embedding", file.path);
  ASSERT_FALSE(report.ok());
  EXPECT_TRUE(
      report.error().message.ends_with("the dense layers behind the pooling (modules.json) cannot be converted"))
      << report.error().message;
  const Output copy("");
  fs::copy(kFolders / "modern_bert_rank", copy.path, fs::copy_options::recursive);
  Json config = Json::parse(std::ifstream(copy.path / "config.json"));
  config["classifier_pooling"] = "cls";
  std::ofstream(copy.path / "config.json") << config.dump();
  report = convert_encoder(copy.path, file.path);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message.find("classifier_pooling 'cls' has no key in GGUF"), std::string::npos)
      << report.error().message;
}

// A copy of a golden folder with one file changed.
struct Changed {
  Changed(const char* name, const char* file, const std::function<void(std::string&)>& change) : folder("") {
    fs::copy(kFolders / name, folder.path, fs::copy_options::recursive);
    std::ostringstream text;
    text << std::ifstream(folder.path / file, std::ios::binary).rdbuf();
    std::string bytes = text.str();
    change(bytes);
    std::ofstream(folder.path / file, std::ios::binary) << bytes;
  }
  Output folder;
};

// Changes the JSON of a file.
std::function<void(std::string&)> with_json(const std::function<void(Json&)>& change) {
  return [change](std::string& text) {
    Json json = Json::parse(text);
    change(json);
    text = json.dump();
  };
}

TEST(EncoderConversions, DamagedFilesAreReported) {
  const auto refusal = [](const Changed& changed, const std::string& task = "") {
    const Output output;
    const auto report = convert_encoder(changed.folder.path, output.path, "", task);
    return report.ok() ? std::string("converted") : report.error().message;
  };
  const Changed nan("xlm_roberta", "model.safetensors", [](std::string& bytes) {
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    const Json tensors = Json::parse(bytes.substr(8, header));
    for (const auto& [name, tensor] : tensors.items())
      if (name.ends_with("position_embeddings.weight"))
        std::memset(bytes.data() + 8 + header + tensor["data_offsets"][1].get<size_t>() - 4, 0xff, 4);
  });
  EXPECT_NE(refusal(nan).find("NaN"), std::string::npos) << refusal(nan);
  const Changed pooling("modern_bert_rank", "config.json",
                        with_json([](Json& config) { config["classifier_pooling"] = nullptr; }));
  EXPECT_NE(refusal(pooling).find("classifier_pooling"), std::string::npos) << refusal(pooling);
  const Changed renamed("jina_bert3", "model.safetensors", [](std::string& bytes) {
    for (size_t at = 0; (at = bytes.find(".lora_A", at)) != std::string::npos; ++at) bytes[at + 6] = 'X';
  });
  EXPECT_NE(refusal(renamed, "text-matching").find("the weights have no adapters"), std::string::npos)
      << refusal(renamed, "text-matching");
  const Changed experts("nomic_bert", "config.json",
                        with_json([](Json& config) { config["moe_every_n_layers"] = -1; }));
  EXPECT_NE(refusal(experts).find("moe_every_n_layers"), std::string::npos) << refusal(experts);
}

// A pair of XLM-RoBERTa has two separators, unless the folder's template has one.
TEST(EncoderConversions, KeepTheSeparatorsOfPairs) {
  const Changed one("xlm_roberta_rank", "tokenizer.json", with_json([](Json& tokenizer) {
                      Json& pair = tokenizer["post_processor"]["pair"];
                      for (size_t i = 1; i < pair.size(); ++i)
                        if (pair[i].contains("SpecialToken") && pair[i - 1].contains("SpecialToken")) {
                          pair.erase(i);
                          break;
                        }
                    }));
  const Output output;
  ASSERT_TRUE(convert_encoder(one.folder.path, output.path).ok());
  const auto tokens = [](const fs::path& path) {
    const auto model = load_converted(path);
    const auto prompt = RankPrompt::create(*model);
    EXPECT_TRUE(prompt.ok());
    return prompt->tokens("a river", "water runs").value();
  };
  EXPECT_EQ(tokens(output.path), tokens(one.folder.path));
  EXPECT_EQ(tokens(one.folder.path).size() + 1, tokens(kFolders / "xlm_roberta_rank").size());
}

}  // namespace
}  // namespace millrace
