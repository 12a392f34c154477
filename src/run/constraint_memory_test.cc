// Constraints under a memory budget: the minimum, the default share, and what is rejected beyond it.
#include "run/constraint_memory.h"

#include <gtest/gtest.h>

#include "run/language_model.h"
#include "test_paths.h"

namespace millrace {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class ConstraintMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model =
        LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf", {.threads = 1});
    ASSERT_TRUE(model.ok());
    model_ = *model;
    for (TokenId token = 0; token < tokenizer().vocab_size(); ++token)
      vocabulary_ += static_cast<int64_t>(tokenizer().piece(token).size()) * 14 + 96;
  }
  const Tokenizer& tokenizer() const { return *model_->parts().tokenizer; }
  static Constraint regex(const std::string& text) { return {.kind = Constraint::Kind::regex, .text = text}; }
  static std::string failure(const Result<CompiledGrammar>& made, ErrorKind kind) {
    if (made.ok()) return "";
    EXPECT_EQ(made.error().kind, kind) << made.error().message;
    return made.error().message;
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocabulary_ = 0;
};

TEST_F(ConstraintMemoryTest, MinimumAndDefault) {
  const int64_t least = vocabulary_ + 4 * kMiB;
  EXPECT_EQ(least_constraint_memory(tokenizer()), least);
  EXPECT_EQ(default_constraint_memory(nullptr, 100 * kMiB), 0);
  EXPECT_EQ(default_constraint_memory(&tokenizer(), 0), 0);
  EXPECT_EQ(default_constraint_memory(&tokenizer(), -1), 0);
  EXPECT_EQ(default_constraint_memory(&tokenizer(), 4 * least), least);
  EXPECT_EQ(default_constraint_memory(&tokenizer(), 4 * least - 4), 0);  // more than a quarter
  EXPECT_EQ(default_constraint_memory(&tokenizer(), 16 * least), least);
  EXPECT_EQ(default_constraint_memory(&tokenizer(), 16 * least + 16), least + 1);
  EXPECT_EQ(default_constraint_memory(&tokenizer(), 1600 * kMiB - 16), 64 * kMiB);
  EXPECT_EQ(default_constraint_memory(&tokenizer(), 1024 * kMiB - 16), 64 * kMiB - 1);
  EXPECT_EQ(default_constraint_memory(&tokenizer(), 1024 * kMiB + 16), 64 * kMiB);
}

TEST_F(ConstraintMemoryTest, WithoutABudgetNothingIsReserved) {
  for (const auto& accounts : {std::shared_ptr<MemoryAccounts>(), std::make_shared<MemoryAccounts>(0)}) {
    ConstraintMemory memory(tokenizer(), accounts, 0, 8);
    EXPECT_FALSE(memory.find(regex("a+")).has_value());  // was not compiled
    EXPECT_EQ(failure(memory.get(regex("a+")), ErrorKind::user), "");
    const auto found = memory.find(regex("a+"));
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(found->ok());
    EXPECT_FALSE(memory.find(regex("b+")).has_value());
    const std::string wrong = failure(memory.get(regex("(")), ErrorKind::user);
    EXPECT_TRUE(wrong.starts_with("constraint: ")) << wrong;
    EXPECT_FALSE(wrong.starts_with("constraint: constraint: ")) << wrong;
    if (const auto again = memory.find(regex("("))) {
      ASSERT_FALSE(again->ok());
      EXPECT_EQ(again->error().message, wrong);
    }
    const Constraint much{.kind = Constraint::Kind::grammar,
                          .text = "root ::= \"a\" # " + std::string((1 << 20) - 15, 'x')};
    EXPECT_EQ(failure(memory.get(much), ErrorKind::unsupported), "");
  }
}

TEST_F(ConstraintMemoryTest, VocabularyNeedsItsShareOfABudget) {
  const auto accounts = std::make_shared<MemoryAccounts>(1000 * kMiB);
  const int64_t least = vocabulary_ + 4 * kMiB;
  ConstraintMemory enough(tokenizer(), accounts, least, 8);
  EXPECT_EQ(failure(enough.get(regex("a+")), ErrorKind::unsupported), "");
  for (int64_t bytes : {int64_t{0}, least - 1}) {
    ConstraintMemory little(tokenizer(), accounts, bytes, 8);
    EXPECT_EQ(failure(little.get(regex("a+")), ErrorKind::unsupported),
              "constraint: of the memory budget of " + format_bytes(1000 * kMiB) + ", " + format_bytes(bytes) +
                  " are kept for structured output, and this vocabulary needs " + format_bytes(least) +
                  "; raise the budget, lower the context or the KV tokens, or set --constraint-memory");
    EXPECT_FALSE(little.find(regex("a+")).has_value());
  }
}

// A sixteenth of what the vocabulary leaves bounds the source: 256 KiB of 4 MiB, and never more than without a budget.
TEST_F(ConstraintMemoryTest, SourcesAreBounded) {
  const auto accounts = std::make_shared<MemoryAccounts>(int64_t{4} << 30);
  const auto grammar = [](size_t bytes) {
    std::string text = "root ::= \"a\" # ";
    text.resize(bytes, 'x');
    return Constraint{.kind = Constraint::Kind::grammar, .text = text};
  };
  for (const auto& [rest, source] : {std::pair(4 * kMiB, 256 << 10), {8 * kMiB, 512 << 10}, {64 * kMiB, 1 << 20}}) {
    ConstraintMemory memory(tokenizer(), accounts, vocabulary_ + rest, 8);
    EXPECT_EQ(failure(memory.get(grammar(static_cast<size_t>(source))), ErrorKind::unsupported), "") << rest;
    const std::string refused = failure(memory.get(grammar(static_cast<size_t>(source) + 1)), ErrorKind::unsupported);
    EXPECT_NE(refused.find("longer than " + std::to_string(source) + " bytes"), std::string::npos) << refused;
    EXPECT_TRUE(refused.starts_with("constraint: ")) << refused;
  }
}

// A grammar must fit in an eighth of the account; larger ones are rejected.
TEST_F(ConstraintMemoryTest, GrammarsAreBounded) {
  const auto accounts = std::make_shared<MemoryAccounts>(int64_t{4} << 30);
  const Constraint large = regex("([a-z]{1,40}[0-9]{1,40}){1,40}");
  ConstraintMemory tight(tokenizer(), accounts, vocabulary_ + 4 * kMiB, 8),
      roomy(tokenizer(), accounts, vocabulary_ + 512 * kMiB, 0);
  const auto refused = tight.get(large), compiled = roomy.get(large);
  EXPECT_TRUE(compiled.ok()) << (compiled.ok() ? "" : compiled.error().message);
  if (!refused.ok()) {
    EXPECT_TRUE(refused.error().message.starts_with("constraint: ")) << refused.error().message;
  }
  EXPECT_TRUE(tight.get(regex("[a-z]{1,4}")).ok());
}

}  // namespace
}  // namespace millrace
