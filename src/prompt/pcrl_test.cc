// PCRL: the policy of the golden file decides on tokens whose states the test knows.
#include <numeric>
#include <set>

#include "prompt/keep_policy.h"
#include "prompt/policy_files_test.h"
#include "prompt/prompt_words_test.h"
#include "test_paths.h"

namespace millrace {
namespace {

// One word for each vector of the golden file, a fixed token before them, and a question.
struct PolicyPrompt {
  GoldenPolicy golden{MILLRACE_SOURCE_DIR};
  RepeatingModel model;
  WordPrompt prompt{text()};

  std::string text() const {
    std::string out = "[<s>]";
    for (size_t i = 0; i < golden.vectors.size(); ++i) out += " v" + std::to_string(i);
    return out + "\nWho ?";
  }
  PolicyPrompt() {
    for (const std::string word : {"<s>", "\n", "Who", " ?"})
      model.vectors[WordPrompt::id_of(word)] = golden.vectors[0];
    for (size_t i = 0; i < golden.vectors.size(); ++i)
      model.vectors[WordPrompt::id_of(" v" + std::to_string(i))] = golden.vectors[i];
    const auto opened = PolicyFile::open(golden.path, {"policy"});
    EXPECT_TRUE(opened.ok());
    model.files[{"pcrl", golden.path}] = *opened;
  }

  std::string compressed(const std::string& options, int64_t budget = kAnyBudget) {
    return compressed_text("pcrl:policy=" + golden.path + "," + options, prompt, model, budget);
  }

  // Returns what remains by the reference's probabilities: the likeliest `count` at most, of those above the threshold.
  // The line break after the words has the probability of the first word.
  std::string expected(double threshold, size_t count) const {
    std::vector<double> keep = golden.expected["policy"];
    keep.push_back(keep.front());
    std::vector<size_t> order(keep.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return keep[a] > keep[b]; });
    order.resize(std::min(count, order.size()));
    std::ranges::sort(order);
    std::string out = "<s>";
    for (const size_t i : order)
      if (keep[i] >= threshold) out += i + 1 == keep.size() ? "\n" : " v" + std::to_string(i);
    return out + "Who ?";
  }
};

TEST(Pcrl, KeepsWhatThePolicyKeeps) {
  PolicyPrompt one;
  const std::string by_policy = one.compressed("threshold=0.5");
  EXPECT_EQ(by_policy, one.expected(0.5, 100));
  EXPECT_NE(by_policy, one.expected(0, 100));  // some tokens are below
  EXPECT_EQ(one.compressed("threshold=0.9"), one.expected(0.9, 100));
  EXPECT_EQ(one.compressed("threshold=0"), one.expected(0, 100));
}

TEST(Pcrl, KeepsToTheBudget) {
  PolicyPrompt one;
  const size_t size = one.golden.vectors.size() + 1;  // and the line break
  for (const size_t count : {size_t{1}, size_t{4}, size - 2}) {
    const double rate = static_cast<double>(count) / static_cast<double>(size);
    EXPECT_EQ(one.compressed("threshold=0,rate=" + std::to_string(rate)), one.expected(0, count));
    EXPECT_EQ(one.compressed("threshold=0.5,rate=" + std::to_string(rate)), one.expected(0.5, count));
  }
  EXPECT_EQ(one.compressed("threshold=0", 6), one.expected(0, 3));  // three fixed tokens
}

TEST(Pcrl, Messages) {
  const auto none = make_prompt_compressor("pcrl");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message,
            "prompt pcrl: policy: names a file, the safetensors of a trained policy; millrace has none "
            "(docs/prompt-compression.md)");
  PolicyPrompt one;
  EXPECT_EQ(compressed_text("pcrl:policy=other.safetensors", one.prompt, one.model),
            "error: prompt pcrl: other.safetensors is not one of the files that were opened; requests cannot name "
            "files");
  for (auto& [token, vector] : one.model.vectors) vector.push_back(0);
  EXPECT_NE(one.compressed("rate=1").find("reads vectors of 19 values, the model's have 20"), std::string::npos);
  const std::string missing = "/nonexistent.safetensors";
  const auto made = make_prompt_compressor("pcrl:policy=" + missing);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made)->file(), missing);
  EXPECT_FALSE((*made)->open_file().ok());
  EXPECT_EQ((*made)->needs(), kNeedsEmbeddings);
}

}  // namespace
}  // namespace millrace
