// Every prompt compressor with the lab's model, on conversations with tools: the chat template remains as it was, texts
// stay in their messages, budgets hold, and the result is the same for any number of threads.
#include <gtest/gtest.h>

#include <map>

#include "base/philox.h"
#include "evaluate/prompt_scores.h"
#include "lab/task.h"
#include "prompt/chat_prompt.h"
#include "prompt/message_sources.h"
#include "prompt/policy_files_test.h"
#include "run/language_model.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// With tools, calls and results, in the manner of published templates.
const char* const kWithTools =
    "{% if tools %}<|system|>Tools:{% for t in tools %} {{ t | tojson }}{% endfor %}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

struct ToolChat {
  std::shared_ptr<const LanguageModel> model;
  std::vector<TokenId> tokens;
  std::vector<PromptSource> sources;
};

std::string multidoc_text(uint64_t index) {
  return make_lab_item(*find_lab_task("multidoc"), 0, index, LabSplit::held_out, {600, 900}).messages[0].content;
}

ToolChat tool_chat() {
  ToolChat out;
  LoadOptions options;
  options.threads = 1;
  options.chat_template = kWithTools;
  auto model = LanguageModel::load("lab", options);
  EXPECT_TRUE(model.ok());
  out.model = *model;
  const Json call = {{"type", "function"}, {"function", {{"name", "find"}, {"arguments", {{"name", "Ann"}}}}}};
  const Json input = {
      {"tools", {{{"type", "function"}, {"function", {{"name", "find"}, {"description", "Finds documents."}}}}}},
      {"messages",
       {{{"role", "system"}, {"content", "Answer in one sentence.\nUse the documents."}},
        {{"role", "user"}, {"content", multidoc_text(1)}},
        {{"role", "assistant"}, {"content", "I will look.\nOne moment."}, {"tool_calls", Json::array({call})}},
        {{"role", "tool"}, {"content", multidoc_text(2)}},
        {{"role", "assistant"}, {"content", "He lives there.\nIt is a town."}},
        {{"role", "user"}, {"content", multidoc_text(3)}}}}};
  const auto rendered = render_chat(*out.model, input, true);
  EXPECT_TRUE(rendered.ok()) << rendered.error().message;
  out.tokens = encode_chat(*out.model, rendered->text).value();
  Json shown = input;
  shown["messages"] = rendered->messages;
  out.sources = message_sources(*out.model, shown, true, rendered->text, out.tokens);
  return out;
}

// A policy for the lab's model with drawn weights, in a file that lives as long as the program.
const std::string& drawn_policy() {
  static const TemporaryPolicy file([] {
    const int64_t width = tool_chat().model->parts().model->spec().width;
    const auto drawn = [](int64_t count, uint64_t stream) {
      std::vector<float> out;
      for (int64_t i = 0; i < count; ++i)
        out.push_back(static_cast<float>(philox_uniform(5, stream, static_cast<uint64_t>(i)) - 0.5));
      return out;
    };
    return std::vector<PolicyTensor>{{"policy.0.weight", {8, width}, drawn(8 * width, 0)},
                                     {"policy.2.weight", {1, 8}, drawn(8, 1)}};
  }());
  return file.path;
}

// With the options that a member cannot do without. Without a threshold, a policy drops no more than the rate asks for.
std::string with_options(const TechniqueInfo& info, const std::string& options) {
  const auto made = make_prompt_compressor(info.name);
  if (made.ok()) return info.name + ":" + options;
  if (made.error().message.find("policy") != std::string::npos)
    return info.name + ":" + options + ",threshold=0,policy=" + drawn_policy();
  return info.name + ":" + options + ",model=lab";
}

CompressedPrompt compressed_chat(const ToolChat& chat, const std::string& member, int threads) {
  const auto pipeline = PromptPipeline::create(std::vector<std::string>{member});
  EXPECT_TRUE(pipeline.ok()) << pipeline.error().message;
  ModelScores scores(chat.model, threads);
  EXPECT_TRUE(scores.open(*pipeline).ok());
  auto out = pipeline->apply(chat.model->parts().tokenizer.get(), chat.tokens, chat.sources, 1 << 20, &scores);
  EXPECT_TRUE(out.ok()) << member << ": " << (out.ok() ? "" : out.error().message);
  return out.ok() ? std::move(*out) : CompressedPrompt{};
}

// The message of each token: tokens between two fixed ones belong to one.
std::vector<int64_t> messages_of(const std::vector<PromptSource>& sources) {
  std::vector<int64_t> out;
  int64_t message = 0;
  for (const PromptSource source : sources) out.push_back(source == PromptSource::fixed ? ++message : message);
  return out;
}

std::vector<int64_t> fixed_tokens(const std::vector<int64_t>& kept, const std::vector<PromptSource>& sources,
                                  PromptScope scope) {
  std::vector<int64_t> out;
  for (const int64_t index : kept)
    if (index >= 0 && !in_scope(scope, sources[static_cast<size_t>(index)])) out.push_back(index);
  return out;
}

TEST(PromptMembers, TheChatTemplateRemains) {
  const ToolChat chat = tool_chat();
  std::map<PromptSource, int64_t> counts;
  for (const PromptSource source : chat.sources) ++counts[source];
  ASSERT_EQ(counts.size(), 5u);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < std::ssize(chat.tokens); ++i) all.push_back(i);
  const std::vector<int64_t> messages = messages_of(chat.sources);
  for (const auto& entry : prompt_compressors().entries()) {
    for (const std::string scope : {"all", "documents", "history", "tools"}) {
      const std::string member = with_options(entry.info, "rate=0.4,scope=" + scope);
      SCOPED_TRACE(member);
      const CompressedPrompt out = compressed_chat(chat, member, 1);
      const PromptScope chosen = find_prompt_scope(scope).value();
      EXPECT_LT(out.tokens.size(), chat.tokens.size());
      EXPECT_EQ(fixed_tokens(out.kept, chat.sources, chosen), fixed_tokens(all, chat.sources, chosen));
      // No text has left its message: the messages of what remains are in order.
      int64_t last = 0;
      for (const int64_t index : out.kept) {
        if (index < 0) continue;
        EXPECT_GE(messages[static_cast<size_t>(index)], last);
        last = messages[static_cast<size_t>(index)];
      }
    }
  }
}

TEST(PromptMembers, SameTokensForAnyNumberOfThreads) {
  const ToolChat chat = tool_chat();
  for (const auto& entry : prompt_compressors().entries()) {
    const std::string member = with_options(entry.info, "rate=0.3");
    const CompressedPrompt one = compressed_chat(chat, member, 1), two = compressed_chat(chat, member, 2);
    EXPECT_EQ(one.tokens, two.tokens) << member;
    EXPECT_EQ(one.kept, two.kept) << member;
  }
}

TEST(PromptMembers, BudgetsHold) {
  const ToolChat chat = tool_chat();
  for (const auto& entry : prompt_compressors().entries()) {
    const std::string member = with_options(entry.info, "rate=1,tokens=560");
    EXPECT_LE(compressed_chat(chat, member, 1).tokens.size(), 560u) << member;
    // A rate of one and no limit drop nothing.
    if (entry.info.name == "dynaicl") continue;  // its controller drops examples within the budget
    const auto whole = compressed_chat(chat, with_options(entry.info, "rate=1"), 1);
    EXPECT_EQ(whole.tokens.size(), chat.tokens.size()) << member;
  }
}

}  // namespace
}  // namespace millrace
